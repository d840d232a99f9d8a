"""A configurator in mode `sea`: all configurators share all partitions, and lock what they work on.

Dispatchers offer tasks to all. Whoever has room takes the first offer whose partition it has locked
or can lock at once. A lock is kept until somebody else waits for it, and every owner begins with
what the one before left: the journal of the partition says what was done, a mark that it was left
in order; without the mark the switches are compared.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from zlib import crc32

from configurators.ownership.coalesce import Gathered
from configurators.ownership.partition_log import Journal, Mark
from configurators.partition.replica import build, catch_up
from configurators.partition.replies import tell
from configurators.partition.worker import Worker
from configurators.process import ConfiguratorOptions, ConfiguratorProcess
from configurators.state.loading import Loaded, read
from configurators.store.etcd.client import Access, StoreError
from configurators.store.locks import Lock, Locks
from configurators.store.model import NetworkDoc
from configurators.streams.messages import Done, Offers, Take, Task, Tasks, Waiting
from configurators.streams.stream import Stream
from sdn.fence import StaleEpoch

log = logging.getLogger(__name__)

ADOPT_EVERY = 0.2  # seconds between looks for partitions that nobody has locked
ADOPT_WITHIN = 0.4  # seconds over which configurators spread their attempts at each
STOPPING = 3.0  # seconds to end what is under way


class _Offer:
    """What dispatchers have for a partition."""

    def __init__(self, now: float) -> None:
        self.since = now  # when it came, or some of it was last taken
        self.counts: dict[Stream, int] = {}


class _Hold:
    """A partition that is ours."""

    def __init__(self, lock: Lock, worker: Worker, journal: Journal) -> None:
        self.lock = lock
        self.worker = worker
        self.journal = journal
        self.asked: set[Stream] = set()  # who has not answered yet
        self.before = worker.done
        self.run: asyncio.Task[str] | None = None
        self.cutting: asyncio.Task[None] | None = None

    @property
    def stuck(self) -> bool:
        """Whether it waits for a switch."""
        return self.worker.reason is not None and self.worker.unfinished > 0

    @property
    def busy(self) -> bool:
        """Whether it takes up room: one that waits for a switch does not."""
        return not (self.idle or self.stuck)

    @property
    def idle(self) -> bool:
        """Whether nothing was taken that is not done."""
        return not (self.worker.unfinished or self.asked)


class SharedConfigurator(ConfiguratorProcess):
    """A configurator that owns nothing for good; `run` works until it is told to stop."""

    def __init__(
        self,
        access: Access,
        token: bytes,
        id: str,
        listen: str = "127.0.0.1:0",
        options: ConfiguratorOptions | None = None,
    ) -> None:
        super().__init__(access, token, id, listen, options)
        self._locks = Locks(
            self._etcd,
            id,
            self.options.lease_s,
            on_change=lambda _: self._look_soon(),
            on_lost=self._locks_lost,
        )
        self._offers: dict[str, _Offer] = {}
        self._holds: dict[str, _Hold] = {}
        # Partitions that are not ours now, with the place in their journals that they are at.
        self._replicas: dict[str, tuple[Worker, str]] = {}
        self._serving: dict[str, asyncio.Task[None]] = {}
        self._trying: set[str] = set()
        self._unclaimed: dict[str, float] = {}  # since when nobody has them
        self._looking = False
        self._closing = False
        self._raises = Gathered(self._raise_epochs)
        self._reads = Gathered(self._read_records)
        self._declares = Gathered(self._declare)

    # What dispatchers send

    def _hear(self, stream: Stream, message: Tasks | Offers) -> None:
        if isinstance(message, Offers):
            self._take_offers(stream, message)
            return
        for partition, tasks in message.tasks.items():
            hold = self._holds.get(partition)
            if hold:
                hold.asked.discard(stream)
                self._note_taken(partition, stream, len(tasks))
                hold.worker.put(tasks, stream)
            else:
                for task in tasks:
                    self._answer(stream, Done(partition, task.id, task.seq, 0, "moved"))
        self._look_soon()

    def _take_offers(self, stream: Stream, message: Offers) -> None:
        now = asyncio.get_running_loop().time()
        gone = False
        for partition, count in message.counts.items():
            offer = self._offers.setdefault(partition, _Offer(now))
            if count < offer.counts.pop(stream, 0):
                offer.since = now
            if count:
                offer.counts[stream] = count
            elif not offer.counts:
                del self._offers[partition]
                gone = True
        if gone:
            self._locks.look_again()
        self._look_soon()

    def _note_taken(self, partition: str, stream: Stream, count: int) -> None:
        """Some of an offer is taken; that is told, too, but only afterwards."""
        offer = self._offers.get(partition)
        if offer and stream in offer.counts:
            offer.since = asyncio.get_running_loop().time()
            offer.counts[stream] -= count
            if offer.counts[stream] <= 0:
                del offer.counts[stream]

    def _answer(self, to: object, answer: Done | Waiting) -> None:
        super()._answer(to, answer)
        self._look_soon()

    # What to work on

    def _look_soon(self) -> None:
        """Look for work with the next turn of the loop: something has changed."""
        if not self._looking:
            self._looking = True
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        self._looking = False
        if self._closing or not self._network or not self._spaces_read:
            return
        room = self.options.at_once - sum(hold.busy for hold in self._holds.values())
        room -= len(self._trying)
        for name, offer in list(self._offers.items()):
            for stream in [stream for stream in offer.counts if stream.closed.is_set()]:
                del offer.counts[stream]
            if not offer.counts:
                del self._offers[name]
                continue
            hold = self._holds.get(name)
            if hold:
                room -= self._take(hold, offer, room)
            elif name not in self._serving and room > 0 and self._view(name):
                room -= self._try(name, offer)
        for hold in self._holds.values():
            self._give_others_a_turn(hold, room)

    def _take(self, hold: _Hold, offer: _Offer, room: int) -> int:
        """Take what is offered for a partition of ours; 1 if it takes up room from now on."""
        worker = hold.worker
        hold.asked = {stream for stream in hold.asked if not stream.closed.is_set()}
        starts = not hold.busy
        if not worker.ready or hold.stuck or (starts and room <= 0):
            return 0
        for stream in offer.counts.keys() - hold.asked:
            limit = self.options.slice_limit - worker.unfinished
            if limit > 0:
                hold.asked.add(stream)
                tell(stream, Take(worker.name, worker.epoch, limit))
        return int(starts and hold.busy)

    def _try(self, name: str, offer: _Offer) -> int:
        """Begin to lock a partition that is offered, if that may be; 1 if it takes up room."""
        loop = asyncio.get_running_loop()
        left = offer.since + self.options.patience_s - loop.time()
        if self._locks.free(name):
            self._serve(name, wait=False)
            return 1
        if left <= 0:
            self._serve(name, wait=True)
        else:
            loop.call_later(left, self._look_soon)
        return 0

    def _give_others_a_turn(self, hold: _Hold, room: int) -> None:
        """Release what others wait for: after a slice, or if we do not get to it."""
        worker, lock = hold.worker, hold.lock
        if not any(claim.epoch > lock.epoch for claim in self._locks.table.claims(worker.name)):
            return
        worked = worker.done != hold.before
        if worker.ready and (
            worked or (hold.idle and (room <= 0 or worker.name not in self._offers))
        ):
            worker.stop_soon()

    async def _follow_owners(self) -> None:
        """Locks take the place of owners."""
        async with self._locks:
            try:
                while True:
                    self._adopt()
                    await asyncio.sleep(ADOPT_EVERY)
            finally:
                await self._release_all()

    def _adopt(self) -> None:
        """Lock what nobody has: somebody has to see to it that switches hold what they should."""
        now = asyncio.get_running_loop().time()
        nobodys = [
            name
            for view in self._spaces
            for name in view.partitions()
            if name not in self._serving and self._locks.free(name)
        ]
        self._unclaimed = {name: self._unclaimed.get(name, now) for name in nobodys}
        for name, since in self._unclaimed.items():
            turn = crc32(f"{self.id} {name}".encode()) / (1 << 32) * ADOPT_WITHIN
            if self._network and now - since >= turn:
                self._serve(name, wait=False)

    async def _release_all(self) -> None:
        self._closing = True
        for hold in self._holds.values():
            hold.worker.stop_soon()
        serving = list(self._serving.values())
        for name, task in self._serving.items():
            if name not in self._holds:
                task.cancel()
        if serving:
            await asyncio.wait(serving, timeout=STOPPING)
        for task in serving:
            task.cancel()
        gathering = (self._raises.close(), self._reads.close(), self._declares.close())
        await asyncio.gather(*serving, *gathering, return_exceptions=True)

    # The time of a lock

    def _serve(self, name: str, wait: bool) -> None:
        task = asyncio.get_running_loop().create_task(self._have(name, wait))
        self._serving[name] = task

        def ended(task: "asyncio.Task[None]") -> None:
            del self._serving[name]
            self._ended(task)
            self._look_soon()

        task.add_done_callback(ended)

    async def _have(self, name: str, wait: bool) -> None:
        """Lock a partition, work on it while it is ours, and release it."""
        if wait:
            lock = await self._locks.wait(name, lambda: name in self._offers)
        else:
            self._trying.add(name)
            try:
                lock = await self._locks.try_lock(name)
            finally:
                self._trying.discard(name)
        if lock is None:
            return
        mark: bytes | None = None
        try:
            if self._view(name) and self._network:
                mark = await self._work_under(lock)
        except StaleEpoch as stale:
            log.warning("partition %s is no longer ours: %s", name, stale)
        finally:
            await self._locks.release(lock, mark)

    async def _work_under(self, lock: Lock) -> bytes | None:
        """Work until the lock is to be released; a mark if everything is in order."""
        name = lock.partition
        worker, place = self._replicas.pop(name, (None, ""))
        known = worker is not None
        if worker is None:
            worker = self._make(name, lock.epoch)
        worker.epoch = lock.epoch
        worker.ready = False
        self._workers[name] = worker
        hold = self._holds[name] = _Hold(lock, worker, Journal(self._etcd, lock, place))
        self._tell_soon()
        try:
            await self._begin(hold, known)
            worker = hold.worker
            hold.run = asyncio.create_task(worker.run())
            self._look_soon()
            if self._view(name):
                await asyncio.wait([hold.run])
        finally:
            await self._leave(hold)
        if hold.run.cancelled():
            await worker.clear()
            return None
        if reason := hold.run.result():
            raise StaleEpoch(reason)
        mark = Mark(lock.epoch, worker.network)
        worker.follow_networks()
        self._replicas[name] = worker, hold.journal.place
        # A lost switch has not done what was left out: when it is back, somebody has to tell it.
        return mark.encode() if self._holders.all_told else None

    async def _begin(self, hold: _Hold, known: bool) -> None:
        """Become the owner: nobody older gets through, and the state is what was left."""
        lock, worker = hold.lock, hold.worker
        name = worker.name
        await self._raises.ask(name, lock.epoch)
        found = await hold.journal.read()
        if known and not (found.gap and self._view(name)):
            catch_up(worker, found.tasks)
        else:
            if known:
                worker = hold.worker = self._make(name, lock.epoch)
                hold.before = 0
                hold.journal = Journal(self._etcd, lock)
                found = await hold.journal.read()
            build(worker, await self._reads.ask(name, None), found.tasks)
        worker.keep = lambda tasks: self._keep(hold, tasks)
        self._loaded[name] = worker
        # If it was left in order, southbound processes know what switches should hold; unless they
        # came while nobody owned it. Those that come from now on are told by us.
        in_order = lock.mark is not None and Mark.decode(lock.mark).network == worker.network
        if not in_order or not await self._raises.ask(name, lock.epoch):
            await self._declares.ask(name, worker)
        worker.ready = True
        self._tell_soon()

    async def _keep(self, hold: _Hold, tasks: Sequence[Task]) -> None:
        await hold.journal.write(tasks)
        if hold.journal.long and (hold.cutting is None or hold.cutting.done()):
            hold.cutting = asyncio.create_task(self._cut(hold.journal))

    async def _cut(self, journal: Journal) -> None:
        try:
            await journal.cut()
        except (StoreError, StaleEpoch) as error:
            log.info("a journal is not cut now: %s", error)

    async def _leave(self, hold: _Hold) -> None:
        """Stop work on a partition; what is left of its tasks is for the next owner."""
        name = hold.worker.name
        tasks = [task for task in (hold.run, hold.cutting) if task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        del self._holds[name]
        self._workers.pop(name, None)
        self._loaded.pop(name, None)
        hold.worker.leave()
        self._tell_soon()

    def _locks_lost(self) -> None:
        """All locks are lost; others may have done anything since."""
        self._replicas.clear()
        for name in list(self._holds):
            self._lose(name, "the lease of its lock was not renewed")

    def _lose(self, name: str, reason: str) -> None:
        """Somebody else owns a partition: what is left of its tasks is for them."""
        if name in self._holds:
            log.warning("partition %s is no longer ours: %s", name, reason)
            self._serving[name].cancel()

    def _drop(self, name: str, reason: str) -> None:
        """Nobody needs a partition any more: its entries go."""
        hold = self._holds.get(name)
        if hold and hold.run:
            log.info("partition %s is cleared: %s", name, reason)
            hold.run.cancel()

    # Network and spaces

    def _go_over(self, doc: NetworkDoc, revision: int) -> None:
        super()._go_over(doc, revision)
        assert self._network
        for worker, _ in self._replicas.values():
            worker.take_up(revision, self._network)
            worker.follow_networks()

    async def _take_over_from_others(self) -> None:
        """Locks of the dead expire; whoever gets them next takes over."""

    def _take_over_known(self) -> None:
        """Work with what is known now of spaces and network."""
        for name in [name for name in self._replicas if not self._view(name)]:
            del self._replicas[name]
        self._look_soon()

    # For several partitions at once

    async def _raise_epochs(self, epochs: Mapping[str, int]) -> Mapping[str, bool]:
        """Raise fences; whether all southbound processes know what switches should hold."""
        undeclared = await self._holders.raise_epochs(epochs)
        return {name: name not in undeclared for name in epochs}

    async def _read_records(self, names: Mapping[str, None]) -> Mapping[str, list[Loaded]]:
        views = {name: view for name in names if (view := self._view(name))}
        # What is under way is in the journals, as far as it was done.
        found = await read(self._etcd, views, settled=True)
        return {name: [] for name in names} | found

    async def _declare(self, workers: Mapping[str, Worker]) -> Mapping[str, None]:
        await self._holders.declare(list(workers.values()))
        return dict.fromkeys(workers)
