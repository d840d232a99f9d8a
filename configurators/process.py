"""The process of a configurator: owns partitions, keeps their engines, works on their tasks.

It takes up what `owners/` gives it: raises the fence, reads the records, loads the engines,
declares what the switches should hold, and then works. All of it can be repeated at any moment: the
truth is in etcd.
"""

import asyncio
import logging
import os
import platform
from collections.abc import Coroutine, Mapping
from functools import partial
from itertools import count
from typing import Any, NamedTuple

from msgspec import Struct

from configurators.engine.engine import Engine, Ordering
from configurators.gc_tuning import tune_garbage_collector
from configurators.ownership.claims import claim
from configurators.ownership.take_over import TakeOver
from configurators.partition.leftovers import Leftovers
from configurators.partition.replies import Answers, tell
from configurators.partition.waiting import saying_why
from configurators.partition.worker import PartitionOptions, Ticks, Worker
from configurators.southbound.clients import Holders
from configurators.state.loading import read
from configurators.state.network import Network, steps
from configurators.state.spaces import Spaces, VersionView
from configurators.store.documents import (
    BadDocument,
    decode_network,
    decode_space,
)
from configurators.store.etcd.client import Access, Change, Etcd
from configurators.store.following import News, follow
from configurators.store.keys import (
    CONFIGURATORS,
    NETWORK,
    OWNERS,
    SPACES,
    PartitionName,
)
from configurators.store.model import NetworkDoc, Process
from configurators.store.registration import Registration
from configurators.streams.messages import Done, Load, Offers, Task, Tasks, ToConfigurator, Waiting
from configurators.streams.stream import Listener, Stream
from sdn.fence import StaleEpoch

log = logging.getLogger(__name__)

TUNE_FROM = 1000  # requests that were loaded, below which the garbage collector is left as it is
EARLY = (
    2  # turns of telling the load for which a task waits until it is known who owns its partition
)
LOADED_AT_ONCE = 500  # requests; then others have their turn, the sign of life above all


class Early(NamedTuple):
    """Tasks for a partition that is not ours, or not under this epoch, as far as is known here."""

    tasks: list[Task]
    stream: Stream
    epoch: int | None
    turns: int  # for which they wait


class ConfiguratorOptions(Struct, frozen=True):
    """How a configurator works."""

    ordering: Ordering = "net"
    slice_limit: int = 500
    gather_ms: float = 5.0
    lease_s: int = 5  # after which others take over, if it gives no sign of life
    take_over_after_s: float = 2.0  # has another one to come back that is gone
    take_over_first_s: float = 10.0  # the same if it was gone when this one started
    load_every_s: float = 1.0
    advertise: str = ""  # host:port where others reach it, if that is not where it listens
    node: str = ""  # the machine it runs on
    tune_gc: bool = True  # of the whole Python process
    at_once: int = 4  # partitions that are worked on at the same time (mode `sea`)
    patience_s: float = 0.1  # before it waits for a lock that somebody else has (mode `sea`)

    def of_partitions(self) -> PartitionOptions:
        """What of it concerns each partition."""
        return PartitionOptions(self.ordering, self.slice_limit, self.gather_ms / 1000)


