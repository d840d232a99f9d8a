"""The moves of partitions to and from this configurator while both owners are alive (mode `sna`).

The moves stand in etcd (`Move`), and the leading monitor drives them. The source copies a partition
to the target while it works, and stops when the partition is handed over. If the move fails then,
the source goes on as if nothing had happened.
"""

import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

from configurators.ownership.copy_source import CopySource
from configurators.ownership.copy_target import CopyTarget, PartitionCopy
from configurators.ownership.ownership import OwnershipContext
from configurators.partition.worker import PartitionWorker
from configurators.store.documents import decode_move
from configurators.store.etcd.client import StoreError
from configurators.store.keys import MOVES
from configurators.store.mirror import Mirror
from configurators.store.model import Move
from configurators.streams.messages import CopyRequest, CopyState
from configurators.streams.stream import Stream

log = logging.getLogger(__name__)


class _Standing(NamedTuple):
    """A move as it stands in etcd, and the revision of its document."""

    move: Move
    revision: int


class Moves:
    """Copies partitions that are to come, and stops the workers of partitions that are to go.

    `resume` is called with the worker of a partition that stays after all.
    """

    def __init__(
        self, context: OwnershipContext, resume: Callable[[PartitionWorker], None]
    ) -> None:
        self.source = CopySource()
        self._id = context.id
        self._owned = context.partitions.owned
        self._southbound = context.southbound
        self._resume = resume
        self._target = CopyTarget(
            context.etcd,
            context.known,
            context.partitions,
            context.open_stream,
            context.replies.reply,
        )
        self._standing: dict[str, _Standing] = {}
        self._handed_over: set[str] = set()  # partitions whose workers were told to stop
        self._mirror = Mirror(context.etcd, MOVES, decode_move, self._move_changed)

    async def run(self) -> None:
        """Follow the moves until cancelled."""
        try:
            await self._mirror.run()
        finally:
            await self.source.close()
            await self._target.close()

    def review(self) -> None:
        """Begin copies that have waited for a network or a space."""
        self._target.review()

    def copies(self) -> list[CopyState]:
        """How far the copies have come of partitions that are to move here."""
        return self._target.states()

    # As the source

    def send_copy(self, stream: Stream, request: CopyRequest) -> None:
        """Copy a partition to the configurator that asks for it."""
        worker = self._owned.get(request.partition)
        if worker and worker.epoch == request.epoch:
            self.source.begin(request.move, worker, stream)
        else:
            stream.close(f"{self._id} does not own {request.partition} under {request.epoch}")

    def worker_stopped(self, worker: PartitionWorker) -> None:
        """Tell the target that nothing more follows: the worker has ended its last slice."""
        self.source.finish(worker, in_order=self._southbound.all_caught_up)

    def lost(self, partition: str) -> None:
        """Forget a partition that this configurator does not own any more."""
        self._handed_over.discard(partition)
        self.source.end(partition)

    # As the target

    async def claim_copies(self, gained: Mapping[str, int]) -> dict[str, PartitionCopy]:
        """The copies of partitions that this configurator has got under these epochs.

        Only those that are exact: the document of the move says that the owner key was put in the
        same transaction, so no other configurator has owned the partition in between.
        """
        copied = sorted(gained.keys() & {copy.partition for copy in self._target.states()})
        for partition in copied:
            try:
                await self._mirror.refresh(partition)
            except StoreError as error:
                log.warning("the copy of partition %s may not be used: %s", partition, error)
        # From here on nothing is awaited: copies follow the network, and so do owned partitions.
        found: dict[str, PartitionCopy] = {}
        for partition in copied:
            standing = self._standing.get(partition)
            if (
                standing
                and standing.move.phase == "moved"
                and standing.revision == gained[partition]
                and (copy := self._target.take(partition, standing.move.id))
            ):
                found[partition] = copy
            else:
                self._target.drop(partition)
        return found

    # What stands in etcd

    def _move_changed(self, partition: str, move: Move | None, revision: int) -> None:
        if move is None:
            self._standing.pop(partition, None)
        else:
            self._standing[partition] = _Standing(move, revision)
        self._change_target(partition, move)
        self._change_source(partition, move)

    def _change_target(self, partition: str, move: Move | None) -> None:
        if move is None or move.target != self._id or move.phase in ("asked", "failed"):
            self._target.drop(partition)
        elif move.phase != "moved":  # then it is taken when the owner key has come
            self._target.want(partition, move)

    def _change_source(self, partition: str, move: Move | None) -> None:
        worker = self._owned.get(partition)
        goes = (
            move is not None
            and move.phase in ("handing over", "moved")
            and worker is not None
            and worker.epoch == move.epoch
        )
        if goes and worker and partition not in self._handed_over:
            self._handed_over.add(partition)
            worker.stop_soon()
        elif not goes and partition in self._handed_over:
            self._handed_over.remove(partition)
            self.source.end(partition)
            if worker:
                self._resume(worker)
        elif move is None or move.phase == "failed":
            self.source.end(partition)
