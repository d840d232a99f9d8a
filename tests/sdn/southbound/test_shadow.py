"""The fence and the shadow: what is let through, and what a switch should hold."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dzflow.address import Scope, read_match
from dzflow.region import Region
from sdn.fence import Fence, StaleEpoch
from sdn.tables.flows import Change, FlowEntry, FlowOp, Output
from sdn.tables.shadow import BASE, Shadow
from sdn.tables.simulate import SimulatedSwitch


def test_the_fence_lets_through_what_is_as_new_as_the_newest_seen() -> None:
    fence = Fence({"p": 5})
    fence.check("p", 5)
    fence.check("other", 0)
    fence.raise_to("p", 7)
    fence.check("p", 7)
    with pytest.raises(StaleEpoch, match="7 owns it now"):
        fence.check("p", 6)
    with pytest.raises(StaleEpoch):
        fence.raise_to("p", 6)
    fence.check("p", 8)


def entry(dz: str, port: int, space: int = 1) -> FlowEntry:
    return FlowEntry(1, 100 + len(dz), Scope(space).match(Region.parse(dz), 0), (Output(port),))


def partition_of(found: FlowEntry) -> str:
    assert found.match
    return f"p{read_match(found.match)[0].space}"


entries = st.builds(entry, st.text("01", max_size=3), st.integers(1, 3), st.sampled_from([1, 2, 3]))
tables = st.lists(entries, max_size=8, unique_by=lambda e: e.key)


@given(tables, tables)
def test_a_repair_leads_to_the_shadow_and_leaves_undeclared_partitions_alone(
    found: list[FlowEntry], wanted: list[FlowEntry]
) -> None:
    shadow = Shadow(partition_of)
    for partition in ("p1", "p2"):
        shadow.declare(partition, [e for e in wanted if partition_of(e) == partition])
    switch = SimulatedSwitch("s")
    for one in found:
        switch.apply(FlowOp(Change.ADD, one))
    for op in shadow.repair(found):
        switch.apply(op)  # refuses operations that are not needed or make no sense
    expected = {e for e in wanted if partition_of(e) != "p3"}
    assert set(switch.entries.values()) == expected | {e for e in found if partition_of(e) == "p3"}


@given(tables, tables)
def test_keys_that_are_being_changed_are_left_alone(
    found: list[FlowEntry], wanted: list[FlowEntry]
) -> None:
    shadow = Shadow(lambda _: "p")
    shadow.declare("p", wanted)
    ignored = frozenset(e.key for e in found + wanted)
    assert shadow.repair(found, ignored) == []


@given(tables, tables)
def test_noted_operations_can_be_taken_back(
    before: list[FlowEntry], changed: list[FlowEntry]
) -> None:
    shadow = Shadow(lambda _: "p")
    shadow.declare("p", before)
    was = dict(shadow.entries)
    ops = [FlowOp(Change.DELETE if one.key in was else Change.ADD, one) for one in changed]
    shadow.restore(shadow.note("p", ops))
    assert shadow.entries == was


def sizes(shadow: Shadow) -> int:
    return max(Counter(key.table for key in shadow.entries).values(), default=0)


@given(tables, tables, tables)
def test_the_fullest_table_is_known_whatever_happens(
    declared: list[FlowEntry], added: list[FlowEntry], removed: list[FlowEntry]
) -> None:
    shadow = Shadow(partition_of)
    shadow.declare("p1", declared)
    assert shadow.fullest == sizes(shadow)
    ops = [FlowOp(Change.ADD, e) for e in added] + [FlowOp(Change.DELETE, e) for e in removed]
    before = shadow.note("p2", ops)
    assert shadow.fullest == sizes(shadow)
    shadow.restore(before)
    assert shadow.fullest == sizes(shadow) == len(declared)
    shadow.declare("p1", added)
    assert shadow.fullest == sizes(shadow)
    shadow.clear()
    assert shadow.fullest == 0


def test_declaring_a_partition_replaces_what_it_had_and_nothing_else() -> None:
    shadow = Shadow(partition_of)
    base = FlowEntry(1, 0, None, goto=2)
    shadow.declare(BASE, [base])
    shadow.declare("p1", [entry("0", 1), entry("1", 1)])
    shadow.declare("p1", [entry("00", 2)])
    assert set(shadow.entries.values()) == {base, entry("00", 2)}


def test_an_entry_that_another_partition_takes_over_is_no_longer_the_first_ones() -> None:
    shadow = Shadow(partition_of)
    shadow.note("p1", [FlowOp(Change.ADD, entry("0", 1)), FlowOp(Change.ADD, entry("1", 1))])
    shadow.note("p2", [FlowOp(Change.DELETE, entry("0", 1))])
    shadow.declare("p2", [entry("1", 1)])
    shadow.declare("p1", [])
    assert set(shadow.entries.values()) == {entry("1", 1)}


def test_a_partition_whose_entries_another_one_had_meanwhile_has_to_be_declared_again() -> None:
    """The other one came by a changed map; then the map was changed back."""
    shadow = Shadow(partition_of)
    shadow.declare("p1", [entry("0", 1), entry("1", 1)])
    shadow.declare("all", [entry("0", 1)])
    shadow.withdraw("all")
    assert shadow.repair([entry("0", 1), entry("1", 1)]) == []
    shadow.declare("p1", [entry("0", 1)])
    assert shadow.repair([entry("0", 1), entry("1", 1)]) == [FlowOp(Change.DELETE, entry("1", 1))]
