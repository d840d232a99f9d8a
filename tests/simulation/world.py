"""A simulated control plane: all processes of one run, which can be killed and paused."""

import asyncio
import logging
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal

from msgspec import Struct

from configurators.engine.partition_map import Node, PartitionMap
from configurators.environment import Clock, Environment, Usage
from configurators.ownership.partition_log import LogOptions
from configurators.partition.worker import PartitionWorker
from configurators.process import ConfiguratorOptions, ConfiguratorProcess
from configurators.southbound.process import SouthboundProcess
from configurators.state.healing import coming
from configurators.state.network import first_network, topology_of
from configurators.state.spaces import LoadedSpace
from configurators.store.documents import (
    decode_network,
    decode_plan,
    decode_record,
    decode_space,
    encode,
)
from configurators.store.etcd.client import Access, Put, StoreError, WatchEvent
from configurators.store.keys import (
    FINISHED,
    LOCKS,
    MOVES,
    NETWORK,
    NUMBERS,
    OWNERS,
    PLANS,
    RECORDS,
    SPACES,
    locks_of,
    owner_key,
)
from configurators.store.model import NetworkDoc, Record, SpaceDoc, Version
from dispatcher.dispatcher import Dispatcher
from dispatcher.options import DispatcherOptions
from monitor.balancing.balancer import BalancerOptions
from monitor.monitor import Monitor
from sdn.network.topologies import topology
from sdn.network.topology import Topology
from sdn.tables.pipeline import PlanName
from sdn.tables.simulate import SimulatedNetwork
from tests.simulation.loop import NOWHERE, VirtualLoop
from tests.simulation.loop import Node as ProcessNode
from tests.simulation.store import SimEtcd, Store
from tests.simulation.streams import SILENCE, Wires
from tests.simulation.switches import SimServer, SimSwitch, driver_factory

Mode = Literal["sna", "sea"]

SPACE = "box"
_ACCESS = Access(("nowhere:1",))
_LEASE = 5
_WALL = 1_700_000_000.0

SCHEMA = {
    "attributes": [
        {"name": "a", "type": "int", "min": 0, "max": 15, "bits": 4},
        {"name": "b", "type": "enum", "values": ["x", "y", "z"]},
    ],
}


class Shape(Struct, frozen=True):
    """The parts of a run."""

    topology: str = "line:3"
    plan: PlanName = "legs"
    trees: int = 1
    partitions: int = 3
    configurators: int = 2
    dispatchers: int = 2
    southbound: int = 1
    ordering: str = "net"
    mode: Mode = "sna"
    at_once: int = 0
    patience: float = 0.1


SHAPES = ((0, 0), (3, 2), (0, 2), (4, 0), (4, 2), (3, 0), (3, 1), (4, 1))
_MAPS = {
    ("legs", 3): PartitionMap("legs", Node(1)),
    ("lpm", 3): PartitionMap("lpm", Node(0, one=Node(1))),
    ("legs", 5): PartitionMap("legs", Node(1, zero=Node(0))),
}


@lru_cache
def documents(shape: Shape) -> tuple[NetworkDoc, SpaceDoc]:
    """The documents of network and space, as the product makes them but without a search."""
    doc = first_network(topology(shape.topology), shape.plan, shape.trees)
    kind = "zorder" if shape.plan == "lpm" else "fields"
    schema = {**SCHEMA, "index": {"kind": kind}}
    shapes = SHAPES if kind == "fields" else None
    version = Version(schema, shapes, _MAPS[shape.plan, shape.partitions])
    return doc, SpaceDoc(SPACE, 1, {0: version}, 0)


class LoggedErrors(logging.Handler):
    """Collects exceptions that processes have logged; each one is a violation."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record that has an exception."""
        if record.exc_info and record.exc_info[1] is not None:
            self.found.append(f"{record.getMessage()}: {record.exc_info[1]!r}")


