"""Simulated switches: they carry out requests in order, until a connection breaks.

The driver and reconcilers are the product's own; only sockets and bytes are left out.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from configurators.southbound.drivers import DriverFactory, OpenDriver
from dzflow.aio import BackgroundTasks
from sdn.network.topology import Topology
from sdn.openflow.connections.arrivals import Arrival
from sdn.openflow.connections.connection import (
    ConnectionLost,
    Finished,
    RequestRefused,
    Run,
    SwitchConnection,
)
from sdn.openflow.driver import DriverOptions, OpenFlowDriver
from sdn.openflow.protocol.constants import (
    ALL_TABLES,
    STALE_GENERATION,
    TABLE_FULL,
    BadRequest,
    ErrorType,
    Role,
)
from sdn.openflow.protocol.events import (
    GroupFeatures,
    Ready,
    RoleChanged,
    SwitchError,
    TableFeatures,
)
from sdn.openflow.protocol.messages import FlowStat, GroupDesc
from sdn.openflow.protocol.session import Sent
from sdn.openflow.switches.managed_switches import ManagedSwitches
from sdn.openflow.switches.server import SwitchServer
from sdn.tables.flows import Change, FlowEntry, FlowKey, FlowOp, GroupOp, ToGroup
from sdn.tables.pipeline import Pipeline
from sdn.tables.shadow import PartitionOf
from sdn.tables.simulate import SimulatedSwitch
from tests.simulation.loop import NOWHERE, Node, VirtualLoop, this_node

_V1_3 = 4
_SLAVE = SwitchError(0, ErrorType.BAD_REQUEST, BadRequest.IS_SLAVE, "not the master")
_FULL = SwitchError(0, ErrorType.FLOW_MOD_FAILED, TABLE_FULL, "the table is full")
_NO_GROUP = SwitchError(0, ErrorType.BAD_ACTION, 9, "there is no such group")
_STALE = SwitchError(0, ErrorType.ROLE_REQUEST_FAILED, STALE_GENERATION, "stale generation")

Serve = Callable[[int | None], Any]
"""Carries out a request at the switch; with a number, only so many of its operations."""


class SimSwitch:
    """A switch: its tables, its connections, and its master."""

    servers: "dict[Node, SimServer]"  # that it connects to; shared by all switches of a run

    def __init__(
        self,
        loop: VirtualLoop,
        dpid: int,
        tables: SimulatedSwitch,
        servers: "dict[Node, SimServer]",
    ) -> None:
        self.name = tables.name
        self.loop = loop
        self.dpid = dpid
        self.tables = tables
        self.servers = servers
        self.up = True
        self.room: int | None = None  # how many entries it takes
        self.master: SimConnection | None = None
        self.generation = -1
        self.connections: dict[Node, SimConnection] = {}
        self.snapshots: list[dict[FlowKey, FlowEntry]] = []
        self.watch: Callable[[], None] = lambda: None  # called after each operation

    def delay(self) -> float:
        """How long a message takes."""
        draw = self.loop.random.random()
        return 0.0002 + draw * 0.003 + (0.1 if draw > 0.99 else 0.0)

    def dial(self, server: "SimServer") -> None:
        """Connect to a southbound process, now or when that is possible."""
        node = server.node
        if not self.up or node.dead or self.servers.get(node) is not server:
            return
        if node not in self.connections:
            self.connections[node] = connection = SimConnection(self, server)
            at = self.loop.now + self.delay()
            self.loop.at(at, node.context, server.connection_made, connection)

    def dial_all(self) -> None:
        """Connect to all southbound processes."""
        for server in list(self.servers.values()):
            self.dial(server)

    def hang_up(self, reason: str) -> None:
        """Lose all connections; requests that have arrived are carried out."""
        for connection in list(self.connections.values()):
            connection.cut(reason)

    def restart(self, how: str) -> None:
        """Switch off; the tables are `kept`, `empty`, or as they were at an `old` moment."""
        self.up = False
        self.hang_up("the switch restarts")
        self.generation = -1
        if how != "kept":
            self.tables.groups.clear()
            for key in list(self.tables.entries):
                self.tables.table.remove(key)
        if how == "old" and self.snapshots:
            for key, entry in self.loop.random.choice(self.snapshots).items():
                self.tables.table.put(key, entry)

    def come_back(self) -> None:
        """Switch on again."""
        self.up = True
        self.dial_all()

    def lost(self, connection: "SimConnection") -> None:
        """Forget a connection that has ended, and connect again later."""
        node = connection.node
        if self.connections.get(node) is connection:
            del self.connections[node]
        if self.master is connection:
            self.master = None
        server = self.servers.get(node)
        if server:
            pause = self.loop.random.uniform(0.1, 2.0)
            self.loop.at(self.loop.now + pause, NOWHERE, self.dial, server)

    # Requests

    def carry_out(
        self, by: "SimConnection", ops: Sequence[FlowOp], limit: int | None
    ) -> dict[int, SwitchError]:
        """Carry out flow operations, one by one."""
        if self.master is not by:
            return dict.fromkeys(range(len(ops)), _SLAVE)
        refused: dict[int, SwitchError] = {}
        table = self.tables.table
        for place, op in enumerate(ops if limit is None else ops[:limit]):
            key = op.entry.key
            there = key in table.entries
            if op.change is Change.DELETE:
                if there:
                    table.remove(key)
            elif op.change is Change.ADD or there:
                if not self._has_groups(op.entry):
                    refused[place] = _NO_GROUP
                    continue
                if self.room is not None and not there and len(table.entries) >= self.room:
                    refused[place] = _FULL
                    continue
                table.put(key, op.entry)
            self.watch()
        return refused

    def _has_groups(self, entry: FlowEntry) -> bool:
        return all(
            action.group in self.tables.groups
            for action in entry.actions
            if isinstance(action, ToGroup)
        )

    def carry_out_groups(self, by: "SimConnection", ops: Sequence[GroupOp]) -> dict[int, Any]:
        """Carry out group operations."""
        if self.master is not by:
            return dict.fromkeys(range(len(ops)), _SLAVE)
        for op in ops:
            if op.change is Change.DELETE:
                self.tables.groups.pop(op.group.group, None)
                # The entries that use it go with it, as OpenFlow says.
                used = ToGroup(op.group.group)
                entries = self.tables.entries.values()
                for key in [entry.key for entry in entries if used in entry.actions]:
                    self.tables.table.remove(key)
            else:
                self.tables.groups[op.group.group] = op.group
        return {}

    def take_master(self, by: "SimConnection", generation: int) -> SwitchError | None:
        """Make a connection the master, unless its generation is stale."""
        if generation < self.generation:
            return _STALE
        self.generation = generation
        before, self.master = self.master, by
        if before and before is not by and self.loop.random.random() < 0.5:
            before.happened(RoleChanged(Role.SLAVE, generation))
        return None


class SimConnection(SwitchConnection):
    """A connection of a switch, in the form of the real one."""

    def __init__(self, switch: SimSwitch, server: "SimServer") -> None:
        self.switch = switch
        self.server = server
        self.node = server.node
        self.timeout = server.timeout
        self.arrival = Arrival(switch.name)
        self.writable = True
        self.lost: str | None = None
        self.ended = asyncio.Event()
        self.gone = asyncio.Event()
        self._over = False  # at the switch
        self._sent: deque[tuple[Serve, Callable[[Any], None]]] = deque()
        self._answers: list[asyncio.Future[Any]] = []
        self._unfinished: dict[int, Finished] = {}
        self._numbers = 0
        self._last_there = self._last_back = 0.0

    async def ready(self) -> Ready:
        """The features of the switch."""
        return Ready(self.switch.dpid, _V1_3, 254, 0, ())

    def close(self, reason: str) -> None:
        """End the connection at the controller."""
        if self.lost is None:
            self._lose(reason)
            loop = self.switch.loop
            loop.at(loop.now, NOWHERE, self.cut, reason)

    def cut(self, reason: str) -> None:
        """Break the connection: some requests are carried out, the last one in part."""
        if self._over:
            return
        self._over = True
        random = self.switch.loop.random
        arrived = random.randint(0, len(self._sent))
        for place in range(arrived):
            serve, _ = self._sent[place]
            serve(None if place < arrived - 1 else random.randint(0, 6))
        self._sent.clear()
        self.switch.lost(self)
        loop = self.switch.loop
        loop.at(loop.now + self.switch.delay(), self.node.context, self._lose, reason)

    def happened(self, event: Any) -> None:
        """Send an event of the switch to the controller."""
        self._back(lambda: self.server.event_received(self, event))

    # What the reconciler requests

    def send_ops(self, ops: Sequence[FlowOp], finished: Finished) -> None:
        ops = list(ops)
        number = self._numbers = self._numbers + 1
        self._unfinished[number] = finished

        def answered(errors: dict[int, SwitchError]) -> None:
            if self._unfinished.pop(number, None):
                run = Run(Sent(0, 0), finished)
                run.errors = errors
                finished(run, None)

        self._send(lambda limit: self.switch.carry_out(self, ops, limit), answered)

    async def group_ops(self, ops: Sequence[GroupOp]) -> Run:
        run = Run(Sent(0, 0), lambda *_: None)
        run.errors = await self._ask(lambda _: self.switch.carry_out_groups(self, ops))
        return run

    async def role(self, role: Role, generation: int) -> Any:
        assert role is Role.MASTER
        error = await self._ask(lambda _: self.switch.take_master(self, generation))
        if error:
            raise RequestRefused(error)

    async def group_features(self) -> GroupFeatures:
        return GroupFeatures(0, usable=True, max_groups=1 << 16)

    async def table_features(self) -> TableFeatures:
        return TableFeatures(0, ())

    async def flow_stats(self, table: int = ALL_TABLES) -> list[FlowStat]:
        def read(_: int | None) -> list[FlowStat]:
            entries = self.switch.tables.entries.values()
            return [
                FlowStat(entry.cookie, 0, 0, entry)
                for entry in entries
                if table in (ALL_TABLES, entry.table)
            ]

        found: list[FlowStat] = await self._ask(read)
        return found

    async def group_descs(self) -> tuple[GroupDesc, ...]:
        def read(_: int | None) -> tuple[GroupDesc, ...]:
            groups = self.switch.tables.groups.values()
            return tuple(GroupDesc(group.group, group.port) for group in groups)

        found: tuple[GroupDesc, ...] = await self._ask(read)
        return found

    async def echo(self) -> None:
        await self._ask(lambda _: None)

    @property
    def named_dpids(self) -> None:
        """There is no TLS."""
        return None

    async def is_alive(self, within: float) -> bool:
        try:
            async with asyncio.timeout(within):
                await self.echo()
        except (ConnectionLost, TimeoutError):
            return False
        return True

    # Inside

    async def _ask(self, serve: Serve) -> Any:
        answer: asyncio.Future[Any] = self.switch.loop.create_future()

        def answered(result: Any) -> None:
            if not answer.done():
                answer.set_result(result)

        self._answers.append(answer)
        self._send(serve, answered)
        async with asyncio.timeout(self.timeout):
            return await answer

    def _send(self, serve: Serve, answered: Callable[[Any], None]) -> None:
        if self.lost is not None:
            raise ConnectionLost(self.lost)
        if self._over:
            return  # the request is lost on its way
        loop = self.switch.loop
        self._sent.append((serve, answered))
        self._last_there = max(self._last_there + 1e-6, loop.now + self.switch.delay())
        loop.at(self._last_there, NOWHERE, self._arrive)

    def _arrive(self) -> None:
        if not self._over:
            serve, answered = self._sent.popleft()
            result = serve(None)
            self._back(lambda: answered(result))

    def _back(self, call: Callable[[], None]) -> None:
        loop = self.switch.loop

        def come() -> None:
            if self.lost is None:
                call()

        self._last_back = max(self._last_back + 1e-6, loop.now + self.switch.delay())
        loop.at(self._last_back, self.node.context, come)

    def _lose(self, reason: str) -> None:
        if self.lost is None:
            self.lost = reason
            self.ended.set()
            for answer in self._answers:
                if not answer.done():
                    answer.set_exception(ConnectionLost(reason))
                    answer.exception()
            unfinished, self._unfinished = self._unfinished, {}
            for finished in unfinished.values():
                finished(Run(Sent(0, 0), finished), reason)
            self.gone.set()


class SimServer(SwitchServer):
    """The server of the OpenFlow driver, to which simulated switches connect."""

    def __init__(
        self,
        handler: ManagedSwitches,
        options: DriverOptions,
        tasks: BackgroundTasks,
        servers: "dict[Node, SimServer]",
        switches: Mapping[str, SimSwitch],
    ) -> None:
        super().__init__(handler, options, tasks)
        self.managed = handler
        self.timeout = options.timeout
        self.node = this_node()
        self._servers = servers
        self._switches = switches

    async def start(self) -> None:
        """Have all switches connect."""
        self._servers[self.node] = self
        for switch in self._switches.values():
            switch.dial(self)

    async def stop(self) -> None:
        """Have no more switches connect, and close all connections."""
        self._servers.pop(self.node, None)
        await super().stop()


def driver_factory(
    servers: dict[Node, SimServer], switches: Mapping[str, SimSwitch]
) -> DriverFactory:
    """Opens drivers for simulated switches; `servers` has those that are open, by process."""

    @contextlib.asynccontextmanager
    async def open_driver(
        topology: Topology,
        pipeline: Pipeline,
        partition_of: PartitionOf,
        epochs: dict[str, int],
    ) -> AsyncIterator[OpenDriver]:
        def new_server(
            handler: ManagedSwitches, options: DriverOptions, tasks: BackgroundTasks
        ) -> SimServer:
            return SimServer(handler, options, tasks, servers, switches)

        async with OpenFlowDriver(
            topology, pipeline, partition_of, epochs, DriverOptions(discover=False), new_server
        ) as driver:
            yield OpenDriver(driver, "host:1")

    return open_driver
