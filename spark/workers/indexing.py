"""Turns the filters of traces into regions, on the workers; the entry of the shipped code.

Regions travel as 24 bytes: their bits, then their mask.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from dzflow.index import Index
    from dzflow.region import Region

_BYTES = 12  # of the bits of a region, and of its mask
_REGIONS = pa.list_(pa.binary())


class IndexSource(NamedTuple):
    """What an index is built from; plain values, which any worker can read."""

    space: str
    version: int
    schema: Mapping[str, Any]
    shapes: Sequence[tuple[int, ...]] | None


Batches = Iterator[tuple[pa.Array, pa.Array]]


def region_finder(sources: Sequence[IndexSource]) -> Callable[[Batches], Iterator[pa.Array]]:
    """A function from batches of spaces and filters (as JSON) to arrays of lists of regions.

    It gives null for a filter that cannot be read, or does not fit the schema of its space.
    """

    def find(batches: Batches) -> Iterator[pa.Array]:
        by_name = {source.space: _build(source) for source in sources}
        for spaces, filters in batches:
            pairs = zip(spaces.to_pylist(), filters.to_pylist(), strict=True)
            yield pa.array([_regions(by_name[name], given) for name, given in pairs], _REGIONS)

    return find


def _build(source: IndexSource) -> "Index":
    from spark.workers.standin import provide_msgspec

    provide_msgspec()  # before anything that imports it
    from configurators.state.indexes import quiet_index
    from dzflow.space import Space

    space = Space.from_json(source.space, source.schema)
    return quiet_index(space, source.version, source.shapes)


def _regions(index: "Index", given: str) -> list[bytes] | None:
    from dzflow.errors import BadInput
    from dzflow.filters import STORED_WORK, parse_filter

    try:
        found = index.regions(parse_filter(index.space, json.loads(given), STORED_WORK))
    except (BadInput, ArithmeticError, LookupError, RecursionError, TypeError, ValueError):
        return None  # not written by dzflow, or the schema has changed
    return [pack(region) for region in found]


def pack(region: "Region") -> bytes:
    """A region as bytes."""
    return region.bits.to_bytes(_BYTES, "big") + region.mask.to_bytes(_BYTES, "big")


def unpack(packed: bytes) -> "Region":
    """The region that `pack` turned into these bytes."""
    from dzflow.region import Region

    return Region(int.from_bytes(packed[:_BYTES], "big"), int.from_bytes(packed[_BYTES:], "big"))
