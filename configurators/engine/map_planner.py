"""Plans partition maps: which bits to test, so that partitions are about equally heavy. Pure."""

from collections.abc import Iterator, Sequence

from configurators.engine.map_draft import DraftNode, Placement, Weighted
from configurators.engine.partition_map import PartitionMap
from dzflow.errors import BadInput
from dzflow.index import Index
from dzflow.index.prior import typical_boxes
from dzflow.region import Region
from sdn.tables.pipeline import PlanName

_SAMPLE = 1500  # filters
_MOST_CHANGES = 256  # of a map that is adapted


class BadPartitionCount(BadInput):
    """A number of partitions below one."""


def first_map(index: Index, plan: PlanName, count: int) -> PartitionMap:
    """A map with at most `count` partitions, planned from the schema alone."""
    boxes = typical_boxes(index.space, index.axes, _SAMPLE)
    sample = [region for box in boxes for region in index.cover(box, index.space.index.budget)]
    return plan_map(sample, plan, count)


def plan_map(sample: Sequence[Region], plan: PlanName, count: int) -> PartitionMap:
    """A map with at most `count` partitions that spreads a sample of regions evenly."""
    return plan_placement([Weighted(region) for region in sample], plan, count).map


def plan_placement(items: Sequence[Weighted], plan: PlanName, count: int) -> Placement:
    """A map with at most `count` partitions that spreads weighted regions evenly.

    The planner cuts the heaviest leaf, again and again. It chooses the bit that makes the heaviest
    part lightest and separates few regions from those that cover them. Under `lpm`, what is finer
    than these regions can still be spread: the leaves with the fewest tests are cut until there are
    `count`.
    """
    _check(count)
    root = DraftNode(plan, items)
    leaves = 1
    more = 2 if plan == "legs" else 1
    while leaves + more <= count and (heaviest := _heaviest(root)) is not None:
        cuts = heaviest.split((count - leaves) // more)
        leaves += cuts * more
        heaviest.closed = not cuts  # the others may be cut
    if plan == "lpm":
        while leaves < count and min(root.leaves(), key=lambda leaf: leaf.depth).cut():
            leaves += 1
    return root.placement()


def place(partition_map: PartitionMap, items: Sequence[Weighted]) -> Placement:
    """What lies in each partition of a map."""
    return DraftNode.of(partition_map, items).placement()


def adapt_map(current: PartitionMap, items: Sequence[Weighted], count: int) -> Iterator[Placement]:
    """Maps with at most `count` partitions on the way from one map to a better balanced one.

    Each step cuts the heaviest leaf that can be cut. If there are too many leaves then, it merges
    the lightest parts of the tree, as long as these are lighter than what was cut. All other leaves
    stay as they are, so the caller can stop where a further change does not pay.
    """
    _check(count)
    root = DraftNode.of(current, items)
    if _count(root) > count:
        _make_room(root, count)
        yield root.placement()
    for _ in range(_MOST_CHANGES):
        heaviest = _heaviest(root)
        if heaviest is None or heaviest.weight * count <= root.weight:
            return
        if heaviest.split() and _make_room(root, count, heaviest):
            yield root.placement()
        else:
            heaviest.merge()
            heaviest.closed = True


def _heaviest(root: DraftNode) -> DraftNode | None:
    """The heaviest leaf that may be cut; the first of several."""
    leaves = (leaf for leaf in root.leaves() if not leaf.closed)
    return max(leaves, key=lambda leaf: leaf.weight, default=None)


def _make_room(root: DraftNode, count: int, cut: DraftNode | None = None) -> bool:
    """Merge the lightest parts of a tree until it has at most `count` leaves.

    If there is a node that was cut, only parts that are lighter than it are merged, and none below
    it. False, and no merge, if these are not enough.
    """
    merged: list[tuple[DraftNode, int, list[DraftNode]]] = []
    new = {id(node) for node in cut.inner()} if cut else set()
    while _count(root) > count:
        light = [
            node
            for node in root.inner()
            if not any(child.children for child in node.children)
            and id(node) not in new
            and (cut is None or node.weight < cut.weight)
        ]
        if not light:
            for node, bit, children in merged:
                node.bit, node.children = bit, children
            return False
        lightest = min(light, key=lambda node: node.weight)
        merged.append((lightest, lightest.bit, lightest.children))
        lightest.merge()
    return True


def _count(root: DraftNode) -> int:
    return sum(1 for _ in root.leaves())


def _check(count: int) -> None:
    if count < 1:
        raise BadPartitionCount(f"{count} partitions are asked for; at least one is needed")
