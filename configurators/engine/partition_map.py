"""The partition map: which partition a region belongs to.

Under `legs` an inner node tests one bit and has three children: 0, 1, not fixed. Each region ends
at exactly one leaf and nothing is ever split. Under `lpm` bits are tested in dz order, nodes have
two children, and a dz that is coarser than a leaf is split among the leaves below it.

A leaf is named by its path: `3-0.7-x` is where bit 3 is 0 and bit 7 is not fixed; under `lpm` the
name is the dz, such as `010`; the only leaf of a map is `all`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from configurators.engine.partials import Kind, Partial, Request
from dzflow.errors import BadInput
from dzflow.index import Index
from dzflow.index.prior import typical_boxes
from dzflow.region import WIDTH, Region
from dzflow.region_map import RegionMap
from sdn.pipeline import PlanName

ONLY = "all"
_SAMPLE = 1500
_MOST_TOLD = 1 << 16  # patterns of tested bits for which it is remembered who is told


class BadPartitionCount(BadInput):
    """A number of partitions that makes no sense."""


class Node(Struct, frozen=True):
    """An inner node: the bit it tests (0 is the first) and its children; None is a leaf."""

    bit: int
    zero: "Node | None" = None
    one: "Node | None" = None
    open: "Node | None" = None


class PartitionMap(Struct, frozen=True, dict=True):
    """A tree of tests; without a root there is one partition."""

    plan: PlanName
    root: Node | None = None

    def leaves(self) -> list[str]:
        """The names of all partitions."""
        return [name for name, _ in self.parts(Region(0, 0), told=True)]

    def parts(self, region: Region, told: bool = False) -> list[tuple[str, Region]]:
        """The partitions that own a region, each with its part of it.

        With `told`, also those that may hold regions overlapping it: who must know of it when it is
        advertised.
        """
        return list((self._compiled.told if told else self._compiled.owners)(region))

    def owner(self, region: Region) -> str | None:
        """The one partition that owns a region; None if it is split among several."""
        return self._compiled.owner(region)

    @cached_property
    def _compiled(self) -> "_Compiled":
        return _Compiled(self)

    def find(self, region: Region, told: bool) -> list[tuple[str, Region]]:
        """What `parts` gives, by its definition: slow and plain."""
        found: list[tuple[str, Region]] = []
        self._descend(self.root, region, [], told, found)
        return found

    def _descend(
        self,
        node: Node | None,
        region: Region,
        path: list[str],
        told: bool,
        found: list[tuple[str, Region]],
    ) -> None:
        if node is None:
            found.append((self._name(path), region))
            return
        bit = 1 << (WIDTH - 1 - node.bit)
        fixed = bool(region.mask & bit)
        for value, child in ((0, node.zero), (1, node.one)):
            if fixed and bool(region.bits & bit) != bool(value):
                continue
            if fixed or told or self.plan == "lpm":
                # Only prefixes are cut: elsewhere a region is told of whole, or not at all.
                part = region
                if not fixed and self.plan == "lpm":
                    part = Region(region.bits | value * bit, region.mask | bit)
                self._descend(child, part, [*path, self._step(node, str(value))], told, found)
        if self.plan == "legs" and (told or not fixed):
            self._descend(node.open, region, [*path, self._step(node, "x")], told, found)

    def _step(self, node: Node, value: str) -> str:
        return value if self.plan == "lpm" else f"{node.bit}-{value}"

    def _name(self, path: list[str]) -> str:
        return ("" if self.plan == "lpm" else ".").join(path) or ONLY


_Parts = Sequence[tuple[str, Region]]
_Branch = tuple[int, Any, Any, Any]  # the bit that is tested, and what follows for 0, 1, not fixed


class _Compiled:
    """A map in a form that answers quickly, and remembers who is told of what."""

    def __init__(self, partition_map: PartitionMap) -> None:
        self._map = partition_map
        self._tested = 0  # all bits that the map tests: no others matter
        self._cuts = partition_map.plan == "lpm"
        self._root = self._branch(partition_map.root, [])
        self._told: dict[tuple[int, int], tuple[str, ...]] = {}

    def _branch(self, node: Node | None, path: list[str]) -> _Branch | str:
        if node is None:
            return self._map._name(path)
        bit = 1 << (WIDTH - 1 - node.bit)
        self._tested |= bit
        zero, one, unfixed = (
            self._branch(child, [*path, self._map._step(node, value)])
            for value, child in (("0", node.zero), ("1", node.one), ("x", node.open))
        )
        return bit, zero, one, unfixed

    def owner(self, region: Region) -> str | None:
        """The partition that owns a region whole; None if it has to be cut."""
        bits, mask = region.bits, region.mask
        at: Any = self._root
        while type(at) is tuple:
            bit, zero, one, unfixed = at
            if mask & bit:
                at = one if bits & bit else zero
            elif self._cuts:
                return None
            else:
                at = unfixed
        owner: str = at
        return owner

    def owners(self, region: Region) -> _Parts:
        """The partitions that own a region, each with its part of it."""
        owner = self.owner(region)
        return self._map.find(region, False) if owner is None else ((owner, region),)

    def told(self, region: Region) -> _Parts:
        """The partitions that may hold regions overlapping one."""
        if self._cuts:
            return self.owners(region)
        key = region.bits & self._tested, region.mask & self._tested
        names = self._told.get(key)
        if names is None:
            if len(self._told) >= _MOST_TOLD:
                self._told.clear()
            names = self._told[key] = tuple(name for name, _ in self._map.find(region, True))
        return [(name, region) for name in names]


def route(partition_map: PartitionMap, request: Request) -> dict[str, Partial]:
    """The partials that make a request active, by partition.

    An advertisement is told to every partition that may hold an overlapping subscription; its entry
    at the edge belongs to one.
    """
    compiled = partition_map._compiled
    owned = _gathered(compiled.owners, request.regions)
    if not request.advertised:
        return {
            name: Partial(Kind.SUBSCRIBE, request.id, request.host, tuple(parts))
            for name, parts in owned.items()
        }
    return {
        name: Partial(
            Kind.ADVERTISE, request.id, request.host, tuple(parts), tuple(owned.get(name, ()))
        )
        for name, parts in _gathered(compiled.told, request.regions).items()
    }


def _gathered(
    find: Callable[[Region], _Parts], regions: Iterable[Region]
) -> dict[str, list[Region]]:
    found: dict[str, list[Region]] = {}
    for region in regions:
        for partition, part in find(region):
            if partition in found:
                found[partition].append(part)
            else:
                found[partition] = [part]
    return found


def route_removal(partition_map: PartitionMap, request: Request) -> dict[str, Partial]:
    """The partials that end a request, by partition."""
    kind = Kind.UNADVERTISE if request.advertised else Kind.UNSUBSCRIBE
    return {name: Partial(kind, request.id) for name in route(partition_map, request)}


def route_update(partition_map: PartitionMap, old: Request, new: Request) -> dict[str, Partial]:
    """The partials that replace a request's regions, by partition.

    Where the request comes new it is a subscription (or advertisement), where it goes a removal.
    """
    now, before = route(partition_map, new), route_removal(partition_map, old)
    partials = {name: partial for name, partial in before.items() if name not in now}
    for name, partial in now.items():
        partials[name] = replace(partial, kind=Kind.UPDATE) if name in before else partial
    return partials


def first_map(index: Index, plan: PlanName, count: int) -> PartitionMap:
    """A map with at most `count` partitions from the schema alone."""
    boxes = typical_boxes(index.space, index.axes, _SAMPLE)
    sample = [region for box in boxes for region in index.cover(box, index.space.index.budget)]
    return plan_map(sample, plan, count)


def plan_map(sample: Sequence[Region], plan: PlanName, count: int) -> PartitionMap:
    """A map with at most `count` partitions that spreads a sample of regions evenly.

    The heaviest leaf is cut, again and again, by the bit that leaves the lightest heaviest part and
    separates few regions from those that cover them.
    """
    if count < 1:
        raise BadPartitionCount(f"{count} partitions are asked for; at least one is needed")
    root = _Draft(list(sample), 0)
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


class _Draft:
    """A node while the map is being made."""

    def __init__(self, sample: list[Region], depth: int) -> None:
        self.sample = sample
        self.bit = -1
        self.depth = depth
        self.children: list[_Draft] = []

    def node(self) -> Node | None:
        """This node, ready."""
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
        self.children = [_Draft(part, self.depth + 1) for part in parts]
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
