"""A partition while this configurator has its lock (mode `sea`)."""

import asyncio
import logging
from collections.abc import Sequence

from configurators.ownership.partition_log import PartitionLog
from configurators.partition.worker import PartitionWorker
from configurators.store.etcd.client import StoreError
from configurators.store.locks import Lock
from configurators.streams.messages import Task
from configurators.streams.stream import Stream
from sdn.fence import StaleEpoch

log = logging.getLogger(__name__)


class HeldPartition:
    """A lock of this process, with the worker and the log of its partition."""

    def __init__(self, lock: Lock, worker: PartitionWorker, partition_log: PartitionLog) -> None:
        self.lock = lock
        self.worker = worker
        self.log = partition_log
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
        """Whether the partition takes up room; one that waits for a switch does not."""
        return not (self.idle or self.stuck)

    @property
    def idle(self) -> bool:
        """Whether all tasks that were taken are done."""
        return not (self.worker.unfinished or self.asked)

    @property
    def has_worked(self) -> bool:
        """Whether tasks were done under this lock."""
        return self.worker.done != self._done_before

    def start_over(self, worker: PartitionWorker, partition_log: PartitionLog) -> None:
        """Replace worker and log by new ones, which know nothing of the partition yet."""
        self.worker, self.log = worker, partition_log
        self._done_before = 0

    def start(self) -> "asyncio.Task[str]":
        """Begin to work on tasks; see `PartitionWorker.run` for the result."""
        self.working = asyncio.create_task(self.worker.run(self._log_tasks))
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
