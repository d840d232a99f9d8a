"""A partition while this configurator has its lock (mode `sea`)."""

import asyncio
import logging
import math
from collections.abc import Sequence

from configurators.ownership.partition_log import PartitionLog
from configurators.partition.known_state import KnownState
from configurators.partition.settling import run_when_settled
from configurators.partition.worker import PartitionWorker
from configurators.store.etcd.client import StoreError
from configurators.store.locks import Lock
from configurators.streams.messages import Task
from configurators.streams.stream import Stream
from sdn.fence import StaleEpoch

log = logging.getLogger(__name__)


class HeldPartition:
    """A lock of this process, with the worker and the log of its partition."""

    def __init__(
        self, lock: Lock, worker: PartitionWorker, partition_log: PartitionLog, map_number: int
    ) -> None:
        self.lock = lock
        self.worker = worker
        self.log = partition_log
        self.map_number = map_number  # of the partition map, as of now
        self.ready_at = math.inf  # when work under the lock could begin
        self.asked: set[Stream] = set()  # dispatchers that were asked for tasks, and owe a reply
        self.working: asyncio.Task[str] | None = None
        self._done_before = worker.done
        self._cutting: asyncio.Task[None] | None = None

    @property
    def stuck(self) -> bool:
        """Whether the partition waits for a switch."""
        return self.worker.reason is not None and self.worker.unfinished > 0

    @property
    def busy(self) -> bool:
        """Whether the partition is worked on; one that waits for a switch is, too."""
        return not self.idle

    @property
    def idle(self) -> bool:
        """Whether all tasks that were taken are done."""
        return not (self.worker.unfinished or self.asked)

    @property
    def has_worked(self) -> bool:
        """Whether tasks were done under this lock."""
        return self.worker.done != self._done_before

    def queued_for(self, now: float) -> float:
        """For how long the oldest task that was taken waits to be worked on; 0 if none waits."""
        oldest = self.worker.queue.oldest
        return 0.0 if oldest is None else now - oldest

    def start_over(self, worker: PartitionWorker, partition_log: PartitionLog) -> None:
        """Replace worker and log by new ones, which know nothing of the partition yet."""
        self.worker, self.log = worker, partition_log
        self._done_before = 0

    def start(self, known: KnownState) -> "asyncio.Task[str]":
        """Begin to work on tasks when that is allowed; see `PartitionWorker.run` for the result."""
        work = run_when_settled(self.worker, known, self._log_tasks)
        self.working = asyncio.create_task(work)
        return self.working

    async def stop(self) -> None:
        """Cancel the work, and wait until it has ended."""
        tasks = [task for task in (self.working, self._cutting) if task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _log_tasks(self, tasks: Sequence[Task]) -> None:
        await self.log.write(tasks)
        if self.log.needs_cut and (self._cutting is None or self._cutting.done()):
            self._cutting = asyncio.create_task(self._cut_log())

    async def _cut_log(self) -> None:
        try:
            await self.log.cut()
        except (StoreError, StaleEpoch) as error:
            log.info("the log of partition %s is not cut now: %s", self.worker.name, error)
