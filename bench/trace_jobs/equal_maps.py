"""Partition maps that cut the event space into equal parts, whatever the load is. Pure."""

from collections.abc import Iterator

from configurators.engine.partition_map import Node, PartitionMap
from dzflow.index import Index
from sdn.tables.pipeline import PlanName


def equal_map(index: Index, plan: PlanName, count: int) -> PartitionMap:
    """A map with at most `count` partitions of equal size.

    The first bit of each attribute is tested in turn, then the second one, and so on. All
    partitions have the same number of tests, or one more than others.
    """
    places = list(range(96) if plan == "lpm" else _interleaved(index))
    more = 1 if plan == "lpm" else 2
    cuts = (count - 1) // more
    return PartitionMap(plan, _cut(places, cuts, more + 1))


def _cut(places: list[int], cuts: int, ways: int) -> Node | None:
    """A tree with this many tests: each level is full before the next one begins."""
    if cuts <= 0 or not places:
        return None
    shares = _shares(cuts - 1, ways)
    return Node(places[0], *(_cut(places[1:], share, ways) for share in shares))


def _shares(cuts: int, ways: int) -> list[int]:
    """How many tests each child gets: full levels, and the rest from the first child on."""
    full, level = 0, 1  # tests in the full levels of one child, and in its next level
    while (full + level) * ways <= cuts:
        full += level
        level *= ways
    rest = cuts - full * ways
    found = []
    for _ in range(ways):
        taken = min(rest, level)
        found.append(full + taken)
        rest -= taken
    return found


def _interleaved(index: Index) -> Iterator[int]:
    """The places of the first bits of all attributes, then those of the second bits, and so on."""
    starts = []
    start = 0
    for axis in index.axes:
        starts.append(start)
        start += axis.width
    for level in range(max(axis.width for axis in index.axes)):
        for axis, first in zip(index.axes, starts, strict=True):
            if level < axis.width:
                yield first + level