class Process:
    """A process of the control plane, over its restarts."""

    def __init__(self, world: "World", kind: str, name: str) -> None:
        self.world = world
        self.kind = kind
        self.name = name
        self.node = ProcessNode(name)
        self.node.dead = self.node.stopped = True
        self.runs = 0
        self.paused = False
        self.main: Any = None  # the product's object
        self.monitor: Monitor | None = None  # of a dispatcher
        self.calls: set[asyncio.Future[Any]] = set()  # of clients that wait for it

    @property
    def alive(self) -> bool:
        """Whether it runs, and is not paused."""
        return not self.node.stopped

    def start(self) -> None:
        """Start the process, with no state."""
        if not self.node.dead:
            return
        self.runs += 1
        self.node = ProcessNode(self.name)
        self.main = self.monitor = None
        self.paused = False
        self.world.note(f"{self.name} starts")
        self.world.loop.create_task(self._run(), context=self.node.context)

    def kill(self) -> None:
        """End the process at once, without any cleaning up."""
        if self.node.dead:
            return
        self.world.note(f"{self.name} is killed")
        self._gone()

    def pause(self, seconds: float) -> None:
        """Pause the process; it continues later as if nothing had happened."""
        if self.node.stopped:
            return
        world, node = self.world, self.node
        world.note(f"{self.name} is paused for {seconds:.1f} s")
        node.stopped = self.paused = True
        if seconds > SILENCE:
            world.loop.at(world.loop.now + SILENCE, NOWHERE, self._silent, node)
        world.loop.at(world.loop.now + seconds, NOWHERE, self.wake, node)

    def wake(self, node: ProcessNode | None = None) -> None:
        """Continue after a pause."""
        if self.paused and node in (None, self.node) and not self.node.dead:
            self.world.note(f"{self.name} continues")
            self.paused = False
            self.world.loop.resume(self.node)

    def _silent(self, node: ProcessNode) -> None:
        if node is self.node and self.paused:
            for stream in self.world.wires.of(node):
                self.world.wires.cut(stream, "no sign of life")

    def _gone(self) -> None:
        world, node = self.world, self.node
        node.dead = node.stopped = True
        self.main = self.monitor = None
        for stream in world.wires.of(node):
            world.wires.cut(stream, "the process has ended")
        world.servers.pop(node, None)
        for switch in world.switches.values():
            if node in switch.connections:
                switch.connections[node].cut("the process has ended")
        for call in self.calls:
            if not call.done():
                call.set_result(None)

    async def _run(self) -> None:
        node = self.node
        try:
            if self.kind == "configurator":
                shape = self.world.shape
                options = ConfiguratorOptions(
                    ordering=shape.ordering,  # type: ignore[arg-type]
                    lease_s=_LEASE,
                    tune_gc=False,
                    at_once=shape.at_once,
                    mode=shape.mode,
                    patience_s=shape.patience,
                    log=LogOptions(kept=4, dropped_at_once=3),
                )
                self.main = ConfiguratorProcess(
                    _ACCESS,
                    b"",
                    self.name,
                    options=options,
                    environment=self.world.environment,
                )
                await self.main.run(asyncio.Event())
            elif self.kind == "southbound":
                self.main = SouthboundProcess(
                    _ACCESS,
                    b"",
                    self.name,
                    "",
                    "host:1",
                    environment=self.world.environment,
                    open_driver=self.world.open_driver,
                )
                await self.main.run(asyncio.Event())
            else:
                # Another id for each run, as the product makes one up.
                me = DispatcherOptions(
                    id=f"{self.name}.{self.runs}",
                    mode=self.world.shape.mode,
                    lease_ttl=_LEASE,
                    plan=self.world.shape.plan,
                    reuse_from=1,
                )
                environment = self.world.environment
                async with (
                    Dispatcher(_ACCESS, b"", me, environment) as made,
                    Monitor(
                        made,
                        environment,
                        options=BalancerOptions(mode="apply"),
                    ) as monitor,
                ):
                    self.main, self.monitor = made, monitor
                    await asyncio.Event().wait()
            self.world.errors.found.append(f"{self.name} has ended")
        except StoreError as error:
            self.world.note(f"{self.name} ends: {error}")
        except Exception as error:
            logging.getLogger("simulation").exception("%s ends", self.name)
            self.world.note(f"{self.name} ends: {error!r}")
        # A supervisor restarts a process that has ended.
        world = self.world
        if node is self.node:
            world.loop.at(world.loop.now, NOWHERE, self._gone)
            world.loop.at(world.loop.now + 1.0, NOWHERE, self.start)


