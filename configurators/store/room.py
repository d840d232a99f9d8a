"""How full etcd's database is, and what to do about it. Pure.

etcd's quota limits the size of the database file. What compaction frees stays in the file and is
used again; only defragmentation makes the file smaller, and it blocks the member meanwhile. At the
quota etcd raises an alarm, and accepts only deletions until the alarm is disarmed.
"""

from typing import Literal

from msgspec import Struct

_MIB = 1 << 20

WARN = 0.7
"""The share of the quota from which operators are warned."""

RELIEVE = 0.85
"""The share in use from which all that may be removed is removed."""

REFUSE = 0.95
"""The share in use from which new requests are refused: the rest is for the removal of records."""

DISARM = 0.98
"""The share of the quota below which it is of use to disarm the alarm."""

_ROUTINE_FREE = 256 * _MIB
_ROUTINE_MOST = 512 * _MIB  # in use: a member is blocked for a few seconds at most
_ROUTINE_EVERY = 3_600.0  # seconds
_URGENT_EVERY = 600.0
_FREE_NEAR_QUOTA, _FREE_AT_LAST = 0.25, 0.1  # of the file


class Room(Struct, frozen=True):
    """How full the fullest member is, in bytes; `full` if etcd accepts no more writes."""

    size: int
    in_use: int
    full: bool

    @property
    def free(self) -> int:
        """What defragmentation can give back."""
        return max(0, self.size - self.in_use)


Level = Literal["normal", "high", "refusing", "full"]
"""`high`: operators are warned; `refusing`: new requests are refused; `full`: the alarm is on."""


def level(room: Room, quota: int) -> Level:
    """How serious it is."""
    if room.full:
        return "full"
    if room.in_use >= REFUSE * quota:
        return "refusing"
    return "high" if room.size >= WARN * quota else "normal"


def defragmentation_pays(room: Room, quota: int, since_last: float) -> bool:
    """Whether to block the members for it, so many seconds after the last time.

    It pays if much is free and little has to be copied, or if the file comes near its quota and a
    good part of it is free. Just below the quota less is enough: etcd raises the alarm by the size
    of the file, whatever is free in it.
    """
    least = _FREE_AT_LAST if room.size >= REFUSE * quota else _FREE_NEAR_QUOTA
    if room.size >= WARN * quota and room.free >= least * room.size:
        return since_last >= _URGENT_EVERY
    return (
        room.free >= max(_ROUTINE_FREE, room.size // 2)
        and room.in_use <= _ROUTINE_MOST
        and since_last >= _ROUTINE_EVERY
    )


def describe(room: Room, quota: int) -> str:
    """How full it is, in words."""
    return (
        f"{_mib(room.size)} of the quota of {_mib(quota)} ({room.size / quota:.0%}),"
        f" {_mib(room.in_use)} of it in use"
    )


def _mib(size: int) -> str:
    return f"{size / _MIB:,.0f} MiB"


class History:
    """Which history of etcd may be dropped: what is older than so many seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._seen: list[tuple[float, int]] = []  # when, and the newest revision then
        self._dropped = 0

    def note(self, now: float, newest: int) -> int | None:
        """Note the newest revision; the revision before which history may be dropped, if any."""
        self._seen.append((now, newest))
        old = [revision for at, revision in self._seen if at <= now - self._seconds]
        if not old:
            return None
        self._seen = self._seen[len(old) - 1 :]
        if old[-1] <= self._dropped:
            return None
        self._dropped = old[-1]
        return self._dropped
