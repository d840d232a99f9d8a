"""Maps that no space can have, and assignments to nobody, are refused with the reason."""

import pytest

from configurators.engine.partition_map import Node, PartitionMap
from dispatcher.errors import Conflict
from monitor.plans.validation import BadPlan, check_assignment, check_map
from sdn.tables.pipeline import PlanName


@pytest.mark.parametrize(
    ("plan", "root", "text"),
    [
        ("lpm", None, "for the plan lpm, and the network runs under legs"),
        ("legs", Node(96), "tests bit 96"),
        ("legs", Node(-1), "tests bit -1"),
        ("legs", Node(3, zero=Node(3)), "tests bit 3 twice"),
    ],
)
def test_a_map_that_does_not_fit_is_refused(plan: PlanName, root: Node | None, text: str) -> None:
    with pytest.raises(BadPlan, match=text):
        check_map(PartitionMap(plan, root), "legs")


@pytest.mark.parametrize(
    ("root", "text"),
    [
        (Node(1), "bits are tested in order: 0 before 1"),
        (Node(0, open=Node(1)), "leave `open` out"),
    ],
)
def test_a_map_for_lpm_tests_bits_in_order(root: Node, text: str) -> None:
    with pytest.raises(BadPlan, match=text):
        check_map(PartitionMap("lpm", root), "lpm")


def test_a_map_with_too_many_partitions_is_refused() -> None:
    root: Node | None = None
    for bit in range(8):
        root = Node(bit, root, root, root)
    with pytest.raises(BadPlan, match="6561 partitions"):
        check_map(PartitionMap("legs", root), "legs")


def test_an_assignment_names_leaves_and_live_configurators() -> None:
    check_assignment({"0-0": "c1"}, ["0-0", "0-1"], ["c1"], ["c1"])
    with pytest.raises(BadPlan, match="no partition '0-7'"):
        check_assignment({"0-7": "c1"}, ["0-0"], ["c1"], ["c1"])
    with pytest.raises(Conflict, match="no live configurator 'c9'"):
        check_assignment({"0-0": "c9"}, ["0-0"], ["c1"], ["c1"])
    with pytest.raises(Conflict, match="is to leave"):
        check_assignment({"0-0": "c2"}, ["0-0"], ["c1", "c2"], ["c1"])
