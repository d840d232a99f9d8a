"""Adopts operations that no dispatcher carries out any more, because theirs is gone."""

import asyncio
import contextlib
import logging

from configurators.environment import Clock
from configurators.store.etcd.client import Etcd, StoreError
from configurators.store.model import Record
from dispatcher.knowledge.siblings import Siblings
from dispatcher.knowledge.signals import Signal
from dispatcher.metrics import Metrics
from dispatcher.requests.operation import Operation
from dispatcher.requests.pipeline import RequestPipeline
from dispatcher.requests.writing.stored_records import scan
from dzflow.aio import BackgroundTasks, PauseByTime

_log = logging.getLogger(__name__)

_PAUSE = 1.0  # seconds before etcd is read again
_CHECK_EVERY = 60.0  # seconds: finds operations that were overlooked
_PER_TURN = 200  # records that are looked at in one turn of the loop


class Adoption:
    """Looks for abandoned operations: at the start, when a dispatcher dies, and when in doubt."""

    def __init__(
        self,
        etcd: Etcd,
        me: str,
        siblings: Siblings,
        pipeline: RequestPipeline,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self.looking: Signal[()] = Signal()
        """Emitted at each look, for changes of another kind that may be abandoned, too."""
        self._etcd = etcd
        self._me = me
        self._siblings = siblings
        self._pipeline = pipeline
        self._metrics = metrics
        self._clock = clock
        self._look = asyncio.Event()
        self._tasks = BackgroundTasks()
        self._running: asyncio.Task[None] | None = None
        siblings.gone.subscribe(lambda _: self._look.set())

    def start(self) -> None:
        """Look for abandoned operations from now on."""
        self._look.set()
        self._running = self._tasks.spawn(self._run(), "adopt abandoned operations")

    async def close(self) -> None:
        """Stop looking."""
        await self._tasks.cancel()

    def tasks(self) -> list["asyncio.Task[None]"]:
        """Background tasks; they never end by themselves."""
        return [self._running] if self._running else []

    def is_abandoned(self, record: Record) -> bool:
        """Whether no dispatcher carries out the open operation of a record."""
        if record.by == self._me:
            return not self._pipeline.writing.is_attended(record.id)
        return record.by not in self._siblings.alive

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CHECK_EVERY):
                    await self._look.wait()
            due = self._look.is_set()  # it may have been set in the turn in which the time was up
            self._look.clear()
            self.looking.emit()
            if not (self._pipeline.writing.clear_doubt() or due):
                continue
            try:
                await self._adopt_all()
            except StoreError as error:
                _log.warning("cannot look for abandoned operations: %s", error)
                self._look.set()
                await asyncio.sleep(_PAUSE)

    async def _adopt_all(self) -> None:
        looked = 0
        pause = PauseByTime(self._clock.monotonic)
        async for _, stored in scan(self._etcd):
            looked += 1
            if not looked % _PER_TURN or pause.due:
                await pause.let_others_run()
            if stored.record.open and self.is_abandoned(stored.record):
                self._metrics.adopted += 1
                operation = Operation.resume(stored, self._clock.monotonic())
                self._pipeline.intake.force(operation)