class ConfiguratorProcess:
    """A configurator; `run` works until it is told to stop."""

    def __init__(
        self,
        access: Access,
        token: bytes,
        id: str,
        listen: str = "127.0.0.1:0",
        options: ConfiguratorOptions | None = None,
    ) -> None:
        self.id = id
        self.options = options or ConfiguratorOptions()
        self._etcd = Etcd(access)
        self._spaces = Spaces()
        self._spaces_read = False
        self._network: Network | None = None
        self._revision = 0  # of the network
        self._lost: frozenset[str] = frozenset()  # the switches that this network does without
        self._newest: tuple[NetworkDoc, int] | None = None  # the network that is to be taken up
        self._network_came = asyncio.Event()
        self._workers: dict[str, Worker] = {}
        self._loaded: dict[str, Worker] = {}
        self._clearing: list[Worker] = []  # of partitions that are no more
        self._given: dict[str, int] = {}  # ours, but not taken over yet
        self._running: dict[str, asyncio.Task[None]] = {}
        self._early: dict[str, list[Early]] = {}
        self._answers = Answers()
        self._telling = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._failed: asyncio.Future[Any] | None = None
        self._numbers = count(1)
        self._ticks = Ticks(self.options.of_partitions().gather)
        self._listener = Listener(
            listen, token, self._hear, ToConfigurator, name=id, on_open=self._opened
        )
        self._leftovers = Leftovers(self._etcd, lambda: self._loaded.values())
        self._holders = Holders(
            self._etcd,
            token,
            id,
            owned=lambda: [*self._clearing, *self._loaded.values()],
            epochs=lambda: {name: worker.epoch for name, worker in self._workers.items()},
            stale=self._lose,
        )
        self._registration: Registration | None = None

    @property
    def address(self) -> str:
        """Where its stream listens, once it runs."""
        return self.options.advertise or self._listener.address

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set; Superseded if another process takes the id over."""
        self._failed = asyncio.get_running_loop().create_future()
        async with self._etcd, self._holders, self._listener:
            try:
                self._register()
                self._spawn(self._follow_network())
                self._spawn(self._take_up_networks())
                self._spawn(self._follow_spaces())
                self._spawn(self._follow_owners())
                self._spawn(self._take_over_from_others())
                self._spawn(self._tell_regularly())
                self._spawn(self._leftovers.run())
                stopping: asyncio.Future[Any] = asyncio.ensure_future(stop.wait())
                await asyncio.wait([stopping, self._failed], return_when=asyncio.FIRST_COMPLETED)
                stopping.cancel()
                if self._failed.done():
                    self._failed.result()
            finally:
                tasks = [*self._tasks, *self._running.values()]
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                self._failed.cancel()

    def _register(self) -> None:
        options = self.options
        node = options.node or platform.node()
        process = Process(self.id, self.address, os.getpid(), node)
        self._registration = Registration(
            self._etcd, CONFIGURATORS + self.id, process, options.lease_s
        )
        self._spawn(self._registration.keep())

    # What dispatchers send

    def _hear(self, stream: Stream, message: Tasks | Offers) -> None:
        if isinstance(message, Offers):
            log.error("%s offers tasks, as in mode sea; this is mode sna", stream.peer)
            return
        for partition, tasks in message.tasks.items():
            worker = self._workers.get(partition)
            epoch = message.epochs.get(partition)
            if worker and (epoch is None or epoch <= worker.epoch):
                self._put(worker, tasks, stream, epoch)
            else:
                # Perhaps it was given to us just now, and the dispatcher heard of it first.
                early = Early(tasks, stream, epoch, EARLY)
                self._early.setdefault(partition, []).append(early)

    def _put(self, worker: Worker, tasks: list[Task], stream: Stream, epoch: int | None) -> None:
        if epoch is None or epoch == worker.epoch:
            worker.put(tasks, stream)
        else:
            self._answer_moved(worker.name, tasks, stream)

    def _answer_moved(self, partition: str, tasks: list[Task], stream: Stream) -> None:
        for task in tasks:
            self._answer(stream, Done(partition, task.id, task.seq, 0, "moved"))

    def _opened(self, stream: Stream) -> None:
        self._tell_soon()
        self._spawn(self._leftovers.watch(stream))

    def _answer(self, to: object, answer: Done | Waiting) -> None:
        if to is not None:
            self._answers.answer(to, answer)

    # What is told of the load

    async def _tell_regularly(self) -> None:
        while True:
            self._tell_load()
            await asyncio.sleep(self.options.load_every_s)
            self._give_up_early()

    def _tell_soon(self) -> None:
        """Tell the load with the next turn of the loop: something has changed."""
        if not self._telling:
            self._telling = True
            asyncio.get_running_loop().call_soon(self._tell_load)

    def _tell_load(self) -> None:
        self._telling = False
        loads = [worker.load() for worker in self._workers.values()]
        network = min((w.network for w in self._workers.values()), default=self._revision)
        message = Load(self.id, network, loads)
        for stream in list(self._listener.streams):
            tell(stream, message)

    def _give_up_early(self) -> None:
        """Tasks of partitions that are not ours after all."""
        for partition in list(self._early):
            left = []
            for early in self._early.pop(partition):
                if early.turns:
                    left.append(early._replace(turns=early.turns - 1))
                else:
                    self._answer_moved(partition, early.tasks, early.stream)
            if left:
                self._early[partition] = left

    # Network and spaces

    async def _follow_network(self) -> None:
        async for news in follow(self._etcd, NETWORK):
            for change in news.changes[-1:]:
                if change.value is not None and change.revision > self._revision:
                    doc = decode_network(change.value)
                    # At once: what waits for a lost switch keeps the network from being taken up.
                    self._holders.lose(doc.lost.switches)
                    self._newest = doc, change.revision
                    self._network_came.set()

    async def _take_up_networks(self) -> None:
        while True:
            await self._network_came.wait()
            self._network_came.clear()
            assert self._newest
            await self._take_up_network(*self._newest)

    async def _take_up_network(self, doc: NetworkDoc, revision: int) -> None:
        if self._network:
            # Ports and groups first, then the entries that use them.
            why = partial(self._holders.not_taken_up, revision)
            with saying_why(self._workers.values(), why):
                await self._holders.until_network(revision)
            await self._holders.until_back(self._lost.difference(doc.lost.switches))
        *between, last = steps(doc, self._network)
        for step in between:
            self._go_over(step, self._revision)
        self._go_over(last, revision)
        self._lost = frozenset(doc.lost.switches)
        self._take_over_known()
        self._tell_soon()

    def _go_over(self, doc: NetworkDoc, revision: int) -> None:
        self._network = Network.of(doc, self._network)
        self._revision = revision
        for worker in self._workers.values():
            worker.take_up(revision, self._network)

    async def _follow_spaces(self) -> None:
        async for news in follow(self._etcd, SPACES):
            if news.whole:
                there = {change.key.removeprefix(SPACES) for change in news.changes}
                for space in list(self._spaces):
                    if space.name not in there:
                        self._spaces.drop(space.name)
            for change in news.changes:
                if change.value is None:
                    self._spaces.drop(change.key.removeprefix(SPACES))
                else:
                    self._take_space(change)
            self._spaces_read = True
            for name in [n for n in self._workers if not self._view(n)]:
                self._drop(name, "its space, or this version of it, is gone")
            self._take_over_known()

    def _take_space(self, change: Change) -> None:
        assert change.value is not None
        try:
            self._spaces.put(decode_space(change.value))
        except BadDocument as error:
            log.error("%s cannot be read: %s", change.key, error)

    def _view(self, partition: str) -> VersionView | None:
        try:
            return self._spaces.version(PartitionName.parse(partition))
        except ValueError:
            return None  # a key of somebody else's making

    # Ownership

    async def _take_over_from_others(self) -> None:
        options = self.options
        grace, first = options.take_over_after_s, options.take_over_first_s
        await TakeOver(self._etcd, self.id, grace, first).run()

    async def _follow_owners(self) -> None:
        self._given, revision = await claim(self._etcd, self.id)
        self._take_over_known()
        async for news in follow(self._etcd, OWNERS, revision):
            await self._take_owners(news)

    async def _take_owners(self, news: News) -> None:
        given: dict[str, int] = {}
        latest = {change.key.removeprefix(OWNERS): change for change in news.changes}
        for name, change in latest.items():
            worker = self._workers.get(name)
            epoch = worker.epoch if worker else self._given.get(name, 0)
            if change.revision <= epoch:
                continue  # our own, or older than that
            self._given.pop(name, None)
            if change.value == self.id.encode():
                given[name] = change.revision
            elif worker and change.value is None:
                self._drop(name, "it has no owner any more")
            elif worker:
                self._lose(name, f"it belongs to {change.value!r} now")
        if news.whole:
            for name in [name for name in self._given if name not in latest]:
                del self._given[name]
            for name in [name for name in self._workers if name not in latest]:
                self._drop(name, "it has no owner any more")
        if given:
            # Unless that was done by another process with the same id, which stops this one.
            assert self._registration
            await self._registration.confirm()
            for name in given:
                self._lose(name, "it was given anew")
            self._given |= given
            self._take_over_known()

    def _take_over_known(self) -> None:
        """Take over what is ours, as far as space and network are known."""
        known = {name: epoch for name, epoch in self._given.items() if self._view(name)}
        if known and self._network and self._spaces_read:
            for name in known:
                del self._given[name]
            self._spawn(self._take_over(known))

    async def _take_over(self, given: Mapping[str, int]) -> None:
        """Become the owner of partitions, whatever was done with them before."""
        workers = {name: self._make(name, epoch) for name, epoch in given.items()}
        self._tell_soon()
        with saying_why(workers.values(), self._holders.not_reached):
            await self._holders.raise_epochs(given)
        views = {name: view for name in workers if (view := self._view(name))}
        found = await read(self._etcd, views)
        for name, loaded in found.items():
            worker = workers[name]
            if self._workers.get(name) is not worker:
                continue  # it was lost meanwhile
            for at in range(0, len(loaded), LOADED_AT_ONCE):
                worker.engine.load(one.partial for one in loaded[at : at + LOADED_AT_ONCE])
                await asyncio.sleep(0)
            worker.know((one.partial.id, one.seq) for one in loaded)
            worker.entries = worker.engine.count()
            if self._workers.get(name) is worker:
                self._loaded[name] = worker
        if self.options.tune_gc and sum(map(len, found.values())) > TUNE_FROM:
            tune_garbage_collector(second_generation=50)
        for name, worker in workers.items():
            if self._loaded.get(name) is worker:
                self._running[name] = task = asyncio.get_running_loop().create_task(
                    self._work(worker)
                )
                task.add_done_callback(self._ended)
        await self._holders.declare([w for n, w in workers.items() if self._loaded.get(n) is w])
        for worker in workers.values():
            worker.ready = True
        log.info("%d partitions are taken over", len(workers))
        self._tell_soon()

    def _make(self, name: str, epoch: int) -> Worker:
        view = self._view(name)
        assert view
        assert self._network
        scope = view.scope(self._network.pipeline.prefix)
        worker = Worker(
            name,
            epoch,
            Engine(self._network.plan(scope)),
            scope,
            self._holders,
            self._answer,
            self._tell_soon,
            self._numbers,
            self.options.of_partitions(),
            self._ticks,
        )
        worker.network = self._revision
        self._workers[name] = worker
        for early in self._early.pop(name, ()):
            self._put(worker, early.tasks, early.stream, early.epoch)
        return worker

    async def _work(self, worker: Worker) -> None:
        reason = await worker.run()
        if self._workers.get(worker.name) is worker:  # and not given to us anew meanwhile
            self._lose(worker.name, reason)

    def _lose(self, name: str, reason: str) -> None:
        """Somebody else owns a partition: what is left of its tasks is for them."""
        worker = self._workers.pop(name, None)
        if worker:
            log.warning("partition %s is no longer ours: %s", name, reason)
            self._loaded.pop(name, None)
            self._stop(worker)
            self._tell_soon()

    def _drop(self, name: str, reason: str) -> None:
        """Nobody needs a partition any more: its entries go."""
        worker = self._workers.get(name)
        if worker:
            self._lose(name, reason)
            self._spawn(self._clear(worker))

    async def _clear(self, worker: Worker) -> None:
        self._clearing.append(worker)
        try:
            await worker.clear()
        except StaleEpoch as stale:
            log.info("partition %s is cleared by somebody else: %s", worker.name, stale)
        finally:
            self._clearing.remove(worker)

    def _stop(self, worker: Worker) -> None:
        running = self._running.pop(worker.name, None)
        if running:
            running.cancel()
        worker.leave()

    # Tasks

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error and self._failed and not self._failed.done():
            self._failed.set_exception(error)
