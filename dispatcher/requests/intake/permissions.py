"""Which hosts may subscribe to what, and advertise what."""

import time
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

from msgspec import Struct, msgpack

from configurators.state.spaces import LoadedSpace
from configurators.store.model import RecordKind
from dispatcher.errors import Forbidden
from dzflow.attribute import shown
from dzflow.containment import TooHardToCompare, lies_within
from dzflow.errors import BadInput
from dzflow.filters import Conjunction, parse_filter

_REMEMBERED = 10_000  # filters of up to so many bytes
_SMALL = 512

_encode = msgpack.Encoder().encode

Scope = bool | str | dict[str, Any]
"""Everything, nothing, or a filter that what is asked for must lie within."""


class Permission(Struct, frozen=True):
    """What hosts may do in spaces; both are patterns in which `*` stands for any text."""

    hosts: str
    spaces: str
    subscribe: Scope = False
    advertise: Scope = False


class Permissions:
    """Decides what a host may ask for. Without any permission given, hosts may do everything.

    As soon as one is given, a host may do what some permission that names it includes; if several
    do, a filter may lie within all of them taken together. `spent` is the processor time in seconds
    that the decisions have taken.
    """

    def __init__(
        self, given: Sequence[Permission] = (), cpu: Callable[[], float] = time.thread_time
    ) -> None:
        self.spent = 0.0
        self._given = tuple(given)
        self._cpu = cpu
        self._known = lru_cache(_REMEMBERED)(self._decide)

    def check(self, host: str, kind: RecordKind, space: LoadedSpace, given: Any) -> None:
        """Forbidden if a host may not subscribe to this filter, or advertise it."""
        if not self._given:
            return
        scopes = self._scopes(host, kind, space.name)
        if True in scopes:
            return
        verb = "subscribe to" if kind == "subscription" else "advertise"
        if not scopes:
            raise Forbidden(f"host {host} may not {verb} anything in space {space.name!r}")
        limits = tuple(_encode(scope) for scope in scopes)
        packed = _encode(given)
        why = (self._known if len(packed) <= _SMALL else self._decide)(space, limits, packed)
        if why:
            raise Forbidden(f"host {host} may not {verb} this in space {space.name!r}: {why}")

    def _scopes(self, host: str, kind: RecordKind, space: str) -> list[Scope]:
        """What a host may do in a space, without what allows nothing."""
        found = (
            each.subscribe if kind == "subscription" else each.advertise
            for each in self._given
            if fnmatchcase(host, each.hosts) and fnmatchcase(space, each.spaces)
        )
        return [scope for scope in found if scope is not False]

    def _decide(self, space: LoadedSpace, limits: tuple[bytes, ...], given: bytes) -> str | None:
        """Why a filter is not permitted in one of the versions of a space; None if it is."""
        began = self._cpu()
        try:
            for version in space.versions.values():
                outer: list[Conjunction] = []
                for limit in map(msgpack.decode, limits):
                    try:
                        outer += parse_filter(version.space, limit).any
                    except BadInput as error:
                        return f"the permission {shown(limit)} does not fit the space: {error}"
                inner = parse_filter(version.space, msgpack.decode(given)).any
                try:
                    if not lies_within(version.space, inner, outer):
                        texts = " or ".join(shown(msgpack.decode(limit)) for limit in limits)
                        return f"the filter must lie within {texts}"
                except TooHardToCompare as error:
                    return str(error)
            return None
        finally:
            self.spent += self._cpu() - began
