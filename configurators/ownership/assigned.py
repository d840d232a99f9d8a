"""Mode `sna`: each partition is assigned to one configurator by its owner key in etcd.

The revision of the owner key is the epoch. Dispatchers push tasks to the owner. A configurator that
starts claims the keys that name it, and takes over the partitions of configurators that are dead.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from msgspec import Struct

from configurators.gc_tuning import tune_garbage_collector
from configurators.ownership.claims import claim
from configurators.ownership.early_tasks import EarlyTaskBuffer, SentTasks
from configurators.ownership.ownership import OwnershipContext
from configurators.ownership.take_over import TakeOver
from configurators.partition.long_wait import report_long_wait
from configurators.partition.worker import PartitionWorker
from configurators.state.loading import Loaded, load_usable, read
from configurators.store.keys import OWNERS
from configurators.store.mirror import Snapshot, Update, follow
from configurators.streams.messages import Done, Offers, Tasks
from configurators.streams.stream import Stream
from sdn.fence import StaleEpoch

log = logging.getLogger(__name__)

_TUNE_FROM = 1000  # loaded requests from which the garbage collector is tuned
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
        self._early = EarlyTaskBuffer(self._reply_moved)

    async def run(self) -> None:
        """Claim what is assigned to this configurator, then follow the owner keys."""
        options = self._options
        take_over = TakeOver(
            self._etcd, self._id, options.take_over_after, options.take_over_first, self._clock
        )
        self._tasks.spawn(take_over.run())
        self._tasks.spawn(self._expire_early_tasks())
        self._assigned, revision = await claim(self._etcd, self._id)
        self.review()
        async for update in follow(self._etcd, OWNERS, revision):
            await self._apply_owners(update)

    # Tasks

    def receive(self, stream: Stream, message: Tasks | Offers) -> None:
        """Queue the tasks of owned partitions; keep others for a while, they may be early."""
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
                self.lose(name, f"it belongs to {change.value!r} now")
        if isinstance(update, Snapshot):
            for name in [name for name in self._assigned if name not in latest]:
                del self._assigned[name]
            for name in [name for name in owned if name not in latest]:
                self.drop(name, "it has no owner any more")
        if gained:
            # Perhaps another process with the same id has claimed them; then this one stops here.
            await self._confirm()
            for name in gained:
                self.lose(name, "it was assigned again under a new epoch")
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
            self._tasks.spawn(self._take_over(ready))

    # Gaining

    async def _take_over(self, epochs: Mapping[str, int]) -> None:
        """Become the owner of partitions, whatever former owners have done with them."""
        partitions = self._partitions
        workers = {name: self._create(name, epoch) for name, epoch in epochs.items()}
        partitions.changed()
        with report_long_wait(workers.values(), self._southbound.why_not_fenced):
            await self._southbound.raise_epochs(epochs)
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
            tune_garbage_collector(second_generation=50)
        ours = [worker for name, worker in workers.items() if partitions.loaded.get(name) is worker]
        for worker in ours:
            self._running[worker.name] = self._tasks.spawn(self._work(worker))
        await self._southbound.declare(ours)
        for worker in workers.values():
            worker.ready = True
        log.info("%d partitions are taken over", len(workers))
        partitions.changed()

    def _create(self, name: str, epoch: int) -> PartitionWorker:
        worker = self._partitions.create(name, epoch, self._replies.reply)
        self._partitions.owned[name] = worker
        for early in self._early.take(name):
            self._put(worker, early)
        return worker

    async def _work(self, worker: PartitionWorker) -> None:
        reason = await worker.run()
        if self._partitions.owned.get(worker.name) is worker:  # it was not assigned again meanwhile
            self.lose(worker.name, reason)

    # Losing

    def lose(self, partition: str, reason: str) -> None:
        """Stop work on a partition; its tasks are sent back, for the new owner."""
        worker = self._partitions.owned.pop(partition, None)
        if worker:
            log.warning("partition %s is lost: %s", partition, reason)
            self._partitions.loaded.pop(partition, None)
            running = self._running.pop(partition, None)
            if running:
                running.cancel()
            worker.leave()
            self._partitions.changed()

    def drop(self, partition: str, reason: str) -> None:
        """Stop work on a partition that no longer exists, and delete its entries."""
        worker = self._partitions.owned.get(partition)
        if worker:
            self.lose(partition, reason)
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
