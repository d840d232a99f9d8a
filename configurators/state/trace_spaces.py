"""The spaces of a trace file, in its footer: what its rows speak of, readable without a service.

The footer of a Parquet file has text by key. `dzflow.version` is the number of the format that is
described here; `dzflow.spaces` is a JSON object of all spaces, by name (`TraceSpace`). Jobs that
work on traces import this module, so it needs neither etcd nor Ray nor pyarrow.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw, Struct

from configurators.engine.partition_map import PartitionMap
from configurators.state.indexes import quiet_index
from configurators.store.model import SpaceDoc
from dzflow.address import Scope
from dzflow.errors import BadInput
from dzflow.index import Index
from dzflow.region import WIDTH
from dzflow.space import Space

VERSION_KEY = "dzflow.version"
SPACES_KEY = "dzflow.spaces"
FORMAT = "1"

# A large space (4,096 partitions, some hundred shapes) takes about 100 kB. The footer is not
# compressed, is part of each file, and counts towards the bytes that all traces may take.
MOST_BYTES = 4 << 20

# What code that uses a document raises if it was not written by dzflow.
_UNUSABLE = (BadInput, ArithmeticError, LookupError, RecursionError, TypeError, ValueError)


class BadTraceSpaces(BadInput):
    """The spaces in the footer of a trace file cannot be used."""


class NoTraceSpaces(BadTraceSpaces):
    """A trace file says nothing about spaces."""


class TraceVersion(Struct, frozen=True):
    """One version of a space's index when the file was closed."""

    schema: dict[str, Any]
    shapes: tuple[tuple[int, ...], ...] | None  # None for an index without a dictionary
    map: PartitionMap
    map_number: int

    def index(self, name: str, version: int) -> Index:
        """Its index, and thereby its schema (`index.space`); BadTraceSpaces if it has none.

        `name` is that of the space, and `version` the number of this version.
        """
        try:
            space = Space.from_json(name, self.schema)
            if (self.shapes is None) != (space.index.kind == "zorder"):
                raise BadInput("an index of kind fields has shapes, one of kind zorder has none")
            return quiet_index(space, version, self.shapes)
        except _UNUSABLE as error:
            raise _unusable(name, error) from error


class TraceSpace(Struct, frozen=True):
    """A space when the file was closed: its versions, and the one that publishers used."""

    number: int
    versions: dict[int, TraceVersion]
    current: int


class Footer(NamedTuple):
    """What is written to a footer, and the names of spaces for which there was no room."""

    entries: dict[str, str]
    left_out: tuple[str, ...]


def encode_footer(docs: Iterable[SpaceDoc], most_bytes: int = MOST_BYTES) -> Footer:
    """The footer of a file that is closed now; spaces that exceed `most_bytes` are left out."""
    written: dict[str, Raw] = {}
    left_out: list[str] = []
    size = 0
    for doc in docs:
        # One by one: a thread that encodes all spaces at once lets no other thread work meanwhile.
        encoded = msgspec.json.encode(_described(doc))
        needed = len(encoded) + len(doc.name) + len('"":,')
        if size + needed <= most_bytes:
            written[doc.name] = Raw(encoded)
            size += needed
        else:
            left_out.append(doc.name)
    entries = {VERSION_KEY: FORMAT, SPACES_KEY: msgspec.json.encode(written).decode()}
    return Footer(entries, tuple(left_out))


def decode_footer(metadata: Mapping[bytes, bytes] | None) -> dict[str, TraceSpace]:
    """The spaces of a trace file by name, from `pyarrow.parquet.read_metadata(file).metadata`.

    NoTraceSpaces if it has none; BadTraceSpaces if they cannot be used.
    """
    entries = metadata or {}
    found = entries.get(VERSION_KEY.encode())
    data = entries.get(SPACES_KEY.encode())
    if found is not None and found != FORMAT.encode():
        raise BadTraceSpaces(
            f"the trace file has format {found[:16].decode(errors='replace')!r}, and this version"
            f" of dzflow reads format {FORMAT}: use the version of dzflow that wrote it"
        )
    if found is None or data is None:
        raise NoTraceSpaces(
            "the trace file does not describe its spaces: it holds no requests, or was written by"
            " an earlier version of dzflow, or the writer's log says why; leave the file out"
        )
    try:
        spaces = msgspec.json.decode(data, type=dict[str, TraceSpace])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadTraceSpaces(
            f"{SPACES_KEY} in the footer of the trace file cannot be read ({error}): something else"
            " than dzflow has written it; leave the file out"
        ) from error
    for name, space in spaces.items():
        _check(name, space)
    return spaces


def _described(doc: SpaceDoc) -> TraceSpace:
    versions = {
        number: TraceVersion(stored.schema, stored.shapes, stored.map, stored.map_number)
        for number, stored in doc.versions.items()
    }
    return TraceSpace(doc.number, versions, doc.current)


def _check(name: str, space: TraceSpace) -> None:
    """BadTraceSpaces unless schemas and maps can be used; indexes take long, and are not built."""
    try:
        if space.current not in space.versions:
            raise BadInput(f"it has no version {space.current}, which publishers should use")
        for version, stored in space.versions.items():
            Scope(space.number, version).check()
            Space.from_json(name, stored.schema)
            _check_map(stored.map)
    except _UNUSABLE as error:
        raise _unusable(name, error) from error


def _check_map(given: PartitionMap) -> None:
    todo = [given.root]
    while todo:
        node = todo.pop()
        if node is not None:
            if not 0 <= node.bit < WIDTH:
                raise BadInput(f"its map tests bit {node.bit}; there are bits 0 to {WIDTH - 1}")
            todo += (node.zero, node.one, node.open)


def _unusable(name: str, error: Exception) -> BadTraceSpaces:
    return BadTraceSpaces(
        f"the space {name[:64]!r} in the footer of the trace file cannot be used ({error}):"
        " something else than dzflow has written it; leave the file out"
    )
