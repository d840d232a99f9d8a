"""The process of a configurator: wires its parts together, and runs them until it is stopped.

A configurator owns partitions (`ownership`), keeps an engine and a worker for each (`partition`),
and reaches the switches by the southbound processes (`southbound`). It can be killed and restarted
at any moment: everything that it knows is in etcd.
"""

import asyncio
import platform
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from configurators.engine.engine import Ordering
from configurators.environment import Environment
from configurators.histogram import Histogram
from configurators.ownership.assigned import AssignedOptions, AssignedOwnership
from configurators.ownership.locked import LockedOptions, LockedOwnership
from configurators.ownership.ownership import Mode, Ownership, OwnershipContext
from configurators.ownership.partition_log import LogOptions
from configurators.partition.followers import NetworkFollower, SpaceFollower
from configurators.partition.known_state import KnownState
from configurators.partition.leftovers import LeftoverRemover
from configurators.partition.load_reporter import LoadReporter
from configurators.partition.options import PartitionOptions
from configurators.partition.partitions import Partitions
from configurators.partition.slices.replies import ReplyBatcher
from configurators.southbound.clients import SouthboundClients
from configurators.store.etcd.client import Access
from configurators.store.keys import CONFIGURATORS
from configurators.store.model import Process
from configurators.store.registration import Registration
from configurators.streams.messages import (
    ConfiguratorCounters,
    CopyRequest,
    Load,
    Offers,
    Tasks,
    ToConfigurator,
)
from configurators.streams.stream import OnMessage, Receives, Stream
from dzflow.aio import CriticalTasks


class ConfiguratorOptions(Struct, frozen=True):
    """How a configurator works; times are in seconds, unless the name says otherwise."""

    ordering: Ordering = "net"
    slice_limit: int = 500
    gather_ms: float = 20.0
    lease_s: int = 5  # after which others consider this configurator dead, without a keep-alive
    take_over_after_s: float = 2.0  # a configurator that is gone has this long to come back
    take_over_first_s: float = 10.0  # the same if it was gone already when this one started
    load_every_s: float = 1.0
    advertise: str = ""  # host:port where others reach it, if that is not where it listens
    node: str = ""  # the machine that it runs on
    tune_gc: bool = True  # of the whole Python process
    mode: Mode = "sna"
    at_once: int = 0  # partitions that are worked on at a time, oldest request first; 0: all
    patience_s: float = 0.1  # before it waits for a lock that another one has (mode `sea`)
    log: LogOptions = LogOptions()  # of partitions (mode `sea`)

    def for_partitions(self) -> PartitionOptions:
        """The options of each partition."""
        return PartitionOptions(
            self.ordering, self.slice_limit, self.gather_ms / 1000, at_once=self.at_once
        )

    def for_assigned(self) -> AssignedOptions:
        """The options of mode `sna`."""
        return AssignedOptions(
            self.take_over_after_s, self.take_over_first_s, self.load_every_s, self.tune_gc
        )

    def for_locked(self) -> LockedOptions:
        """The options of mode `sea`."""
        return LockedOptions(
            self.at_once, self.patience_s, self.slice_limit, self.lease_s, self.log
        )


OwnershipFactory = Callable[[OwnershipContext], Ownership]


