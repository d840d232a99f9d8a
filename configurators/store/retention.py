"""How much is kept of what expires: groups of keys, and which of them must go. Pure.

Keys that expire share leases (see `upkeep.SharedLeases`). The keys of one lease are a group. Ending
the lease deletes the group in one step, however many keys it has, so that nothing has to be read to
make room.
"""

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

GroupKind = Literal["finished", "keys"]
"""Finished records, or idempotency keys."""


class Group(Struct, frozen=True, array_like=True):
    """Keys that share a lease, how many bytes they have, and when the last of them was written."""

    kind: GroupKind
    lease: int
    closed: float  # seconds since 1970
    keys: int
    bytes: int


class Bound(Struct, frozen=True):
    """The most keys and bytes to be kept; but always all keys of the last `floor` seconds."""

    keys: int
    bytes: int
    floor: float


class Kept(Struct, frozen=True):
    """How many keys there are, and how many bytes they have."""

    keys: int = 0
    bytes: int = 0


def kept(groups: Iterable[Group]) -> Kept:
    """All keys of some groups together."""
    keys = size = 0
    for group in groups:
        keys += group.keys
        size += group.bytes
    return Kept(keys, size)


def removable(groups: Iterable[Group], floor: float, now: float) -> list[Group]:
    """The groups without keys of the last `floor` seconds, the oldest first."""
    old = [group for group in groups if group.closed <= now - floor]
    return sorted(old, key=lambda group: (group.closed, group.lease))


def surplus(groups: Iterable[Group], bound: Bound, now: float) -> list[Group]:
    """The oldest groups, as many as must go to keep a bound."""
    groups = list(groups)
    have = kept(groups)
    keys, size = have.keys - bound.keys, have.bytes - bound.bytes
    found: list[Group] = []
    for group in removable(groups, bound.floor, now):
        if keys <= 0 and size <= 0:
            break
        keys -= group.keys
        size -= group.bytes
        found.append(group)
    return found
