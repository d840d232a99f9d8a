"""The target's side of a move: keeps copies of partitions that are to move to this configurator.

A copy is a cache. It is used only if it certainly has all that was ever carried out: its source has
stopped and said so, and the owner key went straight from the source to this configurator.
"""

import asyncio
import logging
from functools import partial
from typing import Literal

from configurators.partition.known_state import KnownState
from configurators.partition.partitions import Partitions
from configurators.partition.replica import Replica, copy_part
from configurators.partition.slices.task_replies import Reply
from configurators.partition.worker import PartitionWorker
from configurators.store.documents import decode_process
from configurators.store.etcd.client import Etcd, StoreError
from configurators.store.keys import CONFIGURATORS
from configurators.store.model import Move
from configurators.streams.listener import CannotConnect
from configurators.streams.messages import CopyEnd, CopyPart, CopyRequest, CopyState, FromCopySource
from configurators.streams.peers import OpenStream
from configurators.streams.stream import Stream, StreamClosed
from dzflow.aio import BackgroundTasks

log = logging.getLogger(__name__)

_RETRY = 0.2  # seconds


class PartitionCopy:
    """The copy of a partition for a move."""

    def __init__(self, move: str, worker: PartitionWorker) -> None:
        self.move = move
        self.worker = worker
        self.state: Literal["copying", "following", "ended"] = "copying"
        self.network = 0  # that the source had when it stopped
        self.in_order = False

    def receive(self, message: CopyPart | CopyEnd) -> bool:
        """Apply a message of the source; whether `state` has changed."""
        before = self.state
        if isinstance(message, CopyEnd):
            self.state = "ended"
            self.network, self.in_order = message.network, message.in_order
        else:
            copy_part(self.worker, message.tasks)
            if message.complete and self.state == "copying":
                self.worker.entries = self.worker.engine.count()
                self.state = "following"
        return self.state != before


class CopyTarget:
    """Makes copies of partitions for as long as moves to this configurator stand in etcd.

    `reply` is called for the tasks of partitions that were copied and are owned then.
    """

    def __init__(
        self,
        etcd: Etcd,
        known: KnownState,
        partitions: Partitions,
        open_stream: OpenStream,
        reply: Reply,
    ) -> None:
        self._etcd = etcd
        self._known = known
        self._partitions = partitions
        self._open_stream = open_stream
        self._reply = reply
        self._wanted: dict[str, Move] = {}
        self._copying: dict[str, asyncio.Task[None]] = {}
        self._copies: dict[str, PartitionCopy] = {}
        self._tasks = BackgroundTasks()

    def want(self, partition: str, move: Move) -> None:
        """Have a copy of a partition, as long as this move stands."""
        known = self._wanted.get(partition)
        if known and known.id == move.id:
            return
        self.drop(partition)
        self._wanted[partition] = move
        self.review()

    def drop(self, partition: str) -> None:
        """Have no copy of a partition any more: its move is over."""
        if self._wanted.pop(partition, None):
            self._discard(partition)
            task = self._copying.pop(partition, None)
            if task:
                task.cancel()

    def review(self) -> None:
        """Begin copies of partitions whose space is known, once there is a network."""
        if self._known.complete:
            for partition, move in self._wanted.items():
                if partition not in self._copying and self._known.view(partition):
                    work = self._keep_copy(partition, move)
                    task = self._tasks.spawn(work, f"copy partition {partition}")
                    self._copying[partition] = task

    def states(self) -> list[CopyState]:
        """How far each copy has come."""
        return [CopyState(name, copy.move, copy.state) for name, copy in self._copies.items()]

    def take(self, partition: str, move: str) -> PartitionCopy | None:
        """Take out the copy that was made for a move; None if it is not complete."""
        copy = self._copies.get(partition)
        usable = copy is not None and copy.state == "ended" and copy.move == move
        self.drop(partition)
        return copy if usable else None

    async def close(self) -> None:
        """End all copies."""
        await self._tasks.cancel()

    async def _keep_copy(self, partition: str, move: Move) -> None:
        """Copy a partition, again and again until its source has stopped."""
        while True:
            try:
                await self._copy(partition, move)
            except (StoreError, CannotConnect, StreamClosed) as error:
                log.warning("partition %s is not copied yet: %s", partition, error)
            copy = self._copies.get(partition)
            if copy and copy.state == "ended":
                return
            self._discard(partition)
            await asyncio.sleep(_RETRY)

    async def _copy(self, partition: str, move: Move) -> None:
        """Copy a partition until the stream to its source ends."""
        stored = await self._etcd.get(CONFIGURATORS + move.source)
        if stored is None:
            raise CannotConnect(f"configurator {move.source} is not registered")
        view = self._known.view(partition)
        if view is None:
            raise CannotConnect(f"partition {partition} no longer exists")
        worker = self._partitions.create(partition, 0, self._reply)
        copy = self._copies[partition] = PartitionCopy(move.id, worker)
        self._partitions.replicas[partition] = Replica(worker, view.map_number)
        self._partitions.changed()
        address = decode_process(stored.value).address
        stream = await self._open_stream(address, partial(self._receive, copy), FromCopySource)
        try:
            stream.tell(CopyRequest(partition, move.epoch, move.id))
            await stream.closed.wait()
            if copy.state != "ended":
                log.warning("partition %s has to be copied again: %s", partition, stream.reason)
        finally:
            stream.close("the copy is no longer needed")

    def _receive(self, copy: PartitionCopy, _: Stream, message: FromCopySource) -> None:
        if not isinstance(message, CopyPart | CopyEnd):
            return  # its load
        current = self._copies.get(copy.worker.name) is copy and copy.state != "ended"
        if current and message.move == copy.move and copy.receive(message):
            self._partitions.changed()

    def _discard(self, partition: str) -> None:
        copy = self._copies.pop(partition, None)
        if copy:
            self._partitions.replicas.pop(partition, None)
            self._partitions.changed()
