"""The journal of a partition in mode `sea`: what was done there, for whoever owns it next.

An entry is written when the switches have acknowledged a slice, under the owner's lock, and only
then dispatchers are told. What a partition has of a record is what the last entry says that names
it; if none does, it is what the settled record says. So an entry may be dropped when none of its
records has an operation under way, or when later entries name them; others are written once more.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec import Struct, msgpack

from configurators.store.documents import decode_record
from configurators.store.etcd.client import Delete, Etcd, Get, Op, Put, StoreError
from configurators.store.keys import CUTS, journal_of, record_key
from configurators.store.locks import Lock
from configurators.streams.messages import Task
from sdn.fence import StaleEpoch

log = logging.getLogger(__name__)

KEPT = 64  # entries that are never dropped: others may have to catch up, and late tasks come
DROPPED_AT_ONCE = 100
_PER_ENTRY = 1 << 19  # bytes; etcd takes a little more than a megabyte at once
_RETRY = 0.2

_encoder = msgpack.Encoder()
_tasks = msgpack.Decoder(list[Task])


class Mark(Struct, frozen=True, array_like=True):
    """What an owner leaves who releases a partition with nothing under way."""

    epoch: int
    network: int  # the revision of the network that its entries are for

    def encode(self) -> bytes:
        """The bytes to be stored."""
        return _encoder.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> "Mark":
        """The opposite."""
        return msgpack.decode(data, type=cls)


class Read(NamedTuple):
    """What a journal says behind a place: the last task of each id in order, and the new place.

    If it does not reach back to that place, `gap` is set, and it is about the rest only.
    """

    tasks: list[Task]
    place: str
    gap: bool


class Journal:
    """A partition's journal, written by the owner of its lock.

    `place` is the last entry that the owner has taken up or written.
    """

    def __init__(self, etcd: Etcd, lock: Lock, place: str = "") -> None:
        self.place = place
        self._etcd = etcd
        self._lock = lock
        self._number = _number(place)  # of the last entry, counted over all owners
        self._dropped = 0  # the last number that was dropped
        self._writing = asyncio.Lock()

    @property
    def long(self) -> bool:
        """Whether it should be cut."""
        return self._number - self._dropped >= KEPT + DROPPED_AT_ONCE

    async def read(self) -> Read:
        """What was written behind `place`, which moves to the end. StaleEpoch if it is not ours."""
        prefix = journal_of(self._lock.partition)
        while True:
            try:
                found = await self._etcd.get(CUTS + self._lock.partition)
                page = await self._etcd.range(prefix, after=self.place or None)
                break
            except StoreError as error:
                await self._pause(f"the journal of {self._lock.partition} cannot be read: {error}")
        cut = found.value.decode() if found else ""
        gap = cut > self.place
        self._dropped = _number(cut)
        last: dict[str, Task] = {}
        for item in page.items:
            for task in _tasks.decode(item.value):
                last.pop(task.id, None)
                last[task.id] = task
        if page.items:
            self.place = page.items[-1].key
            self._number = _number(self.place)
        return Read(list(last.values()), self.place, gap)

    async def write(self, tasks: Sequence[Task]) -> None:
        """Keep what was done; StaleEpoch if the lock is not ours any more."""
        async with self._writing:
            for some in _portions(tasks):
                await self._commit([Put(self._next(), _encoder.encode(some))])

    async def cut(self) -> None:
        """Drop the oldest entries; StaleEpoch if the lock is not ours any more."""
        async with self._writing:
            await self._cut()

    async def _cut(self) -> None:
        prefix = journal_of(self._lock.partition)
        page = await self._etcd.range(prefix)
        oldest = page.items[: max(0, min(len(page.items) - KEPT, DROPPED_AT_ONCE))]
        if not oldest:
            return
        last: dict[str, Task] = {}
        for item in oldest:
            last.update((task.id, task) for task in _tasks.decode(item.value))
        for item in page.items[len(oldest) :]:
            for task in _tasks.decode(item.value):
                last.pop(task.id, None)
        still = [last[name] for name in await self._open(last)]
        carried = [Put(self._next(), _encoder.encode(some)) for some in _portions(still)]
        # What is said once more comes first: whoever reads in between finds it twice.
        for put in carried[1:]:
            await self._commit([put])
        ops: list[Op] = [Delete(item.key) for item in oldest]
        ops.append(Put(CUTS + self._lock.partition, oldest[-1].key.encode()))
        await self._commit([*carried[:1], *ops])
        self._dropped = _number(oldest[-1].key)

    async def _open(self, ids: Iterable[str]) -> list[str]:
        """Those that have an operation under way."""
        names = list(ids)
        found: list[str] = []
        for at in range(0, len(names), DROPPED_AT_ONCE):
            some = names[at : at + DROPPED_AT_ONCE]
            result = await self._etcd.transact([], [Get(record_key(name)) for name in some])
            for name, items in zip(some, result.gets, strict=True):
                if any(decode_record(item.value).open for item in items):
                    found.append(name)
        return found

    def _next(self) -> str:
        self._number += 1
        lock = self._lock
        self.place = f"{journal_of(lock.partition)}{lock.epoch:016x}.{self._number:08x}"
        return self.place

    async def _commit(self, ops: Sequence[Op]) -> None:
        """Carry out a transaction that can be repeated, as the owner of the lock."""
        while True:
            try:
                result = await self._etcd.transact([self._lock.holds], ops)
            except StoreError as error:
                await self._pause(f"{self._lock.partition} cannot be journaled: {error}")
                continue
            if not result.succeeded:
                raise StaleEpoch(f"the lock of {self._lock.partition} is somebody else's")
            return

    async def _pause(self, reason: str) -> None:
        if not self._lock.alive:
            raise StaleEpoch(f"the lock of {self._lock.partition} was lost")
        log.warning("%s", reason)
        await asyncio.sleep(_RETRY)


def _number(key: str) -> int:
    """The number of an entry."""
    return int(key.rpartition(".")[2], 16) if key else 0


def _portions(tasks: Iterable[Task]) -> Iterable[list[Task]]:
    """Tasks in entries of a bounded size."""
    portion: list[Task] = []
    size = 0
    for task in tasks:
        length = 100 + len(task.regions) + len(task.edge)
        if portion and size + length > _PER_ENTRY:
            yield portion
            portion, size = [], 0
        portion.append(task)
        size += length
    if portion:
        yield portion
