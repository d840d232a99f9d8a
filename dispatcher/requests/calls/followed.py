"""Follows records whose operations another dispatcher carries out, until they are settled.

One task reads all followed records together, less and less often. It does not watch them, because
each watch is a stream of its own to etcd: one per record would be thousands for a large batch, and
one for all records would bring every change of every record to each dispatcher, on the hot path.
The change feed (`reports/change_feed.py`) does watch all records, but only while it has readers.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from configurators.store.documents import BadDocument
from configurators.store.etcd.client import Etcd, StoreError
from configurators.store.model import Record
from dispatcher.errors import Unavailable
from dispatcher.requests.writing.stored_records import read_many
from dzflow.aio import BackgroundTasks, wait_until_set

_log = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0  # seconds between reads


class RecordFollower(Protocol):
    """Gets the present state of a record, again and again."""

    @property
    def over(self) -> bool:
        """Whether it no longer follows the record."""

    def is_now(self, record: Record) -> bool:
        """The record is like this now; True if that is what the follower has waited for."""

    def gone(self) -> None:
        """The record does not exist any more, and how it ended is forgotten."""


class FollowedRecords:
    """Tells followers of their records, until each has what it waits for."""

    def __init__(self, etcd: Etcd) -> None:
        self._etcd = etcd
        self._followers: dict[str, list[RecordFollower]] = {}
        self._waiters: set[_Waiter] = set()
        self._tasks = BackgroundTasks()
        self._reading = False
        self._joined = asyncio.Event()  # a follower has come
        self._closed = False

    async def close(self) -> None:
        """Stop following all records; a caller that waits for one gets `Unavailable`."""
        self._closed = True
        for waiter in self._waiters:
            waiter.gone()
        await self._tasks.cancel()

    def follow(self, id: str, follower: RecordFollower) -> None:
        """Tell a follower of a record from now on."""
        self._followers.setdefault(id, []).append(follower)
        self._joined.set()
        if not self._reading:
            self._reading = True
            self._tasks.spawn(self._read(), "follow records")

    def tell(self, record: Record) -> None:
        """Tell the followers of a record how it is now."""
        followers = self._followers.get(record.id)
        if followers:
            left = [follower for follower in followers if not follower.is_now(record)]
            self._keep(record.id, left)

    async def wait_until(self, id: str, holds: Callable[[Record], bool], seconds: float) -> None:
        """Wait until something holds for a record, it is gone, or so many seconds are over.

        Unavailable if following ends meanwhile.
        """
        waiter = _Waiter(holds)
        self._waiters.add(waiter)
        try:
            if not self._closed:
                self.follow(id, waiter)
                await waiter.wait(seconds)
        finally:
            self._waiters.discard(waiter)
        if self._closed:
            raise Unavailable("this API process is stopping; try again")

    def _keep(self, id: str, followers: list[RecordFollower]) -> None:
        if followers:
            self._followers[id] = followers
        else:
            self._followers.pop(id, None)

    async def _read(self) -> None:
        pause = _FIRST_PAUSE
        try:
            while self._followers:
                pause = min(2 * await self._rest(pause), _LONGEST_PAUSE)
                for id, followers in list(self._followers.items()):
                    self._keep(id, [follower for follower in followers if not follower.over])
                await self._read_once()
        finally:
            self._reading = False

    async def _rest(self, pause: float) -> float:
        """Let a pause pass, a short one if a follower comes meanwhile; returns its length."""
        clock = asyncio.get_running_loop().time
        until = clock() + pause
        while (left := until - clock()) > 0:
            if not await wait_until_set(self._joined, left):
                break
            self._joined.clear()
            pause = _FIRST_PAUSE
            until = min(until, clock() + pause)
        return pause

    async def _read_once(self) -> None:
        ids = list(self._followers)
        try:
            live = await read_many(self._etcd, ids)
            gone = [id for id in ids if id not in live]
            finished = await read_many(self._etcd, gone, finished=True)
        except (StoreError, BadDocument) as error:
            _log.warning("cannot read %d followed records: %s", len(ids), error)
            return
        for stored in (live | finished).values():
            self.tell(stored.record)
        for id in gone:
            if id not in finished:
                for follower in self._followers.pop(id, ()):
                    follower.gone()


class _Waiter:
    """Waits until something holds for a record."""

    def __init__(self, holds: Callable[[Record], bool]) -> None:
        self._holds = holds
        self._done = asyncio.Event()
        self.over = False

    async def wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._done.wait()
        except TimeoutError:
            pass
        finally:
            self.over = True

    def is_now(self, record: Record) -> bool:
        if not self._holds(record):
            return False
        self._done.set()
        return True

    def gone(self) -> None:
        self._done.set()
