"""Mode `sna`: each partition is assigned to one configurator by its owner key in etcd.

The revision of the owner key is the epoch. Dispatchers push tasks to the owner. A configurator that
starts claims the keys that name it, and takes over the partitions of configurators that are dead.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

from msgspec import Struct

from configurators.gc_tuning import tune_garbage_collector
from configurators.ownership.claims import claim
from configurators.ownership.comparison import when_compared
from configurators.ownership.copy_target import PartitionCopy
from configurators.ownership.early_tasks import EarlyTaskBuffer, SentTasks
from configurators.ownership.moves import Moves
from configurators.ownership.ownership import OwnershipContext
from configurators.ownership.take_over import TakeOver
from configurators.partition.long_wait import report_long_wait
from configurators.partition.settling import run_when_settled
from configurators.partition.worker import PartitionWorker
from configurators.state.loading import Loaded, load_usable, read
from configurators.store.keys import OWNERS
from configurators.store.mirror import Snapshot, Update, follow
from configurators.streams.messages import CopyRequest, CopyState, Done, Offers, Tasks
from configurators.streams.stream import Stream
from sdn.fence import StaleEpoch

log = logging.getLogger(__name__)

_TUNE_FROM = 1000  # loaded requests from which the garbage collector is tuned
_RETRY = 0.25  # seconds until a lost partition is taken over again, if it is still assigned
_LOADED_AT_ONCE = 500  # requests; then other tasks of the loop run, keep-alives above all


class AssignedOptions(Struct, frozen=True):
    """Times are in seconds."""

    take_over_after: float = 2.0  # a configurator that is gone has this long to come back
    take_over_first: float = 10.0  # the same if it was gone already when this one started
    early_turn: float = 1.0  # about half of the time that early tasks wait
    tune_gc: bool = True  # of the whole Python process


class AssignedOwnership:
    """Owns the partitions whose owner keys name this configurator.

    `confirm` returns when it is certain that no other process has the id of this one.
    """

    def __init__(
        self,
        context: OwnershipContext,
        options: AssignedOptions,
        confirm: Callable[[], Awaitable[None]],
    ) -> None:
        self._id = context.id
        self._etcd = context.etcd
        self._clock = context.clock
        self._known = context.known
        self._partitions = context.partitions
        self._southbound = context.southbound
        self._replies = context.replies
        self._tasks = context.tasks
        self._options = options
        self._confirm = confirm
        self._assigned: dict[str, int] = {}  # epochs of partitions that are not taken over yet
        self._running: dict[str, asyncio.Task[None]] = {}
        self._next_attempt: asyncio.TimerHandle | None = None  # to take over what was lost
        self._early = EarlyTaskBuffer(self._reply_moved)
        self._moves = Moves(context, self._resume)

    async def run(self) -> None:
        """Claim what is assigned to this configurator, then follow the owner keys."""
        options = self._options
        take_over = TakeOver(
            self._etcd, self._id, options.take_over_after, options.take_over_first, self._clock
        )
        self._tasks.spawn(take_over.run())
        self._tasks.spawn(self._expire_early_tasks())
        self._tasks.spawn(self._moves.run())
        self._assigned, revision = await claim(self._etcd, self._id)
        self.review()
        try:
            async for update in follow(self._etcd, OWNERS, revision):
                await self._apply_owners(update)
        finally:
            if self._next_attempt is not None:
                self._next_attempt.cancel()

    # Tasks

    def receive(self, stream: Stream, message: Tasks | Offers | CopyRequest) -> None:
        """Queue the tasks of owned partitions; keep others for a while, they may be early."""
        if isinstance(message, CopyRequest):
            self._moves.send_copy(stream, message)
            return
        if isinstance(message, Offers):
            log.error("%s offers tasks as in mode sea, but this is mode sna", stream.peer)
            return
        for partition, tasks in message.tasks.items():
            worker = self._partitions.owned.get(partition)
            epoch = message.epochs.get(partition)
            sent = SentTasks(tasks, stream, epoch)
            if worker and (epoch is None or epoch <= worker.epoch):
                self._put(worker, sent)
            else:
                # The dispatcher may know of an assignment to this process before the process does.
                self._early.add(partition, sent)

    def _put(self, worker: PartitionWorker, sent: SentTasks) -> None:
        if sent.epoch is None or sent.epoch == worker.epoch:
            worker.put(sent.tasks, sent.stream)
        else:
            self._reply_moved(worker.name, sent)

    def _reply_moved(self, partition: str, sent: SentTasks) -> None:
        for task in sent.tasks:
            self._replies.reply(sent.stream, Done(partition, task.id, task.seq, 0, "moved"))

    async def _expire_early_tasks(self) -> None:
        while True:
            await asyncio.sleep(self._options.early_turn)
            self._early.expire()

    # Owner keys

    async def _apply_owners(self, update: Update) -> None:
        owned = self._partitions.owned
        gained: dict[str, int] = {}
        latest = {change.name: change for change in update.changes}
        for name, change in latest.items():
            worker = owned.get(name)
            epoch = worker.epoch if worker else self._assigned.get(name, 0)
            if change.revision <= epoch:
                continue  # the change that made this process the owner, or an older one
            self._assigned.pop(name, None)
            if change.value == self._id.encode():
                gained[name] = change.revision
            elif change.value is None:
                self.drop(name, "it has no owner any more")
            else:
                self._leave(name, f"it belongs to {change.value!r} now")
        if isinstance(update, Snapshot):
            for name in [name for name in self._assigned if name not in latest]:
                del self._assigned[name]
            for name in [name for name in owned if name not in latest]:
                self.drop(name, "it has no owner any more")
        if gained:
            # Perhaps another process with the same id has claimed them; then this one stops here.
            await self._confirm()
            for name in gained:
                self._leave(name, "it was assigned again under a new epoch")
            copies = await self._moves.claim_copies(gained)
            if copies:
                for name, copy in copies.items():
                    self._begin(copy.worker, gained.pop(name))
                    # At once: it is declared with the others to southbound processes that come.
                    self._partitions.loaded[name] = copy.worker
                self._tasks.spawn(self._own_copies(list(copies.values())))
            self._assigned |= gained
            self.review()

    def review(self) -> None:
        """Take over the assigned partitions whose space is known, once there is a network."""
        if not self._known.complete:
            return
        ready = {name: epoch for name, epoch in self._assigned.items() if self._known.view(name)}
        if ready:
            for name in ready:
                del self._assigned[name]
            # At once: the next change of a map may take some of them away again.
            workers = {name: self._create(name, epoch) for name, epoch in ready.items()}
            self._partitions.changed()
            self._tasks.spawn(self._take_over(workers))
        self._moves.review()

    def copies(self) -> list[CopyState]:
        """How far the copies have come of partitions that are to move here."""
        return self._moves.copies()

    # Gaining

    async def _take_over(self, workers: Mapping[str, PartitionWorker]) -> None:
        """Become the owner of partitions, whatever former owners have done with them."""
        partitions = self._partitions
        epochs = {name: worker.epoch for name, worker in workers.items()}
        with report_long_wait(workers.values(), self._southbound.why_not_fenced):
            # Owners of partitions that the last change of the map has removed are fenced by that.
            await self._southbound.wait_for_spaces(self._known.spaces_revision)
            await self._southbound.raise_epochs(epochs)
            await self._know_network(workers.values())
        views = {name: view for name in workers if (view := self._known.view(name))}
        found = await read(self._etcd, views)
        for name, loaded in found.items():
            worker = workers[name]
            if partitions.owned.get(name) is not worker:
                continue  # it was lost meanwhile
            await _load(worker, loaded)
            if partitions.owned.get(name) is worker:
                partitions.loaded[name] = worker
        if self._options.tune_gc and sum(map(len, found.values())) > _TUNE_FROM:
            tune_garbage_collector()
        ours = [worker for name, worker in workers.items() if partitions.loaded.get(name) is worker]
        unsure = [worker for worker in ours if any(one.unsure for one in found[worker.name])]
        sure = [worker for worker in ours if worker not in unsure]
        for worker in sure:
            self._start(worker)
        compared = await self._southbound.declare(ours)
        self._note_ready(sure)
        await self._start_when_compared(unsure, compared)
        log.info("%d partitions are taken over", len(workers))

    async def _start_when_compared(
        self, workers: Collection[PartitionWorker], compared: Collection[str]
    ) -> None:
        """Start workers whose engines may have entries that switches lack, when they have them."""
        if not workers:
            return
        declare = self._southbound.declare
        async for ready in when_compared(
            workers, compared, self._known, self._southbound, declare, self._owns
        ):
            for worker in ready:
                self._start(worker)
            self._note_ready(ready)

    def _owns(self, worker: PartitionWorker) -> bool:
        return self._partitions.owned.get(worker.name) is worker

    def _note_ready(self, workers: Iterable[PartitionWorker]) -> None:
        for worker in workers:
            worker.ready = True
        self._partitions.changed()

    async def _own_copies(self, copies: Sequence[PartitionCopy]) -> None:
        """Become the owner of partitions that were copied; no switch is read if all is in order."""
        partitions = self._partitions
        workers = {copy.worker.name: copy.worker for copy in copies}
        epochs = {name: worker.epoch for name, worker in workers.items()}
        with report_long_wait(workers.values(), self._southbound.why_not_fenced):
            undeclared = await self._southbound.raise_epochs(epochs)
            await self._know_network(workers.values())
        missing: list[PartitionWorker] = []
        unsure: list[PartitionWorker] = []
        for copy in copies:
            worker = copy.worker
            if partitions.owned.get(worker.name) is not worker:
                continue  # it was lost meanwhile
            if not (copy.in_order and copy.network == worker.network):
                unsure.append(worker)
                continue
            self._start(worker)
            if worker.name in undeclared:
                missing.append(worker)
        compared: set[str] = set()
        if missing or unsure:
            compared = await self._southbound.declare([*missing, *unsure])
        self._note_ready(worker for worker in workers.values() if worker not in unsure)
        await self._start_when_compared(unsure, compared)
        log.info(
            "%d partitions have moved here, %d are compared", len(workers), len(missing + unsure)
        )

    async def _know_network(self, workers: Iterable[PartitionWorker]) -> None:
        """Bring workers that do not run yet to the network that southbound processes have.

        In an older network, a number of a table may be that of another leg.
        """
        await self._known.wait_for_network(self._southbound.newest_network())
        for worker in workers:
            worker.follow_networks()

    def _create(self, name: str, epoch: int) -> PartitionWorker:
        worker = self._partitions.create(name, epoch, self._replies.reply)
        self._begin(worker, epoch)
        return worker

    def _begin(self, worker: PartitionWorker, epoch: int) -> None:
        """Own a partition from now on; its worker does not run yet."""
        worker.begin_epoch(epoch)
        self._partitions.owned[worker.name] = worker
        for early in self._early.take(worker.name):
            self._put(worker, early)

    def _start(self, worker: PartitionWorker) -> None:
        self._running[worker.name] = self._tasks.spawn(self._work(worker))

    def _resume(self, worker: PartitionWorker) -> None:
        """Go on with a partition that was to be handed over, and stays."""
        running = self._running.get(worker.name)
        if running and not running.done():
            worker.keep_running()
        else:
            self._start(worker)

    async def _work(self, worker: PartitionWorker) -> None:
        log_tasks = partial(self._moves.source.carried_out, worker.name)
        reason = await run_when_settled(worker, self._known, log_tasks)
        if self._partitions.owned.get(worker.name) is not worker:
            return  # it was assigned again meanwhile
        if reason:
            self.lose(worker.name, reason)
        else:
            self._moves.worker_stopped(worker)

    # Losing

    def lose(self, partition: str, reason: str) -> None:
        """Stop work on a partition that another configurator owns, or that the map does not have.

        It stays assigned to this one until the owner key says otherwise: the map may get the same
        partition again.
        """
        if worker := self._leave(partition, reason):
            self._assigned[partition] = worker.epoch
            # A southbound process may have spoken of a map that is over by now, or a slow one may
            # not know the map yet. Without another attempt, nobody would work on the partition.
            if self._next_attempt is None:
                loop = asyncio.get_running_loop()
                self._next_attempt = loop.call_later(_RETRY, self._try_again)

    def _try_again(self) -> None:
        self._next_attempt = None
        self.review()

    def _leave(self, partition: str, reason: str) -> PartitionWorker | None:
        """Stop work on a partition; its tasks are sent back, for the new owner."""
        worker = self._partitions.owned.pop(partition, None)
        if worker:
            log.warning("partition %s is lost: %s", partition, reason)
            self._partitions.loaded.pop(partition, None)
            self._moves.lost(partition)
            running = self._running.pop(partition, None)
            if running:
                running.cancel()
            worker.leave()
            self._partitions.changed()
        return worker

    def drop(self, partition: str, reason: str) -> None:
        """Stop work on a partition that no longer exists, and delete its entries."""
        if worker := self._leave(partition, reason):
            self._tasks.spawn(self._clear(worker))

    async def _clear(self, worker: PartitionWorker) -> None:
        self._partitions.clearing.append(worker)
        try:
            await worker.clear()
        except StaleEpoch as stale:
            log.info("another configurator clears partition %s: %s", worker.name, stale)
        finally:
            self._partitions.clearing.remove(worker)


async def _load(worker: PartitionWorker, loaded: Sequence[Loaded]) -> None:
    """Load active requests into a worker's engine, in portions that leave the loop time."""
    for at in range(0, len(loaded), _LOADED_AT_ONCE):
        load_usable(worker.engine, (one.partial for one in loaded[at : at + _LOADED_AT_ONCE]))
        await asyncio.sleep(0)
    worker.know((one.partial.id, one.seq) for one in loaded)
    worker.entries = worker.engine.count()
