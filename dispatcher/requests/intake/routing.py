"""From filters to regions, and from regions to the shares of partitions, cached. Pure."""

import hashlib
import time
from collections.abc import Callable
from copy import copy
from functools import lru_cache
from typing import Any, NamedTuple

from msgspec import msgpack

from configurators.engine.partials import Request
from configurators.state.spaces import LoadedSpace
from configurators.store.model import Record
from configurators.streams.packing import REGION_BYTES, pack_regions, unpack_regions
from dispatcher.errors import TooLarge
from dispatcher.requests.shares import Share, Shares
from dzflow.errors import BadInput
from dzflow.filters import MAX_WORK, BadFilter
from dzflow.region import WIDTH, Region

_REMEMBERED = 20_000  # filters of up to so many bytes
_SMALL = 512
_REMEMBERED_LARGE = 200  # filters that are larger
_REFUSALS = 2_000
_DEAR = 0.001  # seconds: refusals that took longer are remembered
_TEXTS = 1 << 14  # of regions: about 6 MB

_encode = msgpack.Encoder().encode
_RefusalKey = tuple[LoadedSpace, bytes, int]
_PLAIN = int.from_bytes(b"\x01" * WIDTH, "big") * (7 * ord("0") - ord("*"))


def check_size(size: int, most: int | None) -> None:
    """TooLarge if a filter of so many bytes is larger than allowed."""
    if most is not None and size > most:
        raise TooLarge(
            f"the filter has {size} bytes, and a filter has at most {most} (limits.filter);"
            " simplify it or use several filters"
        )


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
    """Indexes filters and routes regions; recent results come from a cache.

    `spent` is the processor time in seconds that indexing has taken so far. A filter that took long
    to be refused is refused at once when it comes again.
    """

    def __init__(self, cpu: Callable[[], float] = time.thread_time) -> None:
        self.spent = 0.0
        self._cpu = cpu
        self._known = lru_cache(_REMEMBERED)(self._indexed)
        self._known_large = lru_cache(_REMEMBERED_LARGE)(self._indexed)
        self._refusals: dict[_RefusalKey, BadInput] = {}
        self._routed = lru_cache(_REMEMBERED)(_routed)

    def index(
        self,
        space: LoadedSpace,
        advertised: bool,
        given: Any,
        most: int | None = None,
        work: int = MAX_WORK,
    ) -> Indexed:
        """The regions of a filter, and the shares of partitions.

        BadInput if it is not a filter or takes more than `work`, TooLarge if it has more than
        `most` bytes.
        """
        packed = filter_bytes(given)
        size = len(packed)
        if size <= _SMALL:
            return self._known(space, advertised, packed, work)
        check_size(size, most)
        return self._known_large(space, advertised, packed, work)

    def _indexed(self, space: LoadedSpace, advertised: bool, given: bytes, work: int) -> Indexed:
        if self._refusals and (known := self._refusals.get(_refusal_key(space, given, work))):
            raise copy(known)
        began = self._cpu()
        try:
            return _indexed(space, advertised, given, work)
        except BadInput as error:
            if self._cpu() - began > _DEAR:
                if len(self._refusals) >= _REFUSALS:
                    del self._refusals[next(iter(self._refusals))]
                self._refusals[_refusal_key(space, given, work)] = copy(error)
            raise
        finally:
            self.spent += self._cpu() - began

    def shares(self, space: LoadedSpace, record: Record) -> Shares:
        """What each partition has of a record that is in force."""
        return self.route(space, record.kind == "advertisement", record.regions)

    def route(self, space: LoadedSpace, advertised: bool, regions: dict[int, bytes]) -> Shares:
        """The shares of partitions for regions by version; versions that are gone are left out."""
        return self._routed(space, advertised, tuple(regions.items()))


def _indexed(space: LoadedSpace, advertised: bool, given: bytes, work: int) -> Indexed:
    regions = space.regions(msgpack.decode(given), work)
    shares: dict[str, Share] = {}
    for version, found in regions.items():
        shares |= _shares(space, advertised, version, found)
    return Indexed({v: pack_regions(found) for v, found in regions.items()}, shares)


def _refusal_key(space: LoadedSpace, given: bytes, work: int) -> _RefusalKey:
    return space, hashlib.blake2b(given, digest_size=16).digest(), work


def _routed(space: LoadedSpace, advertised: bool, regions: tuple[tuple[int, bytes], ...]) -> Shares:
    shares: dict[str, Share] = {}
    for version, packed in regions:
        if version in space.versions:
            shares |= _shares(space, advertised, version, unpack_regions(packed))
    return shares


def _shares(
    space: LoadedSpace, advertised: bool, version: int, regions: tuple[Region, ...]
) -> dict[str, Share]:
    view = space.versions[version]
    routed = view.route(Request(advertised, "", "", regions))
    return {
        name: (pack_regions(partial.regions), pack_regions(partial.edge))
        for name, partial in routed.items()
    }


def region_texts(packed: bytes) -> list[str]:
    """Packed regions as text of 0, 1 and *."""
    size = REGION_BYTES
    return [_text(packed[at : at + size]) for at in range(0, len(packed), size)]


# By region, because few regions make up many lists: a cache of lists would fill for an hour.
@lru_cache(_TEXTS)
def _text(packed: bytes) -> str:
    (region,) = unpack_regions(packed)
    # Each character is "*" + 6 * mask + bit; one long integer computes all of them at once. The
    # constant takes out that the digits are ASCII characters.
    bits = int.from_bytes(f"{region.bits:096b}".encode(), "big")
    mask = int.from_bytes(f"{region.mask:096b}".encode(), "big")
    return (bits + 6 * mask - _PLAIN).to_bytes(WIDTH, "big").decode().rstrip("*") or "*"