class World:
    """Everything in a run: etcd, streams, switches and processes."""

    def __init__(self, loop: VirtualLoop, shape: Shape, errors: LoggedErrors) -> None:
        self.loop = loop
        self.random = loop.random
        self.shape = shape
        self.errors = errors
        self.steps: list[str] | None = None  # what happened, if that is to be shown
        self.store = Store(loop)
        self.wires = Wires(loop)
        self.environment = Environment(
            clock=Clock(lambda: loop.now, lambda: _WALL + loop.now, lambda: 0.0),
            usage=Usage(lambda: 0, lambda: 0.0),
            new_id=lambda size: self.random.randbytes(size).hex(),
            pid=1,
            store=lambda access: SimEtcd(access, self.store),
            listener=self.wires.listen,
            connect=self.wires.connect,
        )
        network_doc, space_doc = documents(shape)
        self._network = 0, network_doc
        self.topology = topology_of(network_doc)
        self._present = network_doc, self.topology
        self._space = 0, LoadedSpace.of(space_doc)
        self.network = SimulatedNetwork(self.topology, network_doc.pipeline)
        self.servers: dict[ProcessNode, SimServer] = {}
        self.switches = {
            switch.id: SimSwitch(loop, switch.dpid, self.network.switches[switch.id], self.servers)
            for switch in self.topology.switches
        }
        self.open_driver = driver_factory(self.servers, self.switches)
        for switch in self.switches.values():
            switch.restart("empty")
            switch.up = True
        names = (
            ("southbound", "b", shape.southbound),
            ("configurator", "c", shape.configurators),
            ("dispatcher", "d", shape.dispatchers),
        )
        self.processes = {
            f"{letter}{n}": Process(self, kind, f"{letter}{n}")
            for kind, letter, count in names
            for n in range(1, count + 1)
        }
        owners = self.of("configurator") if shape.mode == "sna" else []
        self.store.transact(
            [],
            [
                Put(NETWORK, encode(network_doc)),
                Put(SPACES + SPACE, encode(space_doc)),
                Put(f"{NUMBERS}1", SPACE.encode()),
                *(
                    Put(owner_key(name), owners[n % len(owners)].name.encode())
                    for n, name in enumerate(self._space[1].partitions() if owners else ())
                ),
            ],
            [],
        )

    def note(self, text: str) -> None:
        """Add a line to the steps."""
        if self.steps is not None:
            self.steps.append(f"{self.loop.now - 1000:9.4f}  {text}")

    def note_change(self, change: WatchEvent) -> None:
        """Add the change of a key to the steps."""
        text = "is gone" if change.value is None else f"is {change.value[:20]!r}"
        if change.value is not None and change.key.startswith((RECORDS, FINISHED)):
            record = decode_record(change.value)
            following = f", next {record.next.filter}" if record.next else ""
            text = f"is {record.state} {record.filter}{following}, seq {record.seq}, by {record.by}"
        self.note(f"etcd {change.revision}: {change.key} {text}")

    def after(self, seconds: float, call: Callable[..., object], *args: object) -> None:
        """Make a call later, whatever processes run then."""
        self.loop.at(self.loop.now + seconds, NOWHERE, call, *args)

    def of(self, kind: str) -> list[Process]:
        """The processes of a kind."""
        return [process for process in self.processes.values() if process.kind == kind]

    def start(self) -> None:
        """Start all processes."""
        for process in self.processes.values():
            process.start()

    @property
    def space(self) -> LoadedSpace:
        """The stored space."""
        stored = self.store.get(SPACES + SPACE)
        assert stored
        if stored.revision != self._space[0]:
            self._space = stored.revision, LoadedSpace.of(decode_space(stored.value))
        return self._space[1]

    @property
    def partitions(self) -> tuple[str, ...]:
        """The partitions of the space."""
        return self.space.partitions()

    @property
    def network_doc(self) -> NetworkDoc:
        """The stored network."""
        stored = self.store.get(NETWORK)
        assert stored
        if stored.revision != self._network[0]:
            self._network = stored.revision, decode_network(stored.value)
        return self._network[1]

    @property
    def present(self) -> Topology:
        """The network with the hosts that are there now."""
        doc = self.network_doc
        if self._present[0] is not doc:
            self._present = doc, topology_of(doc)
        return self._present[1]

    def records(self) -> list[Record]:
        """All stored records."""
        return [decode_record(item.value) for item in self.store.under(RECORDS)]

    def workers(self) -> dict[str, PartitionWorker]:
        """The worker of each partition that has one, at its owner."""
        found: dict[str, PartitionWorker] = {}
        for name, (owner, epoch) in self.owners().items():
            process = self.processes[owner]
            worker = (
                process.main.partitions.owned.get(name) if process.alive and process.main else None
            )
            if worker and worker.epoch == epoch:
                found[name] = worker
        return found

    def owners(self) -> dict[str, tuple[str, int]]:
        """The owner of each partition, or the holder of its lock, with the epoch."""
        if self.shape.mode == "sna":
            stored = self.store.under(OWNERS)
            return {i.key.removeprefix(OWNERS): (i.value.decode(), i.revision) for i in stored}
        found: dict[str, tuple[str, int]] = {}
        for name in self.partitions:
            claims = self.store.under(locks_of(name))
            if claims:
                first = min(claims, key=lambda item: item.created)
                found[name] = first.value.decode(), first.created
        return found

    def busy(self) -> str:
        """What is not at rest; empty if everything is."""
        for process in self.processes.values():
            if not process.alive or process.main is None:
                return f"{process.name} does not run"
        for record in self.records():
            if record.open:
                return f"{record.id} is open: {record.state} by {record.by}, {record.reason}"
        if moves := self.store.under(MOVES):
            return f"{moves[0].key} stands"
        for item in self.store.under(PLANS):
            if (plan := decode_plan(item.value)).running:
                return f"{item.key} is {plan.phase}"
        if by := self.space.doc.by:
            return f"{by} changes the shapes"
        workers = self.workers()
        for name in self.partitions:
            worker = workers.get(name)
            if worker is None:
                return f"partition {name} has no worker"
            load = worker.load()
            if load.state != "ready" or load.queued or worker.engine.pending:
                return f"partition {name} is {load.state}, {load.queued} wait: {load.reason}"
        for switch in self.switches.values():
            managers = (server.managed.reconcilers for server in self.servers.values())
            if not any(switch.name in some and some[switch.name].up for some in managers):
                return f"switch {switch.name} is not up"
        if len(self.store.under(LOCKS)) > len(workers):
            return "a configurator waits for a lock"
        doc = self.network_doc
        if coming(doc) or doc.retired or doc.lost.switches or doc.lost.links:
            return f"the network is being changed: {doc.lost}"
        if any(worker.network != self._network[0] for worker in workers.values()):
            return "not all partitions have taken up the network"
        for process in self.of("configurator"):
            if not process.main.southbound.all_in_use:
                return f"{process.name} does not use all southbound processes"
        for server in self.servers.values():
            reconcilers = server.managed.reconcilers.values()
            if any(one.queue.window.load or one.queue.waiting for one in reconcilers):
                return f"{server.node.name} has work in progress"
            if short := [one.switch for one in reconcilers if one.lacks_room]:
                return f"{short} lack room for what they should hold"
        return ""
