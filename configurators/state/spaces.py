"""Stored spaces, and what follows from them: indexes, regions, partitions."""

import warnings
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Self

import msgspec
from msgspec.structs import replace

from configurators.engine.map_planner import first_map
from configurators.engine.partials import Partial, Request
from configurators.engine.partition_map import PartitionMap, route
from configurators.store.documents import BadDocument, decode_space
from configurators.store.keys import PartitionName
from configurators.store.model import SpaceDoc, Version
from dzflow.address import MAX_VERSION, PREFIX, BadAddress, Scope, read_match
from dzflow.errors import BadInput, LossWarning
from dzflow.filters import MAX_WORK, Filter, parse_filter
from dzflow.index import FieldsIndex, Index, Shape, build_index
from dzflow.region import Region
from dzflow.space import Space
from sdn.flows import FlowEntry
from sdn.pipeline import PlanName

VERSIONS_AT_ONCE = 2


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
    return SpaceDoc(name, number, {0: _new_version(name, 0, schema, plan, partitions)}, 0)


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
    made = _new_version(doc.name, number, schema, plan, partitions)
    return replace(doc, versions={**doc.versions, number: made})


def with_current(doc: SpaceDoc, version: int) -> SpaceDoc:
    """The space with another of its versions for publishers."""
    return replace(doc, current=version)


def without_version(doc: SpaceDoc, version: int) -> SpaceDoc:
    """The space without one of its versions, which must not be the current one."""
    assert version != doc.current
    return replace(doc, versions={n: v for n, v in doc.versions.items() if n != version})


def same_schema(doc: SpaceDoc, schema: object) -> bool:
    """Whether a schema, however it is written, is that of the newest version."""
    newest = next((v for n, v in doc.versions.items() if n != doc.current), None)
    version = newest or doc.versions[doc.current]
    return _space(doc.name, schema, version.map.plan).to_json() == version.schema


def _new_version(
    name: str, number: int, schema: object, plan: PlanName, partitions: int
) -> Version:
    space = _space(name, schema, plan)
    index = _quiet_index(space, number)
    shapes = index.shapes if isinstance(index, FieldsIndex) else None
    return Version(space.to_json(), shapes, first_map(index, plan, partitions))


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


def _quiet_index(space: Space, version: int, shapes: Iterable[Shape] | None = None) -> Index:
    # `index.lost` says what is lost; the dispatcher tells the user.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LossWarning)
        return build_index(space, version, shapes)


class VersionView:
    """One version of a space: its schema, index and partition map, ready for use."""

    def __init__(self, name: str, number: int, version: int, stored: Version) -> None:
        self.number = number
        self.version = version
        self.space = Space.from_json(name, stored.schema)
        self.index = _quiet_index(self.space, version, stored.shapes)
        self.map: PartitionMap = stored.map
        self.leaves = tuple(stored.map.leaves())
        self._names = {leaf: str(PartitionName(number, version, leaf)) for leaf in self.leaves}

    def partitions(self) -> tuple[str, ...]:
        """The global names of its partitions."""
        return tuple(self._names.values())

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
def _view(name: str, number: int, version: int, stored: bytes) -> VersionView:
    return VersionView(name, number, version, msgspec.msgpack.decode(stored, type=Version))


class SpaceView:
    """A space, ready for use: its document, and what follows from it."""

    def __init__(self, doc: SpaceDoc, versions: Mapping[int, VersionView]) -> None:
        self.doc = doc
        self.name = doc.name
        self.number = doc.number
        self.versions = versions
        self.current = versions[doc.current]

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


def _usable(doc: SpaceDoc) -> SpaceView:
    """The view of a stored space; BadDocument if something else than dzflow has written it."""
    try:
        if doc.current not in doc.versions:
            raise BadInput(f"it has no version {doc.current}, which publishers should use")
        for version in doc.versions:
            Scope(doc.number, version).check()
        return SpaceView.of(doc)
    except (BadInput, ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise BadDocument(f"the space {doc.name[:64]!r} cannot be used: {error}") from error


class Spaces:
    """All spaces, by name and by number. Changed only by `put` and `drop`."""

    def __init__(self, docs: Iterable[SpaceDoc] = (), prefix: int = PREFIX) -> None:
        self.prefix = prefix
        self._by_name: dict[str, SpaceView] = {}
        self._by_number: dict[int, SpaceView] = {}
        for doc in docs:
            self.put(doc)

    def __iter__(self) -> Iterator[SpaceView]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def put(self, doc: SpaceDoc) -> SpaceView:
        """Add a space, or replace it; BadDocument if it cannot be used, and nothing changes."""
        view = _usable(doc)
        other = self._by_number.get(doc.number)
        if other and other.name != doc.name:
            raise BadDocument(f"its number {doc.number} belongs to the space {other.name!r}")
        self.drop(doc.name)
        self._by_name[doc.name] = self._by_number[doc.number] = view
        return view

    def drop(self, name: str) -> SpaceView | None:
        """Remove a space; returns it if it was known."""
        known = self._by_name.pop(name, None)
        if known:
            self._by_number.pop(known.number, None)
        return known

    def get(self, name: str) -> SpaceView | None:
        """The space of this name, if there is one."""
        return self._by_name.get(name)

    def named(self, name: str) -> SpaceView:
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

    def numbered(self, number: int) -> SpaceView | None:
        """The space of this number, if there is one."""
        return self._by_number.get(number)

    def version(self, partition: PartitionName) -> VersionView | None:
        """The version of a space that a partition belongs to, if there is one."""
        space = self._by_number.get(partition.space)
        return space.versions.get(partition.version) if space else None

    def partition_of(self, entry: FlowEntry) -> str | None:
        """The partition that an entry belongs to, by its match; None if there is none."""
        if entry.match is None:
            return None
        try:
            scope, _, region = read_match(entry.match, self.prefix)
        except BadAddress:
            return None
        space = self._by_number.get(scope.space)
        view = space.versions.get(scope.version) if space else None
        return view.partition_of(region) if view else None
