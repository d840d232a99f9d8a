"""Plans partition maps: which bits to test, so that partitions are about equally heavy."""

from collections.abc import Iterator, Mapping, Sequence

from configurators.engine.partition_map import Node, PartitionMap
from dzflow.errors import BadInput
from dzflow.index import Index
from dzflow.index.prior import typical_boxes
from dzflow.region import WIDTH, Region
from dzflow.region_map import RegionMap
from sdn.pipeline import PlanName

_SAMPLE = 1500  # filters


class BadPartitionCount(BadInput):
    """A number of partitions below one."""


def first_map(index: Index, plan: PlanName, count: int) -> PartitionMap:
    """A map with at most `count` partitions, planned from the schema alone."""
    boxes = typical_boxes(index.space, index.axes, _SAMPLE)
    sample = [region for box in boxes for region in index.cover(box, index.space.index.budget)]
    return plan_map(sample, plan, count)


def plan_map(sample: Sequence[Region], plan: PlanName, count: int) -> PartitionMap:
    """A map with at most `count` partitions that spreads a sample of regions evenly.

    The planner cuts the heaviest leaf, again and again. It chooses the bit that makes the heaviest
    part lightest and separates few regions from those that cover them.
    """
    if count < 1:
        raise BadPartitionCount(f"{count} partitions are asked for; at least one is needed")
    root = _DraftNode(list(sample), 0)
    leaves = [root]
    more = 2 if plan == "legs" else 1
    while len(leaves) + more <= count:
        heaviest = max(leaves, key=lambda leaf: len(leaf.sample))
        if not (heaviest.cut_by_dz() if plan == "lpm" else heaviest.cut()):
            if heaviest.sample:
                heaviest.sample = []  # cannot be cut further; the others may
                continue
            break
        leaves.remove(heaviest)
        leaves.extend(heaviest.children)
    return PartitionMap(plan, root.node())


class _DraftNode:
    """A node of a map that is being planned."""

    def __init__(self, sample: list[Region], depth: int) -> None:
        self.sample = sample
        self.bit = -1
        self.depth = depth
        self.children: list[_DraftNode] = []

    def node(self) -> Node | None:
        """The finished node; None if it is a leaf."""
        return Node(self.bit, *(child.node() for child in self.children)) if self.children else None

    def cut_by_dz(self) -> bool:
        """Cut by the next bit of the dz."""
        if self.depth >= WIDTH:
            return False
        self._divide(self.depth)
        del self.children[2]
        return True

    def cut(self) -> bool:
        """Cut by the best bit; False if no bit divides the sample."""
        size = len(self.sample)
        costs = {}
        separated = _separated_pairs(self.sample)
        pairs = max(1, sum(separated.values()))
        for place, (zeros, ones) in _fixed_counts(self.sample).items():
            heaviest = max(zeros, ones, size - zeros - ones)
            if heaviest < size:
                costs[place] = heaviest / size + separated.get(place, 0) / pairs
        if not costs:
            return False
        self._divide(min(costs, key=lambda place: (costs[place], place)))
        return True

    def _divide(self, place: int) -> None:
        self.bit = place
        bit = 1 << (WIDTH - 1 - place)
        parts: tuple[list[Region], ...] = ([], [], [])
        for region in self.sample:
            parts[2 if not region.mask & bit else 1 if region.bits & bit else 0].append(region)
        self.children = [_DraftNode(part, self.depth + 1) for part in parts]
        self.sample = []


def _fixed_counts(sample: Sequence[Region]) -> Mapping[int, tuple[int, int]]:
    """For each place, how many regions have a 0 there, and how many a 1."""
    counts: dict[int, list[int]] = {}
    for region in sample:
        for place in _places(region.mask):
            one = region.bits >> (WIDTH - 1 - place) & 1
            counts.setdefault(place, [0, 0])[one] += 1
    return {place: (zeros, ones) for place, (zeros, ones) in counts.items()}


def _separated_pairs(sample: Sequence[Region]) -> Mapping[int, int]:
    """For each place, how many pairs of coverer and covered a test of it would separate."""
    known: RegionMap[Region] = RegionMap()
    for region in dict.fromkeys(sample):
        known.add(region, region)
    pairs: dict[int, int] = {}
    for region in sample:
        for coverer in known.coverers(region):
            for place in _places(region.mask & ~coverer.mask):
                pairs[place] = pairs.get(place, 0) + 1
    return pairs


def _places(mask: int) -> Iterator[int]:
    while mask:
        yield WIDTH - mask.bit_length()
        mask ^= 1 << (mask.bit_length() - 1)
