"""From filters to regions, and from regions to the shares of partitions, cached. Pure."""

from functools import lru_cache
from typing import Any, NamedTuple

from msgspec import msgpack

from configurators.engine.partials import Request
from configurators.state.spaces import SpaceView
from configurators.store.model import Record
from configurators.streams.packing import pack_regions, unpack_regions
from dispatcher.requests.shares import Share, Shares
from dzflow.filters import BadFilter
from dzflow.region import WIDTH, Region

_REMEMBERED = 20_000
_TEXTS = 65_536

_encode = msgpack.Encoder().encode
_PLAIN = int.from_bytes(b"\x01" * WIDTH, "big") * (7 * ord("0") - ord("*"))


class Indexed(NamedTuple):
    """The regions of a filter in all index versions of a space, and the shares of partitions."""

    regions: dict[int, bytes]
    shares: Shares


def filter_bytes(given: Any) -> bytes:
    """A filter as it is stored; BadFilter if it has values that cannot be stored."""
    try:
        return _encode(given)
    except (OverflowError, UnicodeEncodeError, TypeError, RecursionError) as error:
        raise BadFilter(f"the filter has a value that cannot be stored: {error}") from None


class Routing:
    """Indexes filters and routes regions; recent results come from a cache."""

    def __init__(self) -> None:
        self._known = lru_cache(_REMEMBERED)(_indexed)
        self._routed = lru_cache(_REMEMBERED)(_routed)

    def index(self, space: SpaceView, advertised: bool, given: Any) -> Indexed:
        """The regions of a filter, and the shares of partitions; BadInput if it is not a filter."""
        return self._known(space, advertised, filter_bytes(given))

    def shares(self, space: SpaceView, record: Record) -> Shares:
        """What each partition has of a record that is in force."""
        return self.route(space, record.kind == "advertisement", record.regions)

    def route(self, space: SpaceView, advertised: bool, regions: dict[int, bytes]) -> Shares:
        """The shares of partitions for regions by version; versions that are gone are left out."""
        return self._routed(space, advertised, tuple(regions.items()))


def _indexed(space: SpaceView, advertised: bool, given: bytes) -> Indexed:
    regions = space.regions(msgpack.decode(given))
    shares: dict[str, Share] = {}
    for version, found in regions.items():
        shares |= _shares(space, advertised, version, found)
    return Indexed({v: pack_regions(found) for v, found in regions.items()}, shares)


def _routed(space: SpaceView, advertised: bool, regions: tuple[tuple[int, bytes], ...]) -> Shares:
    shares: dict[str, Share] = {}
    for version, packed in regions:
        if version in space.versions:
            shares |= _shares(space, advertised, version, unpack_regions(packed))
    return shares


def _shares(
    space: SpaceView, advertised: bool, version: int, regions: tuple[Region, ...]
) -> dict[str, Share]:
    view = space.versions[version]
    routed = view.route(Request(advertised, "", "", regions))
    return {
        name: (pack_regions(partial.regions), pack_regions(partial.edge))
        for name, partial in routed.items()
    }


@lru_cache(_TEXTS)
def region_texts(packed: bytes) -> list[str]:
    """Packed regions as text of 0, 1 and *."""
    return [_text(region) for region in unpack_regions(packed)]


def _text(region: Region) -> str:
    # Each character is "*" + 6 * mask + bit; one long integer computes all of them at once. The
    # constant takes out that the digits are ASCII characters.
    bits = int.from_bytes(f"{region.bits:096b}".encode(), "big")
    mask = int.from_bytes(f"{region.mask:096b}".encode(), "big")
    return (bits + 6 * mask - _PLAIN).to_bytes(WIDTH, "big").decode().rstrip("*") or "*"
