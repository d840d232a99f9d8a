"""The partition map: which partition a region belongs to.

Under `legs` an inner node tests one bit and has three children: 0, 1, not fixed. Each region ends
at exactly one leaf and nothing is ever split. Under `lpm` bits are tested in dz order, nodes have
two children, and a dz that is coarser than a leaf is split among the leaves below it.

A leaf is named by its path: `3-0.7-x` is where bit 3 is 0 and bit 7 is not fixed; under `lpm` the
name is the dz, such as `010`; the only leaf of a map is `all`.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

from msgspec import Struct

from configurators.engine.partials import Kind, Partial, Request
from dzflow.region import WIDTH, Region
from sdn.tables.pipeline import PlanName

ONLY = "all"
_MOST_CACHED = 1 << 16  # patterns of tested bits whose partitions are cached


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
        return [name for name, _ in self.parts(Region(0, 0), advertised=True)]

    def parts(self, region: Region, advertised: bool = False) -> list[tuple[str, Region]]:
        """The partitions that own a region, each with its part of it.

        For an `advertised` region, also the partitions that may hold regions overlapping it: they
        must know of the advertisement.
        """
        return list((self._compiled.overlapping if advertised else self._compiled.owners)(region))

    def owner(self, region: Region) -> str | None:
        """The one partition that owns a region; None if it is split among several."""
        return self._compiled.owner(region)

    @cached_property
    def _compiled(self) -> "_Compiled":
        return _Compiled(self)

    def find(self, region: Region, advertised: bool) -> list[tuple[str, Region]]:
        """The same as `parts`, computed from the definition: slow and plain."""
        found: list[tuple[str, Region]] = []
        self._descend(self.root, region, [], advertised, found)
        return found

    def _descend(
        self,
        node: Node | None,
        region: Region,
        path: list[str],
        advertised: bool,
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
            if fixed or advertised or self.plan == "lpm":
                # Only prefixes are split: under `legs` a partition is told the whole region.
                part = region
                if not fixed and self.plan == "lpm":
                    part = Region(region.bits | value * bit, region.mask | bit)
                self._descend(child, part, [*path, self._step(node, str(value))], advertised, found)
        if self.plan == "legs" and (advertised or not fixed):
            self._descend(node.open, region, [*path, self._step(node, "x")], advertised, found)

    def _step(self, node: Node, value: str) -> str:
        return value if self.plan == "lpm" else f"{node.bit}-{value}"

    def _name(self, path: list[str]) -> str:
        return ("" if self.plan == "lpm" else ".").join(path) or ONLY


_Parts = Sequence[tuple[str, Region]]
_Branch = tuple[int, Any, Any, Any]  # the bit that is tested, and what follows for 0, 1, not fixed


class _Compiled:
    """A map in a form that answers quickly, and caches what overlaps a region."""

    def __init__(self, partition_map: PartitionMap) -> None:
        self._map = partition_map
        self._tested = 0  # all bits that the map tests: no others matter
        self._splits = partition_map.plan == "lpm"
        self._root = self._branch(partition_map.root, [])
        self._overlapping: dict[tuple[int, int], tuple[str, ...]] = {}

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
        """The partition that owns the whole region; None if the region has to be split."""
        bits, mask = region.bits, region.mask
        at: Any = self._root
        while type(at) is tuple:
            bit, zero, one, unfixed = at
            if mask & bit:
                at = one if bits & bit else zero
            elif self._splits:
                return None
            else:
                at = unfixed
        owner: str = at
        return owner

    def owners(self, region: Region) -> _Parts:
        """The partitions that own a region, each with its part of it."""
        owner = self.owner(region)
        return self._map.find(region, False) if owner is None else ((owner, region),)

    def overlapping(self, region: Region) -> _Parts:
        """The partitions that may hold regions overlapping one."""
        if self._splits:
            return self.owners(region)
        key = region.bits & self._tested, region.mask & self._tested
        names = self._overlapping.get(key)
        if names is None:
            if len(self._overlapping) >= _MOST_CACHED:
                self._overlapping.clear()
            names = self._overlapping[key] = tuple(name for name, _ in self._map.find(region, True))
        return [(name, region) for name in names]


def route(partition_map: PartitionMap, request: Request) -> dict[str, Partial]:
    """The partials that make a request active, by partition.

    Every partition that may hold an overlapping subscription is told of an advertisement. Its entry
    at the edge belongs to one of them.
    """
    compiled = partition_map._compiled
    owned = _by_partition(compiled.owners, request.regions)
    if not request.advertised:
        return {
            name: Partial(Kind.SUBSCRIBE, request.id, request.host, tuple(parts))
            for name, parts in owned.items()
        }
    return {
        name: Partial(
            Kind.ADVERTISE, request.id, request.host, tuple(parts), tuple(owned.get(name, ()))
        )
        for name, parts in _by_partition(compiled.overlapping, request.regions).items()
    }


def _by_partition(
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
