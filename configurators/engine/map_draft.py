"""A partition map that is being planned: what lies at each node, and how it can be cut. Pure.

Weights stand for the work on one partial. A test sends a subscription to one child. An
advertisement goes to all children that are told of it, and under `lpm` a dz that is coarser than
the test to both, as two halves: each of them is a partial, and costs as much as the whole.
"""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from configurators.engine.partition_map import Node, PartitionMap
from dzflow.region import WIDTH, Region
from dzflow.region_map import RegionMap
from sdn.tables.pipeline import PlanName

MOST_TESTS = 28
"""Tests on the way to a partition: the body of a plan must not be nested deeper than 32."""

_LESS = 1 - 1e-9  # a cut must make the heaviest part lighter by more than a rounding error


class Weighted(Struct, frozen=True):
    """A region and its weight; `advertised` regions are known to several partitions.

    Subclasses may add fields: a part of a region has those of the whole.
    """

    region: Region
    weight: float = 1.0
    advertised: bool = False


class Placement(Struct, frozen=True):
    """A partition map, and the regions that lie in each of its partitions."""

    map: PartitionMap
    parts: Mapping[str, Sequence[Weighted]]


class DraftNode:
    """A node of a map that is being planned; a leaf if it has no children."""

    def __init__(self, plan: PlanName, items: Sequence[Weighted], tested: int = 0) -> None:
        self.items = items
        self.weight = sum(item.weight for item in items)
        self.bit = -1
        self.children: list[DraftNode] = []
        self.closed = False  # it cannot be cut further
        self._plan: PlanName = plan
        self._tested = tested  # the bits that are tested on the way here

    @classmethod
    def of(cls, given: PartitionMap, items: Sequence[Weighted]) -> "DraftNode":
        """The root of a draft that is cut like a map."""
        root = cls(given.plan, items)
        todo = [(root, given.root)]
        while todo:
            draft, node = todo.pop()
            if node is not None:
                draft._divide(node.bit)
                todo += zip(draft.children, (node.zero, node.one, node.open), strict=False)
        return root

    def placement(self) -> Placement:
        """The map that has this node as its root, and what lies in its partitions."""
        made = PartitionMap(self._plan, self._node())
        leaves = (leaf.items for leaf in self.leaves())
        return Placement(made, dict(zip(made.leaves(), leaves, strict=True)))

    def leaves(self) -> "Iterator[DraftNode]":
        """The leaves below, in the order in which a map lists them."""
        if not self.children:
            yield self
        for child in self.children:
            yield from child.leaves()

    @property
    def depth(self) -> int:
        """How many tests lead here."""
        return self._tested.bit_count()

    def inner(self) -> "Iterator[DraftNode]":
        """All nodes below that have children, and this one if it has."""
        if self.children:
            yield self
        for child in self.children:
            yield from child.inner()

    def cut(self) -> bool:
        """Cut a leaf once: by the best bit, or by the next bit of the dz; False if none will do."""
        if self.depth >= MOST_TESTS:
            return False
        if self._plan == "lpm":
            self._divide(self.depth)
            return True
        place = self._best_place()
        if place is None:
            return False
        self._divide(place)
        return True

    def split(self, most: int = MOST_TESTS) -> int:
        """Cut a leaf until each part is lighter; returns how many cuts that took, `most` at most.

        It is 0, and nothing is cut, if that is impossible. Under `lpm` it may take several cuts,
        because bits are tested in order; and both halves have all that is coarser than the test.
        """
        at = self
        for cuts in range(1, most + 1):
            if not at.cut():
                break
            heavy = [child for child in at.children if child.weight >= self.weight * _LESS]
            if not heavy:
                return cuts
            if len(heavy) > 1:
                break
            (at,) = heavy
        self.merge()
        return 0

    def merge(self) -> None:
        """Make this node a leaf again."""
        self.bit = -1
        self.children = []

    def _node(self) -> Node | None:
        if not self.children:
            return None
        return Node(self.bit, *(child._node() for child in self.children))

    def _best_place(self) -> int | None:
        """The bit to test: it makes the heaviest part light, and separates few from coverers."""
        costs = {}
        separated = _separated_weight(self.items)
        pairs = sum(separated.values()) or 1.0
        for place, heaviest in self._heaviest_parts().items():
            if heaviest < self.weight * _LESS:
                costs[place] = heaviest / self.weight + separated.get(place, 0.0) / pairs
        return min(costs, key=lambda place: (costs[place], place), default=None)

    def _heaviest_parts(self) -> Mapping[int, float]:
        """The weight of the heaviest part, for each bit that could be tested."""
        fixed: dict[int, list[float]] = {}  # by place: subscribed 0 and 1, advertised 0 and 1
        advertised = 0.0
        for item in self.items:
            column = 2 if item.advertised else 0
            advertised += item.weight if item.advertised else 0.0
            bits = item.region.bits
            for place in _places(item.region.mask & ~self._tested):
                weights = fixed.setdefault(place, [0.0, 0.0, 0.0, 0.0])
                weights[column + (bits >> (WIDTH - 1 - place) & 1)] += item.weight
        found = {}
        for place, (zero, one, advertised_zero, advertised_one) in fixed.items():
            # All children are told of an advertisement that leaves the bit open.
            zeros = zero + advertised - advertised_one
            ones = one + advertised - advertised_zero
            found[place] = max(zeros, ones, self.weight - zero - one)
        return found

    def _divide(self, place: int) -> None:
        self.bit = place
        bit = 1 << (WIDTH - 1 - place)
        parts: tuple[list[Weighted], ...] = ([], [], [])
        splits = self._plan == "lpm"
        for item in self.items:
            fixed = bool(item.region.mask & bit)
            one = bool(item.region.bits & bit)
            if splits and not fixed:
                for value, part in enumerate(parts[:2]):
                    region = Region(item.region.bits | value * bit, item.region.mask | bit)
                    part.append(replace(item, region=region))
            elif splits or not item.advertised:
                parts[2 if not fixed else int(one)].append(item)
            else:
                for part in (parts[int(one)], parts[2]) if fixed else parts:
                    part.append(item)
        below = self._tested | bit
        shown = parts[:2] if splits else parts
        self.children = [DraftNode(self._plan, part, below) for part in shown]


def _separated_weight(items: Sequence[Weighted]) -> Mapping[int, float]:
    """For each place, the weight of subscriptions that a test of it separates from a coverer.

    One with several coverers counts once for each.
    """
    owned = [item for item in items if not item.advertised]
    known: RegionMap[Region] = RegionMap()
    for region in dict.fromkeys(item.region for item in owned):
        known.add(region, region)
    found: dict[int, float] = {}
    for item in owned:
        for coverer in known.coverers(item.region):
            for place in _places(item.region.mask & ~coverer.mask):
                found[place] = found.get(place, 0.0) + item.weight
    return found


def _places(mask: int) -> Iterator[int]:
    while mask:
        yield WIDTH - mask.bit_length()
        mask ^= 1 << (mask.bit_length() - 1)
