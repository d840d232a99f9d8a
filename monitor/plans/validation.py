"""Checks whether a partition map can be used for a space. Pure."""

from collections.abc import Collection, Mapping

from configurators.engine.partition_map import Node, PartitionMap
from dispatcher.errors import Conflict
from dzflow.errors import BadInput
from dzflow.region import WIDTH

MOST_LEAVES = 4096


class BadPlan(BadInput):
    """A plan that cannot be carried out, whatever the state of the system is."""


def check_map(partition_map: PartitionMap, plan: str) -> None:
    """BadPlan if a map cannot be used on a network that runs under a table plan."""
    if partition_map.plan != plan:
        raise BadPlan(
            f"the map is for the plan {partition_map.plan}, and the network runs under {plan}"
        )
    leaves = _check_node(partition_map.root, partition_map.plan == "lpm", [])
    if leaves > MOST_LEAVES:
        raise BadPlan(f"the map has {leaves} partitions; {MOST_LEAVES} are allowed")


def check_assignment(
    assignment: Mapping[str, str],
    leaves: Collection[str],
    alive: Collection[str],
    staying: Collection[str],
) -> None:
    """BadPlan if an assignment names a leaf that the map does not have.

    Conflict if it names a configurator that is not alive, or is to leave.
    """
    for leaf, configurator in assignment.items():
        if leaf not in leaves:
            raise BadPlan(f"assignment: the map has no partition {leaf[:64]!r}")
        if configurator not in alive:
            raise Conflict(f"assignment: there is no live configurator {configurator[:64]!r}")
        if configurator not in staying:
            raise Conflict(f"assignment: configurator {configurator[:64]!r} is to leave")


def _check_node(node: Node | None, in_dz_order: bool, path: list[int]) -> int:
    """How many leaves there are below a node."""
    if node is None:
        return 1
    if not 0 <= node.bit < WIDTH:
        raise BadPlan(f"the map tests bit {node.bit}; there are bits 0 to {WIDTH - 1}")
    if node.bit in path:
        raise BadPlan(f"the map tests bit {node.bit} twice on the way to one partition")
    if in_dz_order and node.bit != len(path):
        raise BadPlan(f"under lpm, bits are tested in order: {len(path)} before {node.bit}")
    below = [*path, node.bit]
    children = (node.zero, node.one) if in_dz_order else (node.zero, node.one, node.open)
    if in_dz_order and node.open is not None:
        raise BadPlan("under lpm, a test has two outcomes: leave `open` out")
    return sum(_check_node(child, in_dz_order, below) for child in children)
