"""Mode `sea`: configurators share all partitions, and lock those that they work on.

Dispatchers offer tasks. A configurator takes those of partitions that it has locked or can lock at
once. It keeps a lock until another configurator waits for it, which one does only if the tasks of
the partition wait for too long (`passing.py`). The revision at which the lock's key was created is
the epoch. Every owner begins with the state that the one before left: the partition's log says what
was done, a mark says that it was left in order.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from zlib import crc32

from msgspec import Struct

from configurators.ownership.held_partition import HeldPartition
from configurators.ownership.lock_take_over import LockTakeOver
from configurators.ownership.offers import Offer, OfferBook
from configurators.ownership.ownership import OwnershipContext
from configurators.ownership.partition_log import CleanMark, LogOptions
from configurators.ownership.passing import LatePartition, OwnWait, PassingPrices, choose
from configurators.partition.replica import Replica
from configurators.partition.slices.replies import TaskSource, send_if_open
from configurators.partition.worker import PartitionWorker
from configurators.store.locks import Lock, Locks
from configurators.streams.messages import (
    CopyRequest,
    CopyState,
    Done,
    Offers,
    Take,
    Tasks,
    Waiting,
)
from configurators.streams.stream import Stream
from dzflow.aio import OncePerTurn
from sdn.fence import StaleEpoch

log = logging.getLogger(__name__)

ADOPT_EVERY = 0.2  # seconds between searches for partitions that no configurator has locked
ADOPT_WITHIN = 0.4  # seconds over which configurators spread their attempts to lock each of them
STOPPING = 3.0  # seconds that slices in progress have to end
SOON = 0.005  # seconds; the shortest pause between two looks at the offers of others' partitions
_NO_LIMIT = 1 << 30


class LockedOptions(Struct, frozen=True):
    """Times are in seconds."""

    at_once: int = 0  # partitions that are worked on at a time, oldest request first; 0: all
    patience: float = 0.1  # the least that tasks wait before another configurator wants the lock
    slice_limit: int = 500
    lease: int = 5
    log: LogOptions = LogOptions()


class LockedOwnership:
    """Owns the partitions that it has locked, and takes tasks that dispatchers offer."""

    def __init__(
        self,
        context: OwnershipContext,
        options: LockedOptions,
        make_locks: Callable[..., Locks] = Locks,
    ) -> None:
        self._id = context.id
        self._known = context.known
        self._partitions = context.partitions
        self._southbound = context.southbound
        self._replies = context.replies
        self._tasks = context.tasks
        self._clock = context.clock
        self._lock_waits = context.lock_waits
        self._options = options
        self._search = OncePerTurn(self._find_work)
        self._locks = make_locks(
            context.etcd,
            context.id,
            options.lease,
            on_change=lambda _: self._search.schedule(),
            on_lost=self._lose_all,
        )
        self._take_over = LockTakeOver(
            context.etcd, context.known, context.southbound, self._create, options.log
        )
        self._offers = OfferBook(context.clock)
        self._held: dict[str, HeldPartition] = {}
        self._serving: dict[str, asyncio.Task[None]] = {}  # partitions to be locked, or held
        self._trying: set[str] = set()  # partitions that may be locked at once
        self._waiting: dict[str, float] = {}  # since when it waits for locks of others
        self._own_wait = OwnWait()
        self._prices = PassingPrices()
        self._look_again: asyncio.TimerHandle | None = None
        self._unclaimed: dict[str, float] = {}  # since when no configurator has locked them
        self._closing = False

    async def run(self) -> None:
        """Lock partitions and work on them; at the end release all locks."""
        async with self._locks:
            try:
                while True:
                    self._adopt()
                    await asyncio.sleep(ADOPT_EVERY)
            finally:
                await self._release_all()

    # Tasks

    def receive(self, stream: Stream, message: Tasks | Offers | CopyRequest) -> None:
        """Note what is offered; queue tasks that this process has asked for."""
        if isinstance(message, CopyRequest):
            stream.close("partitions do not move in mode sea")
            return
        if isinstance(message, Offers):
            if self._offers.update(stream, message):
                self._locks.look_again()
            self._search.schedule()
            return
        for partition, tasks in message.tasks.items():
            held = self._held.get(partition)
            if held:
                held.asked.discard(stream)
                self._offers.note_taken(partition, stream, len(tasks))
                held.worker.put(tasks, stream)
            else:
                for task in tasks:
                    self._reply(stream, Done(partition, task.id, task.seq, 0, "moved"))
        self._search.schedule()

    def _reply(self, to: TaskSource | None, reply: Done | Waiting) -> None:
        self._replies.reply(to, reply)
        self._search.schedule()

    # What to work on

    def review(self) -> None:
        """Forget replicas of partitions that no longer exist, and search for work."""
        replicas = self._partitions.replicas
        for name in [name for name in replicas if not self._known.view(name)]:
            del replicas[name]
        for name, held in list(self._held.items()):
            view = self._known.view(name)
            if view and view.map_number > held.map_number + 1:
                self.lose(name, "it may have gone and come back while this process did not look")
            elif view:
                held.map_number = view.map_number
        self._search.schedule()

    def _find_work(self) -> None:
        """Ask for tasks of held partitions, lock others, and give up locks that others wait for."""
        if self._closing or not self._known.complete:
            return
        now, room = self._clock.monotonic(), self._room()
        own_wait = max((held.queued_for(now) for held in self._held.values()), default=0.0)
        elsewhere: list[tuple[str, Offer]] = []
        for name, offer in self._offers.open():
            held = self._held.get(name)
            # Nobody may work on a partition that is new in its map, until that has settled.
            unsettled = self._known.spaces.cutting(name)
            if held:
                if not unsettled:
                    own_wait = max(own_wait, now - max(offer.since, held.ready_at))
                    room -= self._ask_for_tasks(held, offer, room, now)
            elif name not in self._serving and self._known.view(name):
                if not self._locks.free(name):
                    if not unsettled:
                        elsewhere.append((name, offer))
                elif room > 0:
                    self._serve(name, wait=False)
                    room -= 1
        own_wait = self._own_wait.note(now, own_wait)
        if elsewhere:
            self._wait_for_one(elsewhere, own_wait, room, now)
        for held in self._held.values():
            self._release_if_wanted(held, room)

    def _room(self) -> int:
        """How many more partitions may be worked on; one to be locked counts as worked on."""
        limit = self._options.at_once or _NO_LIMIT
        return limit - sum(held.busy for held in self._held.values()) - len(self._trying)

    def _ask_for_tasks(self, held: HeldPartition, offer: Offer, room: int, now: float) -> int:
        """Ask dispatchers for tasks of a held partition; 1 if it takes up room from now on.

        Only for tasks that can be worked on soon: others see those that wait at the dispatcher. If
        there is a limit, one partition more than that is asked for, to be ready when its turn is.
        """
        worker = held.worker
        held.asked = {stream for stream in held.asked if not stream.closed.is_set()}
        starts = not held.busy
        if self._options.at_once:
            wanted = starts and room > -1
        else:
            wanted = held.queued_for(now) <= self._options.patience / 2
        if not (worker.ready and wanted) or held.stuck:
            return 0
        for stream in [each for each in offer.counts if each not in held.asked]:
            limit = self._options.slice_limit - worker.unfinished
            if limit > 0:
                held.asked.add(stream)
                send_if_open(stream, Take(worker.name, worker.epoch, limit))
        return int(starts and held.busy)

    def _wait_for_one(
        self, offers: Sequence[tuple[str, Offer]], own_wait: float, room: int, now: float
    ) -> None:
        """Wait for the lock of an offered partition that another configurator has, if worth it."""
        patience = self._options.patience
        if self._look_again is None:
            loop = asyncio.get_running_loop()
            self._look_again = loop.call_later(max(patience / 2, SOON), self._look_at_offers)
        if room <= 0 or any(now - since < patience for since in self._waiting.values()):
            return
        late = []
        for name, offer in offers:
            claims = self._locks.table.claims(name)
            if len(claims) == 1:
                price = self._prices.expect(name in self._partitions.replicas)
                waits = LatePartition(
                    name, claims[0].who, now - offer.since, now - offer.taken, price
                )
                late.append(waits)
        chosen = choose(late, own_wait, patience, self._id)
        if chosen:
            self._serve(chosen, wait=True)

    def _look_at_offers(self) -> None:
        self._look_again = None
        self._search.schedule()

    def _wanted(self, name: str) -> bool:
        """Whether to go on waiting for a lock: for tasks, and if no other one waits before this."""
        claims = self._locks.table.claims(name)
        ahead = next((n for n, claim in enumerate(claims) if claim.who == self._id), 0)
        return name in self._offers and ahead <= 1

    def _release_if_wanted(self, held: HeldPartition, room: int) -> None:
        """Release a lock that others wait for: after a slice, or if there is no room for one."""
        worker, lock = held.worker, held.lock
        if not any(claim.epoch > lock.epoch for claim in self._locks.table.claims(worker.name)):
            return
        without_work = held.idle and (room <= 0 or worker.name not in self._offers)
        if worker.ready and (held.has_worked or without_work):
            worker.stop_soon()

    def _adopt(self) -> None:
        """Lock partitions without an owner: only an owner makes switches hold its entries.

        Configurators try at different times, so that they share the partitions.
        """
        now = self._clock.monotonic()
        free = [
            name
            for view in self._known.spaces
            for name in view.partitions()
            if name not in self._serving and self._locks.free(name)
        ]
        self._unclaimed = {name: self._unclaimed.get(name, now) for name in free}
        for name, since in self._unclaimed.items():
            turn = crc32(f"{self._id} {name}".encode()) / (1 << 32) * ADOPT_WITHIN
            if self._known.network and now - since >= turn:
                self._serve(name, wait=False)

    async def _release_all(self) -> None:
        self._closing = True
        for held in self._held.values():
            held.worker.stop_soon()
        serving = list(self._serving.values())
        for name, task in self._serving.items():
            # A partition that is new in its map has no slice that could end.
            if name not in self._held or self._known.spaces.cutting(name):
                task.cancel()
        if serving:
            await asyncio.wait(serving, timeout=STOPPING)
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, self._take_over.close(), return_exceptions=True)

    # From a lock to its release

    def _serve(self, name: str, wait: bool) -> None:
        task = asyncio.get_running_loop().create_task(self._lock_and_work(name, wait))
        self._serving[name] = task
        task.add_done_callback(lambda _: self._served(name))
        self._tasks.watch(task)

    def _served(self, name: str) -> None:
        del self._serving[name]
        self._search.schedule()

    async def _lock_and_work(self, name: str, wait: bool) -> None:
        """Lock a partition, work on it while this process has the lock, and release it."""
        began = self._clock.monotonic()
        if wait:
            self._waiting[name] = began
            try:
                lock = await self._locks.wait(name, lambda: self._wanted(name))
            finally:
                del self._waiting[name]
        else:
            self._trying.add(name)
            try:
                lock = await self._locks.try_lock(name)
            finally:
                self._trying.discard(name)
        if lock is None:
            return
        self._lock_waits.observe(self._clock.monotonic() - began)
        mark: CleanMark | None = None
        try:
            if self._known.view(name) and self._known.network:
                mark = await self._work_under(lock)
        except StaleEpoch as stale:
            log.warning("partition %s is lost: %s", name, stale)
        finally:
            await self._locks.release(lock, mark.encode() if mark else None)

    async def _work_under(self, lock: Lock) -> CleanMark | None:
        """Work until the lock is to be released; a mark if the partition is left in order."""
        name, partitions = lock.partition, self._partitions
        view = self._known.view(name)
        assert view
        replica = partitions.replicas.pop(name, None)
        if replica and replica.map_number != view.map_number:
            replica = None
        worker = replica.worker if replica else self._create(name, lock.epoch)
        worker.begin_epoch(lock.epoch)
        partitions.owned[name] = worker
        written = self._take_over.open_log(lock, replica.position if replica else "")
        held = HeldPartition(lock, worker, written, view.map_number)
        self._held[name] = held
        partitions.changed()
        began = self._clock.monotonic()
        try:
            await self._become_owner(held, replica is not None)
            held.ready_at = self._clock.monotonic()
            self._prices.note(replica is not None, held.ready_at - began)
            worker = held.worker
            working = held.start(self._known)
            self._search.schedule()
            if self._known.view(name):
                await asyncio.wait([working])
        finally:
            await self._leave(held)
        if working.cancelled():
            await worker.clear()
            return None
        if reason := working.result():
            raise StaleEpoch(reason)
        mark = CleanMark(lock.epoch, worker.network, held.map_number)
        worker.follow_networks()
        partitions.replicas[name] = Replica(worker, held.map_number, held.log.position)
        # A lost switch has not carried out what was left out for it. When it is back, the next
        # owner has to declare the partition to it, so the partition is not in order.
        return mark if self._southbound.all_caught_up else None

    async def _become_owner(self, held: HeldPartition, is_replica: bool) -> None:
        await self._take_over.raise_and_load(held, is_replica)
        self._partitions.loaded[held.worker.name] = held.worker
        await self._take_over.declare_unless_in_order(held)
        held.worker.ready = True
        self._partitions.changed()

    def _create(self, name: str, epoch: int) -> PartitionWorker:
        worker = self._partitions.create(name, epoch, self._reply)
        self._partitions.owned[name] = worker
        return worker

    async def _leave(self, held: HeldPartition) -> None:
        """Stop work on a partition; its tasks are sent back, for the next owner."""
        name = held.worker.name
        # Before anything is awaited: it must not be lost a second time meanwhile.
        del self._held[name]
        self._partitions.owned.pop(name, None)
        self._partitions.loaded.pop(name, None)
        try:
            await held.stop()
        finally:
            held.worker.leave()
            self._partitions.changed()

    # Losing

    def _lose_all(self) -> None:
        """Give up all partitions: the lease has expired, so others may have done anything since."""
        self._partitions.replicas.clear()
        for name in list(self._held):
            self.lose(name, "the lease of its lock was not renewed")

    def lose(self, partition: str, reason: str) -> None:
        """Stop work on a partition; its tasks are sent back, for the next owner."""
        if partition in self._held:
            log.warning("partition %s is lost: %s", partition, reason)
            self._serving[partition].cancel()

    def drop(self, partition: str, reason: str) -> None:
        """Stop work on a partition that no longer exists, and delete its entries."""
        held = self._held.get(partition)
        if held and held.working:
            log.info("partition %s is cleared: %s", partition, reason)
            held.working.cancel()

    def copies(self) -> list[CopyState]:
        """None: any configurator can lock any partition."""
        return []
