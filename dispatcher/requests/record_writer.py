"""Writes of many callers in few transactions: one is gathered while others are under way.

Each write concerns one record, which must be as the writer knows it; some also need that nothing
has changed about their space (its guards). If a transaction is refused, its records are read to see
which of them are different, and the others are tried again.

Nothing is written while the dispatcher is not registered: when its registration ends, others look
once for what it has left, and must find all of it. If somebody has taken it away from one that is
alive, it registers again, and finds out from the records what others have done meanwhile.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

from configurators.state.spaces import SpaceView
from configurators.store.etcd.client import (
    Compare,
    Etcd,
    Get,
    LeaseGone,
    Op,
    Put,
    Stored,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    TxnResult,
)
from configurators.store.etcd.errors import AnswerTooLarge
from configurators.store.registration import Registration, Superseded
from configurators.store.upkeep import SharedLeases
from dispatcher.knowledge.catalogue import Catalogue

_log = logging.getLogger(__name__)

_MOST = 120  # operations and compares of one transaction; etcd's own limit is 128
_MOST_BYTES = 1 << 20  # that one transaction puts; etcd's own limit is 1.5 MiB
_AT_ONCE = 4
_GATHER = 0.003  # seconds
_APART = 0.01  # seconds from one transaction to the next, for what may wait
_TICK = 0.0005  # seconds by which a timer may be early
_CLOSE = 5.0  # seconds
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0


class Verdict(Enum):
    """What has become of a write."""

    WRITTEN = "written"
    CHANGED = "changed"  # the record is not as the writer knew it; nothing was written
    GUARDED = "guarded"  # the space is not; nothing was written
    FAILED = "failed"  # the store does not take it


class Write:
    """One write: operations on a record's keys, if the record is at a revision.

    With a `space`, nothing may have changed about it since this was handed to the journal. What is
    `leased` is put for some time only. `done` is called once, with the verdict; then
    `revision` and `found` are those of the record as it is now (`found` only if it was changed by
    somebody else). `about` is for the writer's own use.
    """

    __slots__ = (
        "about",
        "compares",
        "done",
        "error",
        "found",
        "guards",
        "key",
        "leased",
        "ops",
        "revision",
        "space",
        "uncertain",
    )

    def __init__(
        self,
        key: str,
        revision: int,
        ops: Sequence[Op],
        done: "Callable[[Write, Verdict], None]",
        about: Any = None,
        space: SpaceView | None = None,
        compares: Sequence[Compare] = (),
        leased: Sequence[Put] = (),
    ) -> None:
        self.key = key
        self.revision = revision
        self.ops = ops
        self.leased = leased
        self.done = done
        self.about = about
        self.space = space
        self.compares = compares
        self.guards: Sequence[Compare] = ()  # of the space, as it was known to the writer
        self.found: Stored | None = None
        self.error: StoreError | None = None
        self.uncertain = False  # an earlier attempt may have been written

    def tell(self, verdict: Verdict) -> None:
        """Tell the writer; what goes wrong there must not keep others from being told."""
        try:
            self.done(self, verdict)
        except Exception:
            _log.exception("the writer of %s failed to take up that it is %s", self.key, verdict)

    @property
    def weight(self) -> int:
        """How much of a transaction it takes."""
        return max(len(self.ops) + len(self.leased), 1 + len(self.compares))

    @property
    def size(self) -> int:
        """How many bytes it puts."""
        size = 0
        for ops in (self.ops, self.leased):
            for op in ops:
                if isinstance(op, Put):
                    size += len(op.value)
        return size


class Journal:
    """Gathers writes into transactions. Failures of the store are tried again for some time."""

    def __init__(
        self,
        etcd: Etcd,
        catalogue: Catalogue,
        leases: SharedLeases,
        registration: Registration,
        patience: float = 20.0,
    ) -> None:
        self._etcd = etcd
        self._catalogue = catalogue
        self._leases = leases
        self._registration = registration
        self._registering = asyncio.Lock()
        self._patience = patience
        self._queue: deque[Write] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._scheduled = False
        self._due = 0.0  # until when the first of few writes waits for more
        self._last = 0.0  # when the last transaction began
        self._timer: asyncio.TimerHandle | None = None
        self._since = 0.0  # when the first of those that wait came
        self.took = 0.0  # seconds from a write to its end, on average over the last transaction
        self.transactions = 0

    def write(self, write: Write, gather: bool = False) -> None:
        """Write soon; what comes in the same turn of the loop is written together.

        With `gather` it may wait some milliseconds more for others: operations that began together
        end one by one, and a transaction for each would cost more than all else.
        """
        loop = asyncio.get_running_loop()
        if write.space:
            write.guards = self._catalogue.guards(write.space)
        if not gather:
            self._due = 0.0
        elif not self._queue:
            self._due = max(loop.time() + _GATHER, self._last + _APART)
        if not self._queue:
            self._since = time.monotonic()
        self._queue.append(write)
        if not self._scheduled and len(self._running) < _AT_ONCE:
            self._scheduled = True
            loop.call_soon(self._pump)

    async def read(self, key: str) -> Stored | None:
        """What is stored under a key now."""
        return await self._etcd.get(key)

    @property
    def queued(self) -> int:
        """How many writes wait for a transaction."""
        return len(self._queue)

    async def close(self) -> None:
        """Wait for what is under way, but not for long; others go on with what is journaled."""
        try:
            async with asyncio.timeout(_CLOSE):
                while self._running or self._queue:
                    self._due = 0.0
                    self._pump()
                    await asyncio.wait(self._running)
        except TimeoutError:
            _log.warning("the store did not take the last %d writes", len(self._queue))
        for task in list(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _pump(self) -> None:
        self._scheduled = False
        if self._timer:
            self._timer.cancel()
            self._timer = None
        while self._queue and len(self._running) < _AT_ONCE:
            if len(self._queue) < _MOST // 2:
                # While others are under way it pays to wait for more.
                if self._running:
                    return
                loop = asyncio.get_running_loop()
                if self._due > loop.time() + _TICK:
                    self._timer = loop.call_at(self._due, self._pump)
                    return
            self._last = asyncio.get_running_loop().time()
            now = time.monotonic()
            task = asyncio.create_task(self._run(self._batch(), (now - self._since) / 2))
            self._since = now
            self._running.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()):
            _log.error("a transaction ended badly", exc_info=error)
        self._pump()

    def _batch(self) -> list[Write]:
        batch: list[Write] = []
        left, room = _MOST, _MOST_BYTES
        guards: dict[int, Sequence[Compare]] = {}  # one set by number of space
        keys: set[str] = set()
        while self._queue and self._queue[0].key not in keys:  # etcd takes each key once
            write = self._queue[0]
            keys.add(write.key)
            weight = write.weight
            if write.space:
                same = guards.setdefault(write.space.number, write.guards)
                if same is write.guards:
                    weight += len(same)
                elif same != write.guards:
                    break  # decided before something changed, or after
            size = write.size
            if batch and (weight > left or size > room):
                break
            left -= weight
            room -= size
            batch.append(self._queue.popleft())
        return batch

    async def _run(self, batch: list[Write], waited: float) -> None:
        began = time.monotonic()
        pause = _FIRST_PAUSE
        while batch:
            try:
                stands = self._registration.stands()
                result = await self._transact(batch, stands)
                succeeded = result.succeeded
                if not succeeded:
                    # Rare, so that what is needed then is not part of every transaction.
                    gets = [Get(write.key) for write in batch]
                    result = await self._etcd.transact([], [*gets, Get(stands.key)])
                    if _revision(result.gets.pop()) != stands.revision:
                        await self._register(stands, began + self._patience)
                        raise StoreUnavailable("this dispatcher was not registered (any more)")
            except StoreError as error:
                gone = isinstance(error, LeaseGone)
                if gone:
                    self._leases.forget()
                uncertain = isinstance(error, StoreUnavailable) and error.maybe_applied
                for write in batch:
                    write.uncertain |= uncertain
                if isinstance(error, StoreRefused | AnswerTooLarge) and len(batch) > 1:
                    # Perhaps one of them is at fault, or they are too much together.
                    half = len(batch) // 2
                    await self._run(batch[:half], waited)
                    await self._run(batch[half:], waited)
                    return
                late = time.monotonic() - began > self._patience
                if late or not (gone or isinstance(error, StoreUnavailable)):
                    _log.error("%d writes failed: %s", len(batch), error)
                    for write in batch:
                        write.error = error
                        write.tell(Verdict.FAILED)
                    return
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
                continue
            self.transactions += 1
            self.took = waited + time.monotonic() - began
            batch = _tell_written(batch, result.revision) if succeeded else _refused(batch, result)

    async def _register(self, stood: Compare, until: float) -> None:
        """Register again, unless that was done since it stood so. StoreError if that fails."""
        try:
            async with asyncio.timeout(max(0.0, until - time.monotonic())), self._registering:
                # Each time gives a new revision: others that are under way would fail again.
                if self._registration.stands() == stood:
                    _log.warning("%s does not stand any more; it is registered again", stood.key)
                    await self._registration.confirm()
        except TimeoutError:
            raise StoreUnavailable("this dispatcher cannot be registered") from None
        except Superseded as error:
            raise StoreError(str(error)) from error

    async def _transact(self, batch: list[Write], stands: Compare) -> TxnResult:
        compares = [stands]
        ops: list[Op] = []
        guards: dict[int, Sequence[Compare]] = {}
        lease = await self._leases.current() if any(write.leased for write in batch) else 0
        for write in batch:
            compares.append(Compare(write.key, write.revision))
            compares += write.compares
            ops += write.ops
            ops += [Put(put.key, put.value, lease) for put in write.leased]
            if write.space:
                guards[write.space.number] = write.guards
        for some in guards.values():
            compares += some
        return await self._etcd.transact(compares, ops)


def _tell_written(batch: list[Write], revision: int) -> list[Write]:
    for write in batch:
        write.revision = revision
        write.tell(Verdict.WRITTEN)
    return []


def _refused(batch: list[Write], result: TxnResult) -> list[Write]:
    """Tell those who are at fault; the others, which are returned, may be tried again."""
    rest: list[Write] = []
    at_fault = 0
    for write, found in zip(batch, result.gets, strict=True):
        now = found[0] if found else None
        revision = _revision(found)
        if revision == write.revision:
            rest.append(write)
            continue
        at_fault += 1
        if write.uncertain and _is_ours(write, now):
            write.revision = revision
            write.tell(Verdict.WRITTEN)
        else:
            write.found, write.revision = now, revision
            write.tell(Verdict.CHANGED)
    if at_fault:
        return rest
    # All records are as they should be: it is a space, or what else was compared.
    again: list[Write] = []
    for write in rest:
        if write.space or write.compares:
            write.tell(Verdict.GUARDED)
        else:
            again.append(write)
    return again


def _revision(found: Sequence[Stored]) -> int:
    return found[0].revision if found else 0


def _is_ours(write: Write, now: Stored | None) -> bool:
    """Whether a record is as an earlier attempt, of which nobody knew the outcome, wrote it."""
    for op in write.ops:
        if op.key == write.key:
            value = getattr(op, "value", None)
            return now is None if value is None else now is not None and now.value == value
    return False
