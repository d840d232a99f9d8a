"""A small model of etcd (revisions, transactions, watches, leases), and a client of it."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from itertools import count
from types import TracebackType
from typing import Any, Self

from msgspec.structs import replace

from configurators.store.etcd.client import (
    Access,
    Compacted,
    Compare,
    Delete,
    Etcd,
    KeyPage,
    Lease,
    LeaseGone,
    Op,
    Put,
    Stored,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    TxnResult,
    WatchBatch,
    WatchEvent,
)
from configurators.store.etcd.maintenance import Maintenance, MemberState
from tests.simulation.loop import NOWHERE, Node, VirtualLoop, this_node

_TIMEOUT = 5.0  # after which a call that etcd does not answer has failed


class Store:
    """The state of etcd. Each call is carried out at one moment, in the order of arrival."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.random = loop.random
        self.revision = 1
        self.keys: dict[str, Stored] = {}
        self.log: list[WatchEvent] = []
        self.down = False
        self.flaky = 0.0  # the probability that a call fails, carried out or not
        self.slow = 1.0
        self.on_change: Callable[[WatchEvent], None] = lambda _: None
        self._leases: dict[int, tuple[float, float]] = {}  # time to live, end
        self._numbers = count(1)
        self._watches: list[_Watch] = []
        self._compacted = 0  # changes up to this revision are not kept

    def delay(self) -> float:
        """How long a message to or from etcd takes."""
        draw = self.random.random()
        return (0.0002 + draw * 0.002 + (0.05 if draw > 0.98 else 0.0)) * self.slow

    # Calls

    def get(self, key: str) -> Stored | None:
        """A key with its value, if it exists."""
        return self.keys.get(key)

    def under(self, prefix: str) -> list[Stored]:
        """All keys that begin with a prefix, in order."""
        return [self.keys[key] for key in sorted(self.keys) if key.startswith(prefix)]

    def range(self, prefix: str, after: str | None, limit: int) -> KeyPage:
        """Keys in order, at most `limit` after a key."""
        items = [item for item in self.under(prefix) if after is None or item.key > after]
        more = bool(limit) and len(items) > limit
        return KeyPage(items[:limit] if limit else items, self.revision, more)

    def transact(
        self, compares: Sequence[Compare], then: Sequence[Op], otherwise: Sequence[Op]
    ) -> TxnResult:
        """Carry out a transaction."""
        succeeded = all(map(self._holds, compares))
        ops = then if succeeded else otherwise
        puts = [op for op in ops if isinstance(op, Put)]
        if len({op.key for op in puts}) < len(puts):
            raise StoreRefused("duplicate key given in txn request")
        if any(op.lease and op.lease not in self._leases for op in puts):
            raise LeaseGone("the lease has expired or was revoked")
        changes: list[WatchEvent] = []
        gets: list[list[Stored]] = []
        revision = self.revision + 1
        for op in ops:
            if isinstance(op, Put):
                before = self.keys.get(op.key)
                created = before.created if before else revision
                self.keys[op.key] = Stored(op.key, op.value, revision, created, op.lease)
                changes.append(WatchEvent(op.key, op.value, revision))
            elif isinstance(op, Delete):
                gone = self.under(op.key) if op.prefix else [self.keys.get(op.key)]
                changes += [self._remove(item.key, revision) for item in gone if item]
            else:
                found = self.under(op.key) if op.prefix else [self.keys.get(op.key)]
                gets.append([item for item in found if item])
        self._publish(changes, revision)
        return TxnResult(succeeded, self.revision, gets)

    def grant(self, ttl: float) -> int:
        """A new lease."""
        lease = next(self._numbers)
        self._leases[lease] = ttl, self.loop.now + ttl
        self.loop.at(self.loop.now + ttl, NOWHERE, self._check_expiry, lease)
        return lease

    def renew(self, lease: int) -> float:
        """Renew a lease; returns for how long."""
        if lease not in self._leases:
            raise LeaseGone("the lease has expired or was revoked")
        ttl = self._leases[lease][0]
        self._leases[lease] = ttl, self.loop.now + ttl
        return ttl

    def revoke(self, lease: int) -> None:
        """End a lease."""
        if self._leases.pop(lease, None):
            revision = self.revision + 1
            gone = [key for key, item in self.keys.items() if item.lease == lease]
            self._publish([self._remove(key, revision) for key in gone], revision)

    def _check_expiry(self, lease: int) -> None:
        if lease in self._leases:
            end = self._leases[lease][1]
            if self.down:
                # Processes that cannot renew while etcd is away get the full time again.
                end = self.loop.now + self._leases[lease][0]
                self._leases[lease] = self._leases[lease][0], end
            if end <= self.loop.now:
                self.revoke(lease)
            else:
                self.loop.at(end, NOWHERE, self._check_expiry, lease)

    def _remove(self, key: str, revision: int) -> WatchEvent:
        del self.keys[key]
        return WatchEvent(key, None, revision)

    def _holds(self, compare: Compare) -> bool:
        if compare.newest:
            return all(item.revision <= compare.revision for item in self.under(compare.key))
        item = self.keys.get(compare.key)
        return (item.revision if item else 0) == compare.revision

    # Watches

    def _publish(self, changes: list[WatchEvent], revision: int) -> None:
        if not changes:
            return
        self.revision = revision
        self.log += changes
        for change in changes:
            self.on_change(change)
        for watch in self._watches:
            watch.note(changes)

    def watch(self, node: Node, prefix: str, after: int) -> "_Watch":
        """Send the changes under a prefix to a process."""
        self._watches = [watch for watch in self._watches if not watch.over]
        watch = _Watch(self, node, prefix)
        if after < self._compacted:
            watch.over = watch.compacted = True
            return watch
        self._watches.append(watch)
        watch.note([change for change in self.log if change.revision > after])
        return watch

    def compact(self) -> None:
        """Drop the history. Processes that have not received all of it must read the keys again.

        Some have lost their connection at this moment, and missed changes as well.
        """
        self._compacted = self.revision
        self.log.clear()
        for watch in self._watches:
            if watch.behind or self.random.random() < 0.5:
                watch.break_off()


