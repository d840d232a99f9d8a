"""Decides for which locks of other configurators this one waits (mode `sea`). Pure.

A lock stays where it is warm: at the configurator that has worked on the partition last, and has it
loaded. Passing it on costs exchanges with etcd and with southbound processes, during which nobody
works on the partition. So a configurator wants a lock only if the partition's tasks wait for longer
than passing costs, much longer than its own, and if that can help.
"""

import math
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple
from zlib import crc32

_WORTH = 2.0  # times the price of passing a lock: so long tasks must have waited
_LESS_LOADED = 0.5  # of the wait there is the most that tasks may wait here
_ALONE = 4.0  # times the bound: so long no task of a holder's only late partition was taken
_MEMORY = 1.0  # seconds over which the waits of tasks here are remembered
_NEWEST = 0.5  # the weight of the last price among those before it


class LatePartition(NamedTuple):
    """A partition with tasks on offer that another configurator has locked; times in seconds."""

    name: str
    holder: str
    waits: float  # for so long its oldest task has waited to be taken
    since_taken: float  # so long ago some of its tasks were last taken
    price: float  # for so long nobody works on it while its lock is passed on


def choose(
    partitions: Iterable[LatePartition], own_wait: float, patience: float, me: str
) -> str | None:
    """The partition whose lock to wait for, if there is one that is worth it.

    If only one partition of a holder is late, the holder is not overloaded: no other configurator
    would be faster, unless the holder does not take tasks at all. Configurators that choose at the
    same time choose different partitions, as far as possible.
    """
    late = [each for each in partitions if each.waits > _bound(each, patience)]
    holders = Counter(each.holder for each in late)
    worth = [
        each.name
        for each in late
        if own_wait <= _LESS_LOADED * each.waits
        and (holders[each.holder] > 1 or each.since_taken > _ALONE * _bound(each, patience))
    ]
    return min(worth, key=lambda name: crc32(f"{me} {name}".encode()), default=None)


def _bound(partition: LatePartition, patience: float) -> float:
    return max(patience, _WORTH * partition.price)


class OwnWait:
    """For how long tasks have waited here lately; the longest waits are forgotten slowly.

    Without memory, a configurator that has just taken all its tasks would seem to be idle.
    """

    def __init__(self) -> None:
        self._longest = 0.0
        self._at = 0.0

    def note(self, now: float, waits: float) -> float:
        """Note the longest wait of this moment; returns the longest one of late."""
        remembered = self._longest * math.exp((self._at - now) / _MEMORY)
        self._longest, self._at = max(waits, remembered), now
        return self._longest


class PassingPrices:
    """What it has cost this process to take locks over, with a replica of the partition or not."""

    def __init__(self) -> None:
        self._seconds: dict[bool, float] = {}

    def note(self, replica: bool, seconds: float) -> None:
        """Note how long it has taken from a lock to the first work under it."""
        before = self._seconds.get(replica, seconds)
        self._seconds[replica] = before + _NEWEST * (seconds - before)

    def expect(self, replica: bool) -> float:
        """The price to be expected; 0 if nothing is known."""
        return self._seconds.get(replica, 0.0)
