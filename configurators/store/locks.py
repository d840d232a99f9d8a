"""Locks on partitions: each process that has or wants a lock has a leased key; the oldest wins.

The revision at which a key was created is the epoch. It grows from owner to owner, fences compare
it, and every transaction of an owner compares that its key still exists. Keys are never put twice.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import NamedTuple, Self

from configurators.store.etcd.client import (
    Compare,
    Delete,
    Etcd,
    Get,
    Lease,
    LeaseGone,
    Op,
    Put,
    Stored,
    StoreError,
    none_newer,
    unchanged,
)
from configurators.store.keys import CLEAN, LOCKS, locks_of
from configurators.store.mirror import Snapshot, Update, follow
from dzflow.aio import BackgroundTasks

log = logging.getLogger(__name__)

_RETRY = 0.2
_AT_ONCE = 100  # keys in one transaction


class Claim(NamedTuple):
    """The key of a process that has or wants a lock; the claim with the lowest epoch has it."""

    epoch: int
    key: str
    who: str


class LockTable:
    """Which process has each lock, and which ones wait for it, as far as is known."""

    def __init__(self) -> None:
        self.revision = 0
        self._claims: dict[str, list[Claim]] = {}  # by partition, lowest epoch first

    def apply(self, update: Update) -> set[str]:
        """Apply an update of all locks; returns the partitions that it concerns."""
        changed: set[str] = set()
        if isinstance(update, Snapshot):
            changed |= self._claims.keys()
            self._claims.clear()
        for change in update.changes:
            who = None if change.value is None else change.value.decode()
            changed.add(self.set(change.name, who, change.revision))
        self.revision = update.revision
        return changed

    def set(self, name: str, who: str | None, revision: int) -> str:
        """Put the claim of a process under a key (without `LOCKS`), or remove it (None).

        Returns the partition.
        """
        key = LOCKS + name
        partition = name.rpartition("/")[0]
        claims = [c for c in self._claims.pop(partition, ()) if c.key != key]
        if who is not None:
            claims.append(Claim(revision, key, who))
            claims.sort()
        if claims:
            self._claims[partition] = claims
        return partition

    def partitions(self) -> list[str]:
        """The partitions that a process has locked, or wants to."""
        return list(self._claims)

    def claims(self, partition: str) -> list[Claim]:
        """All claims to a lock, in the order in which they get it."""
        return self._claims.get(partition, [])

    def holder(self, partition: str) -> Claim | None:
        """The claim that has a lock, if any."""
        claims = self._claims.get(partition)
        return claims[0] if claims else None

    def holders(self) -> dict[str, Claim]:
        """The claim that has each lock, by partition."""
        return {partition: claims[0] for partition, claims in self._claims.items()}


class Lock:
    """A lock that this process has; `mark` is what the previous owner left on release, if any."""

    def __init__(self, partition: str, epoch: int, key: str, lease: Lease) -> None:
        self.partition = partition
        self.epoch = epoch
        self.key = key
        self.mark: bytes | None = None
        self._lease = lease

    @property
    def alive(self) -> bool:
        """Whether this process has it for certain, unless the key was deleted by hand."""
        return self._lease.alive

    @property
    def holds(self) -> Compare:
        """The comparison of every transaction that only the owner may carry out."""
        return unchanged(self.key, self.epoch)


class Locks:
    """The locks of one process, all on one lease; use as an async context manager.

    `table` follows all locks. `on_change` is called with the partitions that changed, `on_lost`
    when the lease is lost, and all locks with it; a new lease follows.
    """

    def __init__(
        self,
        etcd: Etcd,
        who: str,
        ttl: int,
        on_change: Callable[[set[str]], None] = lambda _: None,
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        self.table = LockTable()
        self._etcd = etcd
        self._who = who
        self._ttl = ttl
        self._on_change = on_change
        self._on_lost = on_lost
        self._lease: Lease | None = None
        self._leased = asyncio.Event()
        self._known = asyncio.Event()
        self._changed = asyncio.Event()
        self._tasks = BackgroundTasks()

    async def __aenter__(self) -> Self:
        self._tasks.spawn(self._keep_lease(), "keep the lease of locks")
        self._tasks.spawn(self._follow(), "follow locks")
        await self._known.wait()
        await self._leased.wait()
        await self._drop_older()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        await self._tasks.cancel()

    async def try_lock(self, partition: str) -> Lock | None:
        """Lock a partition; None if another process has it or waits for it."""
        lease = await self._current()
        key = self._key(partition, lease)
        mark = CLEAN + partition
        try:
            result = await self._etcd.transact(
                [none_newer(locks_of(partition), 0)],
                [Get(mark), Put(key, self._who.encode(), lease.id), Delete(mark)],
                [Get(locks_of(partition), prefix=True)],
            )
        except StoreError as error:
            # The lock may have been taken: the next attempt finds that out.
            log.warning("cannot lock partition %s: %s", partition, error)
            await asyncio.sleep(_RETRY)
            return None
        if result.succeeded:
            lock = Lock(partition, result.revision, key, lease)
            lock.mark = _value(result.gets[0])
            return lock
        first = min(result.gets[0], key=lambda item: item.created, default=None)
        if first and first.key == key:
            return await self._begin(Lock(partition, first.created, key, lease))
        return None

    async def wait(self, partition: str, wanted: Callable[[], bool]) -> Lock | None:
        """Queue for a lock until it is this process's turn; None if it is no longer `wanted`."""
        lease = await self._current()
        key = self._key(partition, lease)
        lock = await self._queue(partition, key, lease)
        if lock is None:
            await asyncio.sleep(_RETRY)  # until there is a new lease
            return None
        ours: Lock | None = None
        try:
            while lease.alive and wanted():
                first = self.table.holder(partition)
                if first and first.key == key and self.table.revision >= lock.epoch:
                    ours = await self._begin(lock)
                    break
                await self._changed.wait()
            return ours
        finally:
            if ours is None:
                await self.release(lock, None)

    async def release(self, lock: Lock, mark: bytes | None) -> None:
        """Release a lock; leave a mark for the next owner if nothing was in progress."""
        ops: list[Op] = [Delete(lock.key)]
        if mark is not None:
            ops.append(Put(CLEAN + lock.partition, mark))
        while lock.alive:
            try:
                await self._etcd.transact([lock.holds], ops)
            except StoreError as error:
                log.warning("cannot release the lock of %s yet: %s", lock.partition, error)
                await asyncio.sleep(_RETRY)
            else:
                return

    def free(self, partition: str) -> bool:
        """Whether no other process has a lock, as far as is known."""
        first = self.table.holder(partition)
        return first is None or bool(self._lease and first.key == self._key(partition, self._lease))

    def look_again(self) -> None:
        """Have all calls of `wait` check again whether they are still wanted."""
        self._changed.set()
        self._changed = asyncio.Event()

    # Claims

    async def _drop_older(self) -> None:
        """Delete the claims of an earlier process with the same name, before its lease ends.

        If that process is still alive, its transactions fail, because they compare its keys.
        """
        lease = await self._current()
        own = f"/{lease.id:x}"
        older = [
            claim
            for partition in self.table.partitions()
            for claim in self.table.claims(partition)
            if claim.who == self._who and not claim.key.endswith(own)
        ]
        for at in range(0, len(older), _AT_ONCE):
            deletes = [Delete(claim.key) for claim in older[at : at + _AT_ONCE]]
            try:
                await self._etcd.transact([], deletes)
            except StoreError as error:
                log.warning("the locks of an earlier %s are left to expire: %s", self._who, error)
                return

    def _key(self, partition: str, lease: Lease) -> str:
        return f"{locks_of(partition)}{lease.id:x}"

    async def _current(self) -> Lease:
        await self._leased.wait()
        assert self._lease
        return self._lease

    async def _queue(self, partition: str, key: str, lease: Lease) -> Lock | None:
        """Put the key behind all others, unless it exists already."""
        while lease.alive:
            try:
                put = Put(key, self._who.encode(), lease.id)
                result = await self._etcd.transact([Compare(key, 0)], [put], [Get(key)])
            except LeaseGone:
                return None
            except StoreError as error:
                log.warning("cannot queue for the lock of %s: %s", partition, error)
                await asyncio.sleep(_RETRY)
                continue
            epoch = result.revision if result.succeeded else result.gets[0][0].created
            return Lock(partition, epoch, key, lease)
        return None

    async def _begin(self, lock: Lock) -> Lock | None:
        """Read and delete the mark of the previous owner: the lock is this process's now."""
        mark = CLEAN + lock.partition
        while lock.alive:
            try:
                result = await self._etcd.transact([lock.holds], [Get(mark), Delete(mark)])
            except StoreError as error:
                # If it was carried out, the mark is lost: the lock counts as not released cleanly.
                log.warning("cannot read the mark of the lock of %s: %s", lock.partition, error)
                await asyncio.sleep(_RETRY)
                continue
            if not result.succeeded:
                return None
            lock.mark = _value(result.gets[0])
            return lock
        return None

    # In the background

    async def _keep_lease(self) -> None:
        """Keep a lease, and replace it when it is lost."""
        while True:
            try:
                async with self._etcd.lease(self._ttl) as lease:
                    self._lease = lease
                    self._leased.set()
                    await lease.lost.wait()
                    self._leased.clear()
                    log.warning("the locks of %s are lost: its lease was not renewed", self._who)
                    self._on_lost()
                    self.look_again()
            except StoreError as error:
                log.warning("cannot get a lease for locks, retrying: %s", error)
            await asyncio.sleep(_RETRY)

    async def _follow(self) -> None:
        async for update in follow(self._etcd, LOCKS):
            self._apply(update)
            self._known.set()

    def _apply(self, update: Update) -> None:
        changed = self.table.apply(update)
        self.look_again()
        if changed:
            self._on_change(changed)


def _value(found: Iterable[Stored]) -> bytes | None:
    return next((item.value for item in found), None)