class ConfiguratorProcess:
    """A configurator; `run` works until it is told to stop.

    The way to own partitions follows from the options' mode, unless `ownership` makes another one.
    `partitions` are those that the process owns, `southbound` is its way to the switches.
    """

    def __init__(
        self,
        access: Access,
        token: bytes,
        id: str,
        listen: str = "127.0.0.1:0",
        options: ConfiguratorOptions | None = None,
        environment: Environment | None = None,
        ownership: OwnershipFactory | None = None,
    ) -> None:
        self.id = id
        self.options = options or ConfiguratorOptions()
        self._environment = environment or Environment()
        self._started = self._environment.clock.wall()
        self._lock_waits = Histogram()
        self._etcd = self._environment.store(access)
        self._token = token
        self._tasks = CriticalTasks()
        self._dispatchers: set[Stream] = set()  # streams with tasks
        self._registration: Registration | None = None
        self._listener = self._environment.listener(
            listen, token, self._receive, ToConfigurator, name=id, on_open=self._opened
        )
        self._known = known = KnownState()
        self.southbound = SouthboundClients(
            self._etcd,
            token,
            id,
            owned=lambda: self.partitions.declarable(),
            epochs=lambda: self.partitions.epochs(),
            stale=lambda partition, reason: self._ownership.lose(partition, reason),
            spaces=lambda: known.spaces_revision,
            connect=self._environment.connect,
            tracer=self._environment.tracer,
        )
        self._load = LoadReporter(
            self._current_load,
            lambda: self._listener.streams,
            self.options.load_every_s,
            self._environment.clock,
        )
        self.partitions = Partitions(
            known,
            self.southbound,
            self._load.schedule,
            self.options.for_partitions(),
            self._environment.clock,
            self._environment.tracer,
        )
        context = OwnershipContext(
            id,
            self._etcd,
            self._environment.clock,
            known,
            self.partitions,
            self.southbound,
            ReplyBatcher(),
            self._open_stream,
            self._tasks,
            self._lock_waits,
        )
        self._ownership = (ownership or self._own_by_mode)(context)
        self._network = NetworkFollower(
            self._etcd, known, self.partitions, self.southbound, self._network_changed
        )
        self._spaces = SpaceFollower(
            self._etcd,
            known,
            self.partitions,
            self._ownership.drop,
            self._ownership.lose,
            self._ownership.review,
        )
        self._leftovers = LeftoverRemover(self._etcd, lambda: self.partitions.loaded.values())

    @property
    def address(self) -> str:
        """Where its stream listens, once it runs."""
        return self.options.advertise or self._listener.address

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set; Superseded if another process takes the id over."""
        async with self._etcd, self.southbound, self._listener, self._tasks as tasks:
            self._registration = self._make_registration()
            tasks.spawn(self._registration.keep())
            tasks.spawn(self._network.follow())
            tasks.spawn(self._network.take_up())
            tasks.spawn(self._spaces.follow())
            tasks.spawn(self._ownership.run())
            tasks.spawn(self._load.run())
            tasks.spawn(self._leftovers.run())
            await tasks.until(stop)

    def _own_by_mode(self, context: OwnershipContext) -> Ownership:
        if self.options.mode == "sea":
            return LockedOwnership(context, self.options.for_locked())
        return AssignedOwnership(context, self.options.for_assigned(), self._confirm_id)

    def _make_registration(self) -> Registration:
        node = self.options.node or platform.node()
        process = Process(self.id, self.address, self._environment.pid, node)
        return Registration(self._etcd, CONFIGURATORS + self.id, process, self.options.lease_s)

    async def _confirm_id(self) -> None:
        """Return when it is certain that no other process has this id; Superseded if one has."""
        assert self._registration
        await self._registration.confirm()

    async def _open_stream(self, address: str, on_message: OnMessage, receives: Receives) -> Stream:
        connect = self._environment.connect
        return await connect(address, self._token, on_message, receives, self.id)

    def _receive(self, stream: Stream, message: Tasks | Offers | CopyRequest) -> None:
        if not isinstance(message, CopyRequest) and stream not in self._dispatchers:
            self._dispatchers.add(stream)
            self._tasks.spawn(self._watch_dispatcher(stream))
        self._ownership.receive(stream, message)

    def _opened(self, _: Stream) -> None:
        self._load.schedule()

    async def _watch_dispatcher(self, stream: Stream) -> None:
        await self._leftovers.watch(stream)
        self._dispatchers.remove(stream)

    def _network_changed(self) -> None:
        self._ownership.review()
        self._load.schedule()

    def _current_load(self) -> Load:
        usage, network = self._environment.usage, self._known.network
        switches = [switch.id for switch in network.topology.switches] if network else []
        load = self.partitions.load(
            self.id,
            usage.memory(),
            usage.cpu(),
            self._ownership.copies(),
            network is not None and self.southbound.all_hold(switches),
        )
        return replace(load, counters=self._counters(), spaces=self._known.spaces_revision)

    def _counters(self) -> ConfiguratorCounters:
        outcomes = self.southbound.outcomes
        return ConfiguratorCounters(
            self._started,
            outcomes.acknowledged,
            outcomes.refused,
            outcomes.undefined,
            sum(worker.undefined for worker in self.partitions.owned.values()),
            self._lock_waits.current(),
        )
