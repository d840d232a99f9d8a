"""The log of a partition in mode `sea`: what was done there, for the next owner.

The owner writes an entry when the switches have acknowledged a slice. It writes under its lock, and
replies to dispatchers only afterwards. What a partition has of a record is what the last entry says
that names the record; if no entry names it, it is what the settled record says. So an entry may be
dropped when none of its records has an operation in progress, or when later entries name these
records. What cannot be dropped is written again at the end of the log.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec import Struct, msgpack
from msgspec.structs import replace

from configurators.ownership.log_commits import LogCommits
from configurators.store.documents import BadDocument, decode_record
from configurators.store.etcd.client import Delete, Etcd, Get, Op, Put, Stored, StoreError
from configurators.store.keys import CUTS, journal_of, record_key
from configurators.store.locks import Lock
from configurators.streams.messages import Task
from sdn.fence import StaleEpoch

log = logging.getLogger(__name__)

_PER_ENTRY = 1 << 19  # bytes; etcd takes a little more than a megabyte at once
_RETRY = 0.2  # seconds

_encoder = msgpack.Encoder()
_tasks = msgpack.Decoder(list[Task])


class LogOptions(Struct, frozen=True):
    """How many entries a log keeps."""

    kept: int = 64  # the newest entries, never dropped: replicas catch up from them
    dropped_at_once: int = 100


class CleanMark(Struct, frozen=True, array_like=True):
    """What an owner leaves that releases a partition while nothing is in progress."""

    epoch: int
    network: int  # the revision of the network that the partition's entries are for
    map_number: int = 0  # of the partition map: a leaf may have gone and come back since

    def encode(self) -> bytes:
        """The bytes to be stored."""
        return _encoder.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> "CleanMark":
        """The mark that was stored as these bytes."""
        return msgpack.decode(data, type=cls)


class LoggedTasks(NamedTuple):
    """The last task of each id behind a position of the log, in order.

    If entries behind that position were dropped, `gap` is set, and the tasks are incomplete.
    """

    tasks: list[Task]
    gap: bool


class PartitionLog:
    """A partition's log, written by the holder of its lock.

    `commits` are shared by the logs of all partitions. `position` is the key of the last entry that
    the holder has read or written.
    """

    def __init__(
        self,
        etcd: Etcd,
        commits: LogCommits,
        lock: Lock,
        options: LogOptions,
        position: str = "",
    ) -> None:
        self.position = position
        self._etcd = etcd
        self._commits = commits
        self._lock = lock
        self._options = options
        self._number = _number(position)  # of the last entry, counted over all owners
        self._dropped = 0  # the last number that was dropped
        self._writing = asyncio.Lock()

    @property
    def needs_cut(self) -> bool:
        """Whether enough entries can be dropped for `cut` to be worth it."""
        options = self._options
        return self._number - self._dropped >= options.kept + options.dropped_at_once

    async def read(self) -> LoggedTasks:
        """The tasks behind `position`, which moves to the end. StaleEpoch if the lock is lost."""
        prefix = journal_of(self._lock.partition)
        while True:
            try:
                found = await self._etcd.get(CUTS + self._lock.partition)
                page = await self._etcd.range(prefix, after=self.position or None)
                break
            except StoreError as error:
                await self._pause(f"the log of {self._lock.partition} cannot be read: {error}")
        cut = found.value.decode() if found else ""
        gap = cut > self.position
        self._dropped = _number(cut)
        last: dict[str, Task] = {}
        for item in page.items:
            for task in _tasks.decode(item.value):
                last.pop(task.id, None)
                last[task.id] = task
        if page.items:
            self.position = page.items[-1].key
            self._number = _number(self.position)
        return LoggedTasks(list(last.values()), gap)

    async def write(self, tasks: Sequence[Task]) -> None:
        """Append tasks that were carried out; StaleEpoch if the lock is lost."""
        async with self._writing:
            for some in _portions(map(_without_trace, tasks)):
                await self._commit([Put(self._next_key(), _encoder.encode(some))])

    async def cut(self) -> None:
        """Drop the oldest entries; StaleEpoch if the lock is lost."""
        async with self._writing:
            await self._cut()

    async def _cut(self) -> None:
        prefix, options = journal_of(self._lock.partition), self._options
        page = await self._etcd.range(prefix)
        most = min(len(page.items) - options.kept, options.dropped_at_once)
        oldest = page.items[: max(0, most)]
        if not oldest:
            return
        last: dict[str, Task] = {}
        for item in oldest:
            last.update((task.id, task) for task in _tasks.decode(item.value))
        for item in page.items[len(oldest) :]:
            for task in _tasks.decode(item.value):
                last.pop(task.id, None)
        still_needed = [last[name] for name in await self._open(last)]
        carried = [Put(self._next_key(), _encoder.encode(some)) for some in _portions(still_needed)]
        # Write these first: a reader in between finds the tasks twice, never not at all.
        for put in carried[1:]:
            await self._commit([put])
        ops: list[Op] = [Delete(item.key) for item in oldest]
        ops.append(Put(CUTS + self._lock.partition, oldest[-1].key.encode()))
        await self._commit([*carried[:1], *ops])
        self._dropped = _number(oldest[-1].key)

    async def _open(self, ids: Iterable[str]) -> list[str]:
        """The ids of records that have an operation in progress."""
        names, at_once = list(ids), self._options.dropped_at_once
        found: list[str] = []
        for at in range(0, len(names), at_once):
            some = names[at : at + at_once]
            result = await self._etcd.transact([], [Get(record_key(name)) for name in some])
            for name, items in zip(some, result.gets, strict=True):
                if any(_is_open(item) for item in items):
                    found.append(name)
        return found

    def _next_key(self) -> str:
        """The key of the next entry, which is the position from now on."""
        self._number += 1
        lock = self._lock
        self.position = f"{journal_of(lock.partition)}{lock.epoch:016x}.{self._number:08x}"
        return self.position

    async def _commit(self, ops: Sequence[Op]) -> None:
        """Carry out a transaction that can be repeated, as the holder of the lock."""
        while True:
            try:
                written = await self._commits.commit(self._lock, ops)
            except StoreError as error:
                await self._pause(f"the log of {self._lock.partition} cannot be written: {error}")
                continue
            if not written:
                raise StaleEpoch(f"another configurator has the lock of {self._lock.partition}")
            return

    async def _pause(self, reason: str) -> None:
        if not self._lock.alive:
            raise StaleEpoch(f"the lock of {self._lock.partition} was lost")
        log.warning("%s", reason)
        await asyncio.sleep(_RETRY)


def _is_open(stored: Stored) -> bool:
    """Whether a record has an operation in progress; also if it cannot be read."""
    try:
        return decode_record(stored.value).open
    except BadDocument as error:
        log.error("%s cannot be read: %s", stored.key, error)
        return True


def _without_trace(task: Task) -> Task:
    """A task as it is logged: its readers are not part of the request's trace."""
    return replace(task, trace=b"") if task.trace else task


def _number(key: str) -> int:
    """The number in the key of an entry."""
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
