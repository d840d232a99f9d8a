"""Writes of many callers in few transactions: one is gathered while others are in progress.

Each write concerns one record, which must be as the writer knows it; some also need that nothing
has changed about their space (its guards). If etcd refuses a transaction, the record writer reads
the records to see which of them have changed, and tries the others again.

Nothing is written while the dispatcher is not registered: when its registration ends, other
dispatchers look once for the operations that it has left, and must find all of them. If the
registration of a dispatcher is deleted while it is alive, it registers again, and finds out from
the records what others have done meanwhile.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Sequence

from configurators.environment import Clock
from configurators.store.etcd.client import (
    Compare,
    Etcd,
    Get,
    LeaseGone,
    Op,
    Put,
    Stored,
    StoreError,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
    TxnResult,
)
from configurators.store.etcd.errors import AnswerTooLarge
from configurators.store.registration import Registration, Superseded
from configurators.store.upkeep import SharedLeases
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.knowledge.signals import Signal
from dispatcher.requests.writing.writes import Write, WriteResult
from dzflow.aio import OncePerTurn, log_failure

_log = logging.getLogger(__name__)

_MOST = 120  # operations and compares in one transaction; etcd's own limit is 128
_MOST_BYTES = 1 << 20  # that one transaction puts; etcd's own limit is 1.5 MiB
_AT_ONCE = 4
_TICK = 0.0005  # seconds by which a timer may be early
_CLOSE = 5.0  # seconds
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0


class RecordWriter:
    """Gathers writes into transactions, and retries for some time when etcd does not answer."""

    def __init__(
        self,
        etcd: Etcd,
        catalogue: Catalogue,
        leases: SharedLeases,
        registration: Registration,
        clock: Clock,
        patience: float = 20.0,
    ) -> None:
        self._etcd = etcd
        self._catalogue = catalogue
        self._leases = leases
        self._registration = registration
        self._registering = asyncio.Lock()
        self._clock = clock
        self._patience = patience
        self._queue: deque[Write] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._start_soon = OncePerTurn(self._start_transactions)
        self._due = 0.0  # until when the first of few writes waits for more
        self._last = -math.inf  # when the last transaction began
        self._timer: asyncio.TimerHandle | None = None
        self._since = 0.0  # when the first of the waiting writes came
        self.written: Signal[list[Write]] = Signal()
        """Emitted with writes that etcd has taken, after their results were reported."""
        self.took = 0.0  # seconds from a write to its end, on average over the last transaction

    def write(self, write: Write, apart: float = 0.0) -> None:
        """Write soon; what comes in the same turn of the loop is written together.

        It may wait for others until the last transaction began so many seconds ago (`apart`):
        operations that began together end one by one, and a transaction for each would cost more
        than all else.
        """
        if write.space:
            write.guards = self._catalogue.guards(write.space)
        due = self._last + apart if apart else 0.0
        self._due = min(self._due, due) if self._queue else due
        if not self._queue:
            self._since = self._clock.monotonic()
        self._queue.append(write)
        if len(self._running) < _AT_ONCE:
            self._start_soon.schedule()

    async def read(self, key: str) -> Stored | None:
        """What etcd has under a key now."""
        return await self._etcd.get(key)

    @property
    def queued(self) -> int:
        """How many writes wait for a transaction."""
        return len(self._queue)

    async def close(self) -> None:
        """Wait a few seconds for the last writes; other dispatchers go on with what is written."""
        try:
            async with asyncio.timeout(_CLOSE):
                while self._running or self._queue:
                    self._due = 0.0
                    self._start_transactions()
                    await asyncio.wait(self._running)
        except TimeoutError:
            _log.warning("etcd did not take the last %d writes", len(self._queue))
        for task in list(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _start_transactions(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        while self._queue and len(self._running) < _AT_ONCE:
            if len(self._queue) < _MOST // 2:
                # While others are in progress it pays to wait for more. With only one, a write that
                # comes just after it began would wait twice as long as a transaction takes.
                if len(self._running) > 1:
                    return
                loop = asyncio.get_running_loop()
                if self._due > loop.time() + _TICK:
                    self._timer = loop.call_at(self._due, self._start_transactions)
                    return
            self._last = asyncio.get_running_loop().time()
            now = self._clock.monotonic()
            work = self._carry_out(self._next_batch(), (now - self._since) / 2)
            task = asyncio.create_task(work, name="write records")
            self._since = now
            self._running.add(task)
            task.add_done_callback(self._transaction_ended)

    def _transaction_ended(self, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        log_failure(task)
        self._start_transactions()

    def _next_batch(self) -> list[Write]:
        batch: list[Write] = []
        left, room = _MOST, _MOST_BYTES
        guards: dict[int, Sequence[Compare]] = {}  # one set by number of space
        keys: set[str] = set()
        while self._queue and self._queue[0].key not in keys:  # etcd takes each key once
            write = self._queue[0]
            keys.add(write.key)
            weight = write.weight
            if write.space:
                same = guards.get(write.space.number)
                if same is None:
                    guards[write.space.number] = write.guards
                    weight += len(write.guards)
                elif same is not write.guards and same != write.guards:
                    break  # decided before something changed, or after
            size = write.size
            if batch and (weight > left or size > room):
                break
            left -= weight
            room -= size
            batch.append(self._queue.popleft())
        return batch

    async def _carry_out(self, batch: list[Write], waited: float) -> None:
        """Write a batch, and report the result of each write."""
        began = self._clock.monotonic()
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
                    await self._carry_out(batch[:half], waited)
                    await self._carry_out(batch[half:], waited)
                    return
                late = self._clock.monotonic() - began > self._patience
                if late or not (gone or isinstance(error, StoreUnavailable)):
                    if not isinstance(error, StoreFull):  # the upkeep of etcd reports that
                        _log.error("%d writes failed: %s", len(batch), error)
                    for write in batch:
                        write.error = error
                        write.report(WriteResult.FAILED)
                    return
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
                continue
            self.took = waited + self._clock.monotonic() - began
            if succeeded:
                self._report_written(batch, result.revision)
                return
            batch = self._report_refused(batch, result)

    async def _register(self, stood: Compare, until: float) -> None:
        """Register again, unless that was done since `stood` held. StoreError if that fails."""
        try:
            left = max(0.0, until - self._clock.monotonic())
            async with asyncio.timeout(left), self._registering:
                # Each time gives a new revision: others that are in progress would fail again.
                if self._registration.stands() == stood:
                    _log.warning("%s is no longer registered; registering it again", stood.key)
                    await self._registration.confirm()
        except TimeoutError:
            raise StoreUnavailable("this dispatcher cannot be registered") from None
        except Superseded as error:
            raise StoreError(str(error)) from error

    async def _transact(self, batch: list[Write], stands: Compare) -> TxnResult:
        compares = [stands]
        ops: list[Op] = []
        guards: dict[int, Sequence[Compare]] = {}
        leased = [put for write in batch for put in write.leased]
        lease = 0
        if leased:
            size = sum(len(put.key) + len(put.value) for put in leased)
            lease = await self._leases.current(len(leased), size)
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

    def _report_written(self, batch: list[Write], revision: int) -> None:
        for write in batch:
            write.revision = revision
            write.report(WriteResult.WRITTEN)
        self.written.emit(batch)

    def _report_refused(self, batch: list[Write], result: TxnResult) -> list[Write]:
        """Report the writes that are at fault; returns the others, which may be tried again."""
        rest: list[Write] = []
        at_fault = 0
        for write, found in zip(batch, result.gets, strict=True):
            now = found[0] if found else None
            revision = _revision(found)
            if revision == write.revision:
                rest.append(write)
                continue
            at_fault += 1
            if write.uncertain and write.wrote(now):
                self._report_written([write], revision)
            else:
                write.found, write.revision = now, revision
                write.report(WriteResult.CHANGED)
        if at_fault:
            return rest
        # All records are as they should be: it is a space, or what else was compared.
        again: list[Write] = []
        for write in rest:
            if write.space or write.compares:
                write.report(WriteResult.GUARDED)
            else:
                again.append(write)
        return again


def _revision(found: Sequence[Stored]) -> int:
    return found[0].revision if found else 0
