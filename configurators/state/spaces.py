"""Stored spaces, and what follows from them: indexes, regions, partitions."""

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Self

import msgspec
from msgspec.structs import replace

from configurators.engine.map_planner import first_map
from configurators.engine.partials import Partial, Request
from configurators.engine.partition_map import PartitionMap, route
from configurators.state.indexes import quiet_index
from configurators.store.documents import BadDocument, decode_space
from configurators.store.keys import PartitionName
from configurators.store.model import SpaceDoc, Version
from dzflow.address import MAX_VERSION, PREFIX, BadAddress, Scope, read_match
from dzflow.errors import BadInput
from dzflow.filters import MAX_WORK, Filter, parse_filter
from dzflow.index import BadShape, FieldsIndex, Shape
from dzflow.region import Region
from dzflow.space import Space
from sdn.tables.flows import FlowEntry
from sdn.tables.pipeline import PlanName

VERSIONS_AT_ONCE = 2
_REMEMBERED = 16  # schemas


class UnfitIndex(BadInput):
    """The plan of the network cannot hold the regions of this kind of index."""


class TooManyVersions(BadInput):
    """A schema cannot be changed while an earlier change of it is in progress."""


class UnknownSpace(BadInput):
    """There is no space of this name."""


def new_space(
    name: str, number: int, schema: object, plan: PlanName, partitions: int, prefix: int = PREFIX
) -> SpaceDoc:
    """The document of a new space; BadSchema or UnfitIndex if the schema cannot be used.

    Under `lpm` a schema that names no kind of index gets `zorder`.
    """
    Scope(number, 0, prefix).check()
    return SpaceDoc(name, number, {0: _new_version(name, schema, plan, partitions)}, 0)


def new_version(doc: SpaceDoc, schema: object, partitions: int) -> SpaceDoc:
    """The space with a second version, for a changed schema; publishers still use the old one.

    TooManyVersions if it has two already.
    """
    if len(doc.versions) >= VERSIONS_AT_ONCE:
        raise TooManyVersions(
            f"the schema of {doc.name!r} is being changed already; try again when that is done"
        )
    number = (doc.current + 1) % (MAX_VERSION + 1)  # not a number that was just given up
    plan = doc.versions[doc.current].map.plan
    made = _new_version(doc.name, schema, plan, partitions)
    return replace(doc, versions={**doc.versions, number: made})


def with_current(doc: SpaceDoc, version: int) -> SpaceDoc:
    """The space with another of its versions for publishers."""
    return replace(doc, current=version)


def without_version(doc: SpaceDoc, version: int) -> SpaceDoc:
    """The space without one of its versions, which must not be the current one."""
    assert version != doc.current
    return replace(doc, versions={n: v for n, v in doc.versions.items() if n != version})


def with_shapes(doc: SpaceDoc, shapes: Iterable[Shape]) -> SpaceDoc:
    """The space with another dictionary of shapes for its current version.

    BadInput if its index has none, or not so many, or if a shape does not fit its attributes.
    """
    stored = doc.versions[doc.current]
    space = Space.from_json(doc.name, stored.schema)
    if stored.shapes is None:
        raise UnfitIndex(f"the index of {doc.name!r} is of the kind zorder, which has no shapes")
    index = FieldsIndex(space, doc.current, shapes)
    most = space.index.shapes
    if len(index.shapes) > most + 1:  # the shape that fixes nothing is always there
        raise BadShape(f"there are {len(index.shapes) - 1} shapes, and index.shapes is {most}")
    changed = replace(stored, shapes=index.shapes)
    return replace(doc, versions={**doc.versions, doc.current: changed})


def with_map(doc: SpaceDoc, version: int, partition_map: PartitionMap) -> SpaceDoc:
    """The space with another partition map for one of its versions."""
    stored = doc.versions[version]
    known = frozenset(stored.map.leaves())
    added = tuple(leaf for leaf in partition_map.leaves() if leaf not in known)
    number = stored.map_number + 1
    changed = replace(stored, map=partition_map, map_number=number, cutting=added)
    return replace(doc, versions={**doc.versions, version: changed})


def with_settled_map(doc: SpaceDoc, version: int) -> SpaceDoc:
    """The space after all switches have the entries of the leaves that were added last."""
    changed = replace(doc.versions[version], cutting=())
    return replace(doc, versions={**doc.versions, version: changed})


def same_schema(doc: SpaceDoc, schema: object) -> bool:
    """Whether a schema, however it is written, is that of the newest version."""
    newest = next((v for n, v in doc.versions.items() if n != doc.current), None)
    version = newest or doc.versions[doc.current]
    return _space(doc.name, schema, version.map.plan).to_json() == version.schema


