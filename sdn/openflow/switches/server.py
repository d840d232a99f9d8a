"""The half of the driver that switches meet: they are let in, taken over, watched and checked."""

import asyncio
import logging
import secrets
import ssl
from collections.abc import Coroutine, Mapping
from functools import partial
from types import TracebackType
from typing import Self

from msgspec import Struct

from sdn.fence import Fence
from sdn.flows import Change
from sdn.network_events import (
    MastershipLost,
    NetworkEvent,
    PortStateChanged,
    SwitchDown,
    SwitchUnusable,
    SwitchUp,
)
from sdn.openflow.discovery.discovery import Discovery
from sdn.openflow.discovery.finder import Finder, send_punts
from sdn.openflow.discovery.punts import is_punt
from sdn.openflow.protocol.constants import OUR_COOKIE_MASK, OUR_COOKIES, V1_4, Role
from sdn.openflow.protocol.events import (
    Event,
    FlowUpdated,
    MonitorResumed,
    PacketIn,
    PortChanged,
    Ready,
    RoleChanged,
    SwitchError,
)
from sdn.openflow.switches.connection import Connection, ConnectionLost, Refused
from sdn.openflow.switches.features import Unusable, check_features
from sdn.openflow.switches.flow_mod_queue import Limits
from sdn.openflow.switches.reconciler import NOT_OURS, TAKING, Keeper
from sdn.openflow.switches.send_batcher import Pulse
from sdn.outcomes import Failed
from sdn.pipeline import Pipeline
from sdn.shadow import PartitionOf
from sdn.topology import Topology, UnknownSwitch

log = logging.getLogger(__name__)

CHECK_EVERY = 0.5  # seconds between checks of a switch that others keep changing
BUSY = 100  # operations under way, beyond which a switch is not probed
LONGEST_CALM = 5.0  # seconds between comparisons for which there is no hurry
EVENTS = 10_000  # events that may wait to be read before old ones are dropped


class DriverOptions(Struct, frozen=True):
    """How a driver behaves."""

    host: str = "127.0.0.1"
    port: int = 6653
    tls: ssl.SSLContext | None = None
    generation: int = 1  # of this process: the highest is the master of a switch
    timeout: float = 10.0  # seconds for any answer
    echo_every: float = 15.0
    audit_every: float = 300.0
    window: int = 2_000  # operations under way; small batches count at least one each
    queue: int = 1_000
    rate: float | None = None  # flow-mods per second and switch
    discover: bool = True  # probe for links, learn hosts


