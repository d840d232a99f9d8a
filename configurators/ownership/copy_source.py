"""The owner's side of a move: sends copies of partitions to the configurators that get them.

The owner goes on working. It sends what the partition has of all records, in portions, and after
each slice the tasks that were carried out. Both say what the partition has of a record, and arrive
in order, so the copy is exact when all portions have been sent.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from itertools import islice

from configurators.engine.engine import Engine
from configurators.engine.partials import Kind
from configurators.partition.worker import PartitionWorker
from configurators.streams.messages import CopyEnd, CopyPart, Task
from configurators.streams.packing import pack_regions
from configurators.streams.stream import MessageTooLarge, Stream, StreamClosed
from dzflow.aio import BackgroundTasks

log = logging.getLogger(__name__)

_PORTION = 100  # records: some milliseconds on both sides


class _Copy:
    """A copy that is being sent; `left` are the records that were not sent yet."""

    def __init__(self, move: str, worker: PartitionWorker, stream: Stream) -> None:
        self.move = move
        self.worker = worker
        self.stream = stream
        self.begun = False
        self.left: Iterator[str] = iter(())
        self.complete = False
        self.task: asyncio.Task[None] | None = None

    def send(self, tasks: Sequence[Task]) -> None:
        self.stream.tell(CopyPart(self.move, list(tasks), self.complete))


class CopySource:
    """Sends copies of the partitions that this configurator owns, one of each at a time."""

    def __init__(self) -> None:
        self._copies: dict[str, _Copy] = {}
        self._tasks = BackgroundTasks()

    def begin(self, move: str, worker: PartitionWorker, stream: Stream) -> None:
        """Copy a partition for a move to the configurator at the other end of a stream."""
        self.end(worker.name)
        copy = self._copies[worker.name] = _Copy(move, worker, stream)
        copy.task = self._tasks.spawn(self._send_all(copy), f"copy partition {worker.name}")

    async def carried_out(self, partition: str, tasks: Sequence[Task]) -> None:
        """Send tasks that were carried out, if the partition is being copied."""
        copy = self._copies.get(partition)
        if copy and copy.begun:
            try:
                copy.send(tasks)
            except (StreamClosed, MessageTooLarge) as closed:
                log.info("partition %s is no longer copied: %s", partition, closed)
                self.end(partition)

    def finish(self, worker: PartitionWorker, in_order: bool) -> None:
        """Say that the worker has stopped, and that nothing more follows."""
        copy = self._copies.get(worker.name)
        if copy and copy.complete:
            try:
                copy.stream.tell(CopyEnd(copy.move, worker.network, in_order))
            except (StreamClosed, MessageTooLarge) as closed:
                log.info("partition %s is no longer copied: %s", worker.name, closed)

    def end(self, partition: str) -> None:
        """Send nothing more of a partition."""
        copy = self._copies.pop(partition, None)
        if copy and copy.task:
            copy.task.cancel()

    async def close(self) -> None:
        """End all copies."""
        self._copies.clear()
        await self._tasks.cancel()

    async def _send_all(self, copy: _Copy) -> None:
        """Send all records in portions, as fast as the other end takes them."""
        name = copy.worker.name
        try:
            while not await self._portion(copy):
                await copy.stream.drained()
        except (StreamClosed, MessageTooLarge) as closed:
            log.info("partition %s is no longer copied: %s", name, closed)
            if self._copies.get(name) is copy:
                del self._copies[name]

    async def _portion(self, copy: _Copy) -> bool:
        """Send some records when no slice is in progress; True if these were the last ones."""
        sent: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def send() -> None:
            if sent.done():
                return  # the copy was ended meanwhile
            try:
                sent.set_result(self._send_some(copy))
            except (StreamClosed, MessageTooLarge) as closed:
                sent.set_exception(closed)

        copy.worker.between_slices(send)
        return await sent

    def _send_some(self, copy: _Copy) -> bool:
        worker = copy.worker
        if not copy.begun:
            copy.begun = True
            copy.left = iter(worker.engine.ids())
        ids = list(islice(copy.left, _PORTION))
        tasks = [task for id in ids if (task := _task(worker.engine, id, worker.queue.seq(id)))]
        copy.complete = len(ids) < _PORTION
        copy.send(tasks)
        return copy.complete


def _task(engine: Engine, id: str, seq: int) -> Task | None:
    """What a partition has of a record, as a task that asks for it; None if it has nothing."""
    partial = engine.get(id)
    if partial is None:
        return None
    return Task(
        id,
        seq,
        partial.host,
        partial.kind is Kind.ADVERTISE,
        pack_regions(partial.regions),
        pack_regions(partial.edge),
    )