def _new_version(name: str, schema: object, plan: PlanName, partitions: int) -> Version:
    written = _space(name, schema, plan).to_json()
    shapes, first = _planned(json.dumps(written), plan, partitions)
    return Version(written, shapes, first)


@lru_cache(_REMEMBERED)
def _planned(
    schema: str, plan: PlanName, partitions: int
) -> tuple[tuple[Shape, ...] | None, PartitionMap]:
    """The shapes and the first map for a schema; remembered, because planning takes up to 1 s."""
    index = quiet_index(Space.from_json("planned", json.loads(schema)), 0)
    shapes = index.shapes if isinstance(index, FieldsIndex) else None
    return shapes, first_map(index, plan, partitions)


def _space(name: str, schema: object, plan: PlanName) -> Space:
    space = Space.from_json(name, schema)
    if plan == "lpm" and space.index.kind != "zorder":
        given = schema.get("index") if isinstance(schema, Mapping) else None
        if isinstance(given, Mapping) and "kind" in given:
            raise UnfitIndex(
                "this network runs under the plan lpm, which holds prefixes only: give"
                " index.kind zorder, or leave it out"
            )
        assert isinstance(schema, Mapping)
        space = Space.from_json(name, {**schema, "index": {**(given or {}), "kind": "zorder"}})
    return space


class LoadedVersion:
    """One version of a space: its schema, index and partition map, ready for use."""

    def __init__(self, name: str, number: int, version: int, stored: Version) -> None:
        self.number = number
        self.version = version
        self.space = Space.from_json(name, stored.schema)
        self.index = quiet_index(self.space, version, stored.shapes)
        self.map: PartitionMap = stored.map
        self.map_number = stored.map_number
        self.leaves = tuple(stored.map.leaves())
        self.cutting = frozenset(stored.cutting)
        self._names = {leaf: str(PartitionName(number, version, leaf)) for leaf in self.leaves}
        self._partitions = tuple(self._names.values())

    def partitions(self) -> tuple[str, ...]:
        """The global names of its partitions; always the same object."""
        return self._partitions

    def has(self, leaf: str) -> bool:
        """Whether the partition map has a leaf of this name."""
        return leaf in self._names

    def scope(self, prefix: int = PREFIX) -> Scope:
        """The scope of the addresses of this version's events."""
        return Scope(self.number, self.version, prefix)

    def route(self, request: Request) -> dict[str, Partial]:
        """The partials that make a request active, by the global names of partitions."""
        names = self._names
        return {names[leaf]: partial for leaf, partial in route(self.map, request).items()}

    def partition_of(self, region: Region) -> str | None:
        """The partition that owns a region; None if it is coarser than any partition's."""
        owner = self.map.owner(region)
        return None if owner is None else self._names[owner]


@lru_cache(maxsize=256)
def _view(name: str, number: int, version: int, stored: bytes) -> LoadedVersion:
    return LoadedVersion(name, number, version, msgspec.msgpack.decode(stored, type=Version))


class LoadedSpace:
    """A space, ready for use: its document, and what follows from it."""

    def __init__(self, doc: SpaceDoc, versions: Mapping[int, LoadedVersion]) -> None:
        self.doc = doc
        self.name = doc.name
        self.number = doc.number
        self.versions = versions
        self.current = versions[doc.current]
        self.map_numbers = tuple((n, v.map_number) for n, v in sorted(versions.items()))

    @classmethod
    def of(cls, doc: SpaceDoc) -> Self:
        """The view of a stored space; versions that were seen before are not built again."""
        encode = msgspec.msgpack.encode
        return cls(
            doc,
            {n: _view(doc.name, doc.number, n, encode(v)) for n, v in doc.versions.items()},
        )

    @property
    def space(self) -> Space:
        """The schema that publishers use now."""
        return self.current.space

    def filter(self, given: object) -> Filter:
        """A filter that a user gave, in normal form under the current schema."""
        return parse_filter(self.space, given)

    def regions(self, given: object, work: int = MAX_WORK) -> dict[int, tuple[Region, ...]]:
        """The regions of a filter that a user gave, in each version; BadInput if one has none.

        The same text may mean another filter under another schema, so each version parses it.
        """
        return {
            n: v.index.regions(parse_filter(v.space, given, work)) for n, v in self.versions.items()
        }

    def partitions(self) -> tuple[str, ...]:
        """The global names of the partitions of all versions."""
        return tuple(name for view in self.versions.values() for name in view.partitions())


def read_space(name: str, data: bytes) -> SpaceDoc:
    """A space as it is stored under its name; BadDocument if it cannot be used."""
    doc = decode_space(data)
    if doc.name != name:
        raise BadDocument(f"it is stored as {name[:64]!r}, but is called {doc.name[:64]!r}")
    return doc