class _Watch:
    """A watch of one process: the changes on their way to it, in order."""

    def __init__(self, store: Store, node: Node, prefix: str) -> None:
        self.queue: list[WatchBatch] = []
        self.come = asyncio.Event()
        self.over = False
        self.compacted = False
        self._store = store
        self._node = node
        self._prefix = prefix
        self._last = 0.0
        self._held: list[WatchBatch] = []

    @property
    def behind(self) -> bool:
        """Whether changes are on their way."""
        return self._last > self._store.loop.now or bool(self._held)

    def break_off(self) -> None:
        """End the watch: the changes on their way are lost, and etcd has compacted them."""
        if not self.over:
            self.over = True
            loop = self._store.loop
            loop.at(loop.now + self._store.delay(), self._node.context, self._end)

    def _end(self) -> None:
        self._held.clear()
        self.compacted = True
        self.come.set()

    def note(self, changes: list[WatchEvent]) -> None:
        """Send the changes that the watch is about."""
        mine = [change for change in changes if change.key.startswith(self._prefix)]
        if mine and not self.over and not self._node.dead:
            loop = self._store.loop
            self._last = max(
                self._last + 1e-6, loop.now + self._store.delay() + self._node.hears_late
            )
            batch = WatchBatch(mine, mine[-1].revision)
            loop.at(self._last, self._node.context, self._arrive, batch)

    def _arrive(self, batch: WatchBatch) -> None:
        if self.over:
            return
        self._held.append(batch)
        if len(self._held) == 1:
            self._deliver()

    def _deliver(self) -> None:
        """Deliver the changes that have arrived."""
        store, node = self._store, self._node
        loop = store.loop
        if self.over:
            return
        if store.down or node.woke == loop.now:
            # A process that wakes up first continues its own work, and hears of others later.
            pause = 0.1 if store.down else store.random.uniform(0.001, 0.05)
            loop.at(loop.now + pause, node.context, self._deliver)
            return
        self.queue += self._held
        self._held.clear()
        self.come.set()