class Reception:
    """Switches connect to it; use as an async context manager."""

    def __init__(
        self,
        topology: Topology,
        pipeline: Pipeline,
        partition_of: PartitionOf,
        epochs: Mapping[str, int],
        options: DriverOptions | None = None,
    ) -> None:
        self.options = options or DriverOptions()
        self.events: asyncio.Queue[NetworkEvent] = asyncio.Queue(EVENTS)
        self.port = self.options.port
        self._generation = self.options.generation
        self._declared: set[str] = set()
        self._stopping = False
        self._again: set[str] = set()
        self._fence = Fence(epochs)
        self._pulse = Pulse()
        self._partition_of = partition_of
        self._topology = topology
        self._pipeline = pipeline
        self._keepers: dict[str, Keeper] = {}
        self._peers: dict[str, Peer] = {}  # of the switches that are connected
        self._mine: frozenset[str] | None = None  # those that we are responsible for; None: all
        self._by_dpid: dict[int, str] = {}
        self._server: asyncio.Server | None = None
        self._connections: set[Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._accepted: set[asyncio.Task[None]] = set()
        self._checks: dict[str, asyncio.Task[None]] = {}
        self._doubtful: dict[str, None] = {}  # switches to be compared some time
        self._in_doubt = asyncio.Event()
        self._finder: Finder | None = None
        self._arrange()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.get_running_loop().create_server(
            self._accept,
            self.options.host,
            self.options.port,
            ssl=self.options.tls,
            ssl_handshake_timeout=self.options.timeout if self.options.tls else None,
        )
        self.port = self._server.sockets[0].getsockname()[1]
        self._spawn(self._audit())
        self._spawn(self._compare_calmly())
        if self.options.discover:
            # A key of this process alone: nobody else's probes mean anything.
            discovery = Discovery(secrets.token_bytes(32))
            self._finder = Finder(discovery, self._topology, self._tell, self._busy)
            self._spawn(self._finder.run())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        assert self._server
        self._stopping = True
        self._server.close()
        for connection in list(self._connections):
            connection.close("the driver stops")
        # Those end by themselves now that their connections have.
        await asyncio.gather(*self._accepted, return_exceptions=True)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    # Connections

    def _arrange(self) -> None:
        limits = Limits(
            self.options.window, self.options.queue, self.options.rate, self.options.timeout
        )
        self._by_dpid = {switch.dpid: switch.id for switch in self._topology.switches}
        for name in [n for n in self._keepers if n not in self._by_dpid.values()]:
            keeper = self._keepers.pop(name)
            if keeper.connection:
                keeper.connection.close("the switch is no longer part of the network")
        for switch in self._topology.switches:
            if switch.id not in self._keepers:
                self._keepers[switch.id] = keeper = Keeper(
                    switch.id,
                    self._fence,
                    self._partition_of,
                    limits,
                    self._pulse,
                    self._tell,
                    partial(self._check_soon, switch.id),
                    partial(self._doubt, switch.id),
                )
                for partition in self._declared:
                    keeper.declare(partition, ())
                if self._mine is not None and switch.id not in self._mine:
                    keeper.release()
            self._keepers[switch.id].declare_base(self._topology, self._pipeline)

    def _accept(self) -> Connection:
        peer = Peer()
        peer.connection = Connection(
            lambda event: self._happened(peer, event),
            self.options.timeout,
            lambda _: self._made(peer),
        )
        return peer.connection

    def _made(self, peer: "Peer") -> None:
        """A connection stands."""
        assert peer.connection
        if self._stopping:
            peer.connection.close("the driver stops")
            return
        self._connections.add(peer.connection)
        task = self._spawn(self._serve(peer, peer.connection))
        self._accepted.add(task)
        task.add_done_callback(self._accepted.discard)

    async def _serve(self, peer: "Peer", connection: Connection) -> None:
        """Work with a connection until it is gone."""
        try:
            peer.ready = await connection.ready()
            await self._keep(connection, peer.ready, peer)
        except (ConnectionLost, Refused, TimeoutError) as error:
            connection.close(str(error) or "no answer in time")
        finally:
            connection.close("nobody works with it any more")
            await connection.gone.wait()
            self._connections.discard(connection)
            log.info("connection ended: %s", connection.lost)

    async def _keep(self, connection: Connection, ready: Ready, peer: "Peer") -> None:
        """Set a switch up, then have it used until the connection ends."""
        name = self._by_dpid.get(ready.dpid)
        try:
            if name is None:
                raise Unusable(f"no switch of the topology has datapath id {ready.dpid:#x}")
            room = await check_features(connection, ready, name, self._pipeline)
        except (Unusable, Refused) as error:
            if name is not None and name in self._keepers:
                self._keepers[name].trouble = str(error)
            self._tell(SwitchUnusable(ready.dpid, str(error)))
            connection.close(str(error))
            return
        keeper = self._keepers[name]
        if keeper.connection is not None:
            keeper.connection.close("the switch has connected again")
            keeper.disconnected(keeper.connection, "the switch has connected again")
        keeper.connected(connection, room)
        peer.name = name
        self._peers[name] = peer
        living = self._spawn(self._echo(connection))
        try:
            # One that has given way stays connected, and waits for a new generation.
            if keeper.off is None:
                keeper.off = TAKING
            if keeper.off == TAKING:
                await self._take_over(keeper, peer)
            await connection.ended.wait()
        finally:
            living.cancel()
            if self._peers.get(name) is peer:  # and not a newer one
                del self._peers[name]
                reason = connection.lost or "the connection ended"
                keeper.disconnected(connection, reason)
                if self._finder:
                    self._finder.switch_down(name)
                if keeper.off != NOT_OURS:
                    self._tell(SwitchDown(name, reason))

    async def _take_over(self, keeper: Keeper, peer: "Peer") -> None:
        """Become the master of a switch, bring it in line, and have its work sent."""
        connection, ready = peer.connection, peer.ready
        assert connection
        assert ready
        try:
            if not await self._become_master(connection):
                keeper.give_way()
                return
            if keeper.off != TAKING or keeper.connection is not connection:
                return  # somebody else is responsible by now, or the switch has come back anew
            keeper.off = None
            outcome = await keeper.sync()
            if isinstance(outcome, Failed):
                reason = f"it refuses what it should hold: {next(iter(outcome.refused.values()))}"
                self._tell(SwitchUnusable(ready.dpid, reason))
                connection.close(reason)
                return
            if self._finder and keeper.off is None:
                await send_punts(connection, self._pipeline.first_table)
                up = [number for number, is_up in peer.all_ports().items() if is_up]
                self._finder.switch_up(keeper.switch, connection, up)
        except (ConnectionLost, Refused, TimeoutError) as error:
            connection.close(str(error) or "no answer in time")
            return
        if keeper.off is None and not connection.lost and not keeper.up:
            if ready.version >= V1_4:
                keeper.monitor(connection)
            keeper.begin()
            self._tell(SwitchUp(keeper.switch))

    async def _become_master(self, connection: Connection) -> bool:
        try:
            await connection.role(Role.MASTER, self._generation)
        except Refused as refused:
            if not refused.error.stale_generation:
                raise
            return False
        return True

    async def _echo(self, connection: Connection) -> None:
        while True:
            await asyncio.sleep(self.options.echo_every)
            try:
                await connection.echo()
            except (ConnectionLost, Refused, TimeoutError):
                connection.close(f"no sign of life within {self.options.timeout:g} s")
                return

    # What happens

    def _happened(self, peer: "Peer", event: Event) -> None:
        if isinstance(event, PortChanged):
            up = event.port.up and event.change is not Change.DELETE
            peer.ports[event.port.number] = up
        name = peer.name
        if name is None or name not in self._keepers:
            return
        if self._keepers[name].connection is not peer.connection:
            return  # it was replaced by a newer one
        match event:
            case PortChanged(_, port):
                up = peer.ports[port.number]
                self._tell(PortStateChanged(name, port.number, up))
                if self._finder:
                    self._finder.port_changed(name, port.number, up)
            case PacketIn(port=port, data=data):
                if self._finder:
                    self._finder.packet_in(name, port, data)
            case RoleChanged(role) if role != Role.MASTER:
                self._keepers[name].give_way()
            case FlowUpdated() if self._concerns_us(name, event):
                self._check_soon(name)
            case MonitorResumed():
                self._check_soon(name)
            case SwitchError():
                log.warning("switch %s: %s", name, event.text)

    def _concerns_us(self, name: str, event: FlowUpdated) -> bool:
        if self._keepers[name].off is not None:
            return False
        ours = event.cookie & OUR_COOKIE_MASK == OUR_COOKIES or is_punt(event.cookie)
        return ours or event.entry.key in self._keepers[name].shadow.entries

    def _check_soon(self, name: str) -> None:
        """Check a switch because it was changed by others; one check at a time, one to follow."""
        if name in self._checks:
            self._again.add(name)
        else:
            self._checks[name] = self._spawn(self._check_until_calm(name))

    async def _check_until_calm(self, name: str) -> None:
        try:
            while name in self._keepers:
                self._again.discard(name)
                await self._inspect(name)
                if name not in self._again:
                    return
                await asyncio.sleep(CHECK_EVERY)  # whoever keeps changing entries is not raced
        finally:
            self._checks.pop(name, None)

    async def _inspect(self, name: str) -> None:
        """Check a switch, and that it sends us what discovery needs."""
        keeper = self._keepers[name]
        await keeper.sync()
        if self._finder and keeper.connection and keeper.off is None:
            try:
                await send_punts(keeper.connection, self._pipeline.first_table)
            except (ConnectionLost, TimeoutError) as error:
                log.info("switch %s: %s", name, error)  # they are sent again when it is back

    async def _audit(self) -> None:
        while True:
            await asyncio.sleep(self.options.audit_every)
            for switch in sorted(self.connected()):
                self._doubt(switch)

    def _doubt(self, switch: str) -> None:
        """Have a switch compared some time."""
        self._doubtful[switch] = None
        self._in_doubt.set()

    async def _compare_calmly(self) -> None:
        """Compare switches where nothing is urgent: one at a time, and for a tenth of the time."""
        clock = asyncio.get_running_loop().time
        while True:
            await self._in_doubt.wait()
            while self._doubtful:
                del self._doubtful[switch := next(iter(self._doubtful))]
                if switch in self.connected():
                    began = clock()
                    await self._inspect(switch)
                    await asyncio.sleep(min(9 * (clock() - began), LONGEST_CALM))
            self._in_doubt.clear()

    def connected(self) -> set[str]:
        """The switches that are connected and ours to use."""
        return {s for s, k in self._keepers.items() if k.connection and k.off is None}

    def _busy(self) -> set[str]:
        """Switches that have so much to do that probes would come late."""
        return {switch for switch, keeper in self._keepers.items() if keeper.load > BUSY}

    def _tell(self, event: NetworkEvent) -> None:
        log.info("%s", event)
        if self._finder and isinstance(event, MastershipLost):
            self._finder.switch_down(event.switch)  # it is no longer ours to ask
        if self.events.full():
            log.warning("nobody reads events; dropped %s", self.events.get_nowait())
        self.events.put_nowait(event)

    def _keeper(self, switch: str) -> Keeper:
        try:
            return self._keepers[switch]
        except KeyError:
            raise UnknownSwitch(f"there is no switch {switch!r} in the topology") from None

    def _spawn(self, work: Coroutine[None, None, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("a task of the driver failed", exc_info=error)


class Peer:
    """Who is at the other end of a connection, as far as it is known yet."""

    def __init__(self) -> None:
        self.name: str | None = None
        self.ready: Ready | None = None
        self.connection: Connection | None = None
        self.ports: dict[int, bool] = {}  # those that changed since the greeting: up or down

    def all_ports(self) -> dict[int, bool]:
        """All ports of the switch: up or down."""
        known = self.ready.ports if self.ready else ()
        return {port.number: port.up for port in known if port.real} | self.ports