def _usable(doc: SpaceDoc) -> LoadedSpace:
    """The view of a stored space; BadDocument if something else than dzflow has written it."""
    try:
        if doc.current not in doc.versions:
            raise BadInput(f"it has no version {doc.current}, which publishers should use")
        for version in doc.versions:
            Scope(doc.number, version).check()
        return LoadedSpace.of(doc)
    except (BadInput, ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise BadDocument(f"the space {doc.name[:64]!r} cannot be used: {error}") from error


class Spaces:
    """All spaces, by name and by number. Changed only by `put` and `drop`."""

    def __init__(self, docs: Iterable[SpaceDoc] = (), prefix: int = PREFIX) -> None:
        self.prefix = prefix
        self._by_name: dict[str, LoadedSpace] = {}
        self._by_number: dict[int, LoadedSpace] = {}
        for doc in docs:
            self.put(doc)

    def __iter__(self) -> Iterator[LoadedSpace]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def put(self, doc: SpaceDoc) -> LoadedSpace:
        """Add a space, or replace it; BadDocument if it cannot be used, and nothing changes."""
        view = _usable(doc)
        other = self._by_number.get(doc.number)
        if other and other.name != doc.name:
            raise BadDocument(f"its number {doc.number} belongs to the space {other.name!r}")
        self.drop(doc.name)
        self._by_name[doc.name] = self._by_number[doc.number] = view
        return view

    def drop(self, name: str) -> LoadedSpace | None:
        """Remove a space; returns it if it was known."""
        known = self._by_name.pop(name, None)
        if known:
            self._by_number.pop(known.number, None)
        return known

    def get(self, name: str) -> LoadedSpace | None:
        """The space of this name, if there is one."""
        return self._by_name.get(name)

    def named(self, name: str) -> LoadedSpace:
        """The space of this name; UnknownSpace if there is none."""
        try:
            return self._by_name[name]
        except KeyError:
            raise UnknownSpace(
                f"there is no space {name[:64]!r}; GET /spaces lists all spaces"
            ) from None

    def scopes(self) -> set[tuple[int, int]]:
        """The versions of all spaces: number of the space, and the version."""
        return {(view.number, version) for view in self for version in view.versions}

    def has(self, number: int, version: int) -> bool:
        """Whether a space of this number has this version."""
        space = self._by_number.get(number)
        return space is not None and version in space.versions

    def numbered(self, number: int) -> LoadedSpace | None:
        """The space of this number, if there is one."""
        return self._by_number.get(number)

    def version(self, partition: PartitionName) -> LoadedVersion | None:
        """The version of a space that a partition belongs to, if there is one."""
        space = self._by_number.get(partition.space)
        return space.versions.get(partition.version) if space else None

    def unsettled(self) -> set[tuple[int, int]]:
        """The versions whose map was changed, and switches may lack entries of new partitions."""
        return {
            (space.number, number)
            for space in self
            for number, view in space.versions.items()
            if view.cutting
        }

    def recut(self, partition: str) -> bool:
        """Whether a partition is gone because the map of its version was changed."""
        try:
            name = PartitionName.parse(partition)
        except ValueError:
            return False  # a key in etcd that dzflow has not written
        view = self.version(name)
        return view is not None and not view.has(name.leaf)

    def cutting(self, partition: str) -> bool:
        """Whether a partition is new in its map, and switches may lack entries of new partitions.

        Until they have them, the partition must not carry out anything: a request may be covered by
        an entry that is missing.
        """
        name = PartitionName.parse(partition)
        view = self.version(name)
        return view is not None and name.leaf in view.cutting

    def partition_of(self, entry: FlowEntry) -> str | None:
        """The partition that an entry belongs to, by its match; None if there is none."""
        found = self._find(entry)
        return found[0].partition_of(found[1]) if found else None

    def partitions_beside(self, entry: FlowEntry) -> tuple[str, ...]:
        """All partitions of the version that an entry belongs to, by its match.

        Empty while switches may lack entries of partitions that the last change of the map added:
        an entry that no partition wants may be needed in their place.
        """
        found = self._find(entry)
        return found[0].partitions() if found and not found[0].cutting else ()

    def _find(self, entry: FlowEntry) -> tuple[LoadedVersion, Region] | None:
        if entry.match is None:
            return None
        try:
            scope, _, region = read_match(entry.match, self.prefix)
        except BadAddress:
            return None
        space = self._by_number.get(scope.space)
        view = space.versions.get(scope.version) if space else None
        return (view, region) if view else None