class SimEtcd(Etcd):
    """A client of the model, for the process that makes it."""

    def __init__(self, access: Access, store: Store) -> None:
        super().__init__(access)
        self.store = store
        self._node = this_node()

    async def __aenter__(self) -> Self:
        await self.check()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """There is nothing to close."""

    async def check(self) -> None:
        await self.get("check")

    async def get(self, key: str) -> Stored | None:
        found: Stored | None = await self._call(False, self.store.get, key)
        return found

    async def range(
        self,
        prefix: str,
        after: str | None = None,
        limit: int = 0,
        revision: int = 0,
        *,
        values: bool = True,
    ) -> KeyPage:
        assert not revision
        page: KeyPage = await self._call(False, self.store.range, prefix, after, limit)
        if not values:
            items = [replace(item, value=b"") for item in page.items]
            return replace(page, items=items)
        return page

    async def transact(
        self, compares: Sequence[Compare], then: Sequence[Op], otherwise: Sequence[Op] = ()
    ) -> TxnResult:
        changes = any(isinstance(op, Put | Delete) for op in (*then, *otherwise))
        given = list(compares), list(then), list(otherwise)
        result: TxnResult = await self._call(changes, self.store.transact, *given)
        return result

    async def put(self, key: str, value: bytes, lease: int = 0) -> int:
        return (await self.transact([], [Put(key, value, lease)])).revision

    async def delete(self, key: str, prefix: bool = False) -> int:
        await self.transact([], [Delete(key, prefix)])
        return 1

    async def watch(self, prefix: str, after: int) -> AsyncGenerator[WatchBatch, None]:
        watch = self.store.watch(self._node, prefix, after)
        try:
            while True:
                while watch.queue:
                    yield watch.queue.pop(0)
                if watch.compacted:
                    raise Compacted("etcd has compacted what comes next")
                watch.come.clear()
                await watch.come.wait()
        finally:
            watch.over = True

    def lease(self, ttl: int) -> "SimLease":
        return SimLease(self, ttl)

    async def grant(self, ttl: int) -> int:
        lease: int = await self._call(False, self.store.grant, ttl)
        return lease

    async def renew(self, lease: int) -> float:
        left: float = await self._call(False, self.store.renew, lease)
        return left

    async def revoke(self, lease: int) -> None:
        await self._call(False, self.store.revoke, lease)

    @property
    def maintenance(self) -> "SimMaintenance":
        return SimMaintenance(self)

    async def look(self) -> int:
        """The newest revision."""
        revision: int = await self._call(False, lambda: self.store.revision)
        return revision

    async def _call(self, changes: bool, call: Callable[..., Any], *args: Any) -> Any:
        store, loop = self.store, self.store.loop
        answer: asyncio.Future[Any] = loop.create_future()
        context = self._node.context

        def arrive() -> None:
            draw = store.random.random() if store.flaky else 1.0
            if store.down or draw < store.flaky / 2:
                loop.at(loop.now + 0.5, context, fail, False)
                return
            try:
                result = call(*args)
            except StoreError as error:
                loop.at(loop.now + store.delay(), context, _settle, answer, None, error)
                return
            if draw < store.flaky:
                loop.at(loop.now + 0.5, context, fail, changes)
            else:
                loop.at(loop.now + store.delay(), context, _settle, answer, result, None)

        def fail(maybe: bool) -> None:
            _settle(answer, None, StoreUnavailable("etcd does not answer", maybe or changes))

        loop.at(loop.now + store.delay(), NOWHERE, arrive)
        return await answer


class SimMaintenance(Maintenance):
    """The maintenance of the model, which is never full; the scenario compacts it."""

    def __init__(self, etcd: SimEtcd) -> None:
        self._etcd = etcd

    async def revision(self) -> int:
        return await self._etcd.look()

    async def states(self) -> dict[str, MemberState | None]:
        await self._etcd.look()
        return {"etcd": MemberState("3.5", 0, 0, leader=True)}

    async def compact(self, revision: int, physical: bool = False) -> None:
        """Nothing."""


def _settle(answer: "asyncio.Future[Any]", result: Any, error: Exception | None) -> None:
    if answer.done():
        return
    if error:
        answer.set_exception(error)
    else:
        answer.set_result(result)


class SimLease(Lease):
    """A lease of the model that is kept alive."""

    def __init__(self, etcd: SimEtcd, ttl: int) -> None:
        self.id = 0
        self.lost = asyncio.Event()
        self._etcd = etcd
        self._ttl = ttl
        self._until = 0.0
        self._task: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        """Whether keys that hang on it exist for certain."""
        return not self.lost.is_set() and self._etcd.store.loop.now < self._until

    async def __aenter__(self) -> Self:
        loop = self._etcd.store.loop
        began = loop.now
        self.id = await self._etcd.grant(self._ttl)
        self._until = began + self._ttl
        self._task = asyncio.create_task(self._keep())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._task
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self.lost.set()
        try:
            await self._etcd.revoke(self.id)
        except StoreUnavailable:
            return  # it will expire

    async def _keep(self) -> None:
        loop = self._etcd.store.loop
        while True:
            await asyncio.sleep(min(self._ttl / 3, max(0.0, self._until - loop.now)))
            began = loop.now
            if began >= self._until:
                break
            try:
                async with asyncio.timeout(self._until - began):
                    self._until = began + await self._etcd.renew(self.id)
            except (StoreUnavailable, TimeoutError):
                continue
            except LeaseGone:
                break
        self.lost.set()
