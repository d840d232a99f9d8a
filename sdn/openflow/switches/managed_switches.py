"""The switches of the network: control of each one, its connection, and its events."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator

from dzflow.aio import BackgroundTasks
from dzflow.process.limited_log import LimitedLog
from sdn.fence import Fence
from sdn.network.events import (
    ConnectionChanged,
    FindingsChanged,
    MastershipLost,
    NetworkEvent,
    PortStateChanged,
    SwitchDown,
    SwitchUnusable,
    SwitchUp,
)
from sdn.network.findings import Findings
from sdn.network.topology import Topology, UnknownSwitch
from sdn.openflow.connections.claims import ClaimRefused, Claims
from sdn.openflow.connections.connection import ConnectionLost, RequestRefused, SwitchConnection
from sdn.openflow.discovery.discovery import Discovery
from sdn.openflow.discovery.punts import is_punt
from sdn.openflow.options import DriverOptions
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
from sdn.openflow.switches.auditor import Auditor
from sdn.openflow.switches.features import Unusable, check_features
from sdn.openflow.switches.finder import Finder, send_punts
from sdn.openflow.switches.limits import Limits, limits_of
from sdn.openflow.switches.reconciler import Control, SwitchReconciler
from sdn.openflow.switches.refused_connections import RecentRefusals
from sdn.openflow.switches.send_batcher import SendBatcher
from sdn.openflow.switches.server import SwitchPeer
from sdn.openflow.switches.strangers import Strangers
from sdn.outcomes import Failed, Undefined
from sdn.tables.pipeline import Pipeline
from sdn.tables.shadow import PartitionOf

log = logging.getLogger(__name__)

BUSY = 100  # operations in progress, beyond which a switch is not probed


class ManagedSwitches:
    """A reconciler for each switch of the topology; handles the switches that connect.

    With `discovery`, it probes for links and learns hosts. `report` gets all network events.
    """

    def __init__(
        self,
        topology: Topology,
        pipeline: Pipeline,
        partition_of: PartitionOf,
        fence: Fence,
        options: DriverOptions,
        discovery: Discovery | None,
        report: Callable[[NetworkEvent], None],
        tasks: BackgroundTasks,
    ) -> None:
        self.reconcilers: dict[str, SwitchReconciler] = {}
        self._topology = topology
        self._pipeline = pipeline
        self._partition_of = partition_of
        self._fence = fence
        self._options = options
        self._report_event = report
        self._tasks = tasks
        self._claims = Claims(options.admission)
        self._errors = LimitedLog(log, logging.WARNING, options.admission.log_every)
        self._batcher = SendBatcher()
        self._auditor = Auditor(self._audit, self.usable, options.audit_every, tasks)
        self._role = Role.MASTER if options.role == "master" else Role.EQUAL
        self._generation = options.generation
        self._assigned: frozenset[str] | None = None  # None: all
        self._declared: set[str] = set()  # partitions that were declared on all switches
        self._names: dict[int, str] = {}  # by datapath id
        self._peers: dict[str, SwitchPeer] = {}  # by the name of the switch
        self._strangers = Strangers(lambda: report(FindingsChanged()))
        self._refused = RecentRefusals(time.monotonic)
        self._joining = False
        self._finder: Finder | None = None
        if discovery:
            self._finder = Finder(discovery, topology, self._report, self._busy)
        self._make_reconcilers()

    def start(self) -> None:
        """Begin with regular audits and discovery."""
        self._auditor.start()
        if self._finder:
            self._tasks.spawn(self._finder.run(), "discovery")

    def reconciler(self, switch: str) -> SwitchReconciler:
        """The reconciler of a switch; raises UnknownSwitch."""
        try:
            return self.reconcilers[switch]
        except KeyError:
            raise UnknownSwitch(f"there is no switch {switch!r} in the topology") from None

    def attached(self) -> set[str]:
        """The switches that are connected, ours to change or not."""
        return {name for name, one in self.reconcilers.items() if one.connection is not None}

    def usable(self) -> set[str]:
        """The switches that are connected, and ours to change."""
        return {name for name, one in self.reconcilers.items() if one.usable}

    def ports_down(self) -> list[tuple[str, int]]:
        """The ports of links and hosts (switch, number) that are down, of usable switches.

        Of links that are not probed, also the ports that switches do not have.
        """
        at = self._topology.at
        hidden = {end for link in self._topology.unprobed for end in link.ends}
        absent = [end for end in self._absent_ports() if end in hidden] if hidden else []
        return absent + [
            (name, number)
            for name, peer in self._peers.items()
            if (known := self.reconcilers.get(name)) and known.control is Control.OURS
            for number, is_up in peer.ports.items()
            if not is_up and at(name, number) is not None
        ]

    def found(self) -> Findings:
        """What discovery has found so far."""
        if self._finder is None:
            return Findings()
        return Findings(
            True,
            self._strangers.dpids(),
            self._finder.links(),
            self._finder.crossed(),
            self._refused.reasons(),
            tuple(sorted(self._absent_ports())),
            self._finder.hosts() if self._options.learn_hosts else (),
        )

    def _absent_ports(self) -> Iterator[tuple[str, int]]:
        """The ports of links and hosts that usable switches do not have."""
        ends = [end for link in self._topology.links for end in link.ends]
        ends += [(host.switch, host.port) for host in self._topology.hosts]
        usable = self.usable()
        for name, number in ends:
            if name in usable and name in self._peers and number not in self._peers[name].ports:
                yield name, number

    # Changes from above

    def let_join(self, joining: bool) -> None:
        """Whether switches and links that are found join the network."""
        if self._finder is not None and joining is not self._joining:
            self._joining = joining
            self._finder.declare(self._topology, fixed=not joining)
            self._strangers.network_changed()

    def declared_everywhere(self, partition: str) -> None:
        """A partition is declared on all switches, also on those that are added later."""
        self._declared.add(partition)

    def withdraw(self, partition: str) -> None:
        """A partition no longer exists: no switch is expected to have anything of it."""
        self._declared.discard(partition)
        for reconciler in self.reconcilers.values():
            reconciler.withdraw(partition)

    def assign(self, switches: Iterable[str], generation: int) -> None:
        """Control exactly these switches, with a new generation where control was lost."""
        self._generation = generation
        self._assigned = frozenset(switches)
        for name, reconciler in self.reconcilers.items():
            if name not in self._assigned:
                reconciler.release()
                if self._finder:
                    self._finder.switch_down(name)
            elif reconciler.control is not Control.OURS:
                reconciler.claim()
                if peer := self._peers.get(name):
                    self._tasks.spawn(self._take_over(reconciler, peer), f"take-over of {name}")

    def set_network(self, topology: Topology, pipeline: Pipeline) -> None:
        """Have reconcilers for the switches of this network, with its base entries and groups."""
        removed = set(self._names.values()) - {switch.id for switch in topology.switches}
        self._topology, self._pipeline = topology, pipeline
        self._make_reconcilers()
        self._strangers.network_changed()
        if self._finder:
            self._finder.declare(topology, fixed=not self._joining)
            for switch in removed:
                self._finder.switch_removed(switch)

    def _make_reconcilers(self) -> None:
        self._names = {switch.dpid: switch.id for switch in self._topology.switches}
        for name in [n for n in self.reconcilers if n not in self._names.values()]:
            removed = self.reconcilers.pop(name)
            if removed.connection:
                removed.connection.close("the switch is no longer part of the network")
        for name, peer in self._peers.items():
            if peer.ready and self._names.get(peer.ready.dpid) != name:
                peer.connection.close("another switch has taken its place")
        for switch in self._topology.switches:
            limits = limits_of(self._options, switch.limits)
            if switch.id not in self.reconcilers:
                self.reconcilers[switch.id] = self._new_reconciler(switch.id, limits)
            self.reconcilers[switch.id].queue.limits = limits
            self.reconcilers[switch.id].declare_base(self._topology, self._pipeline)

    def _new_reconciler(self, switch: str, limits: Limits) -> SwitchReconciler:
        reconciler = SwitchReconciler(
            switch,
            self._fence,
            self._partition_of,
            limits,
            self._batcher,
            self._report,
            self._auditor.audit_soon,
            self._auditor.schedule_audit,
        )
        for partition in self._declared:
            reconciler.declare(partition, ())
        if self._assigned is not None and switch not in self._assigned:
            reconciler.release()
        return reconciler

    # Switches that connect

    def switch_count(self) -> int:
        """How many switches the network has."""
        return len(self.reconcilers)

    def echo_every(self, ready: Ready) -> float:
        """How often a switch that has connected is asked for a sign of life."""
        reconciler = self.reconcilers.get(self._names.get(ready.dpid, ""))
        return reconciler.queue.limits.echo_every if reconciler else self._options.echo_every

    async def serve(self, peer: SwitchPeer, ready: Ready) -> None:
        """Set a switch up, then use it until its connection ends.

        ClaimRefused if the connection may not speak for the switch that it claims to be.
        """
        connection = peer.connection
        name = self._names.get(ready.dpid)
        try:
            if name is None:
                name = await self._join(connection, ready)
            contested = await self._check_claim(name, ready.dpid, connection)
            capacity = await check_features(connection, ready, name, self._pipeline)
        except (ClaimRefused, Unusable, RequestRefused) as error:
            known = self.reconcilers.get(name) if name else None
            if known and not known.connection:
                known.trouble = f"a connection from {connection.arrival.address}: {error}"
            self._refused.add(ready.dpid, f"{error} (from {connection.arrival.address})")
            self._report(FindingsChanged())
            if isinstance(error, ClaimRefused):
                raise
            self._report(SwitchUnusable(ready.dpid, str(error)))
            connection.close(str(error))
            return
        reconciler = self.reconcilers.get(name)
        if reconciler is None:
            raise ClaimRefused(f"switch {name} is no longer part of the network")
        if before := self._peers.get(name):
            if before.connection is not contested and before.connection.lost is None:
                raise ClaimRefused(f"switch {name} has connected meanwhile")
            before.connection.close("it gave no sign of life, and the switch has connected again")
            self._connection_ended(reconciler, before.connection)
        peer.admit()
        connection.timeout = reconciler.queue.limits.timeout
        reconciler.connected(connection, capacity)
        self._peers[name] = peer
        self._report(ConnectionChanged(name, True))
        try:
            # A superseded one stays connected, and waits until it is assigned again.
            if reconciler.control is Control.TAKING_OVER:
                await self._take_over(reconciler, peer)
            await connection.ended.wait()
        finally:
            if self._peers.get(name) is peer:  # and not a newer one
                self._connection_ended(reconciler, connection)

    async def _join(self, connection: SwitchConnection, ready: Ready) -> str:
        """Wait until a switch that the network lacks is part of it; its name."""
        if not self._joining:
            raise Unusable(f"no switch of the topology has datapath id {ready.dpid:#x}")
        if not ready.dpid:
            raise Unusable("it has datapath id 0, which no switch may have; give it another one")
        # Before anybody hears of it: neither an impostor nor an unusable switch may join.
        self._claims.check_certificate(connection, ready.dpid)
        await check_features(connection, ready, "", self._pipeline)
        return await self._strangers.wait(
            ready.dpid, connection, lambda dpid: self._names.get(dpid)
        )

    def _connection_ended(self, reconciler: SwitchReconciler, connection: SwitchConnection) -> None:
        name, reason = reconciler.switch, connection.lost or "the connection ended"
        del self._peers[name]
        reconciler.connection_lost(connection, reason)
        if self._finder:
            self._finder.switch_down(name)
        self._report(ConnectionChanged(name, False))
        if reconciler.control is not Control.NOT_ASSIGNED:
            self._report(SwitchDown(name, reason))

    async def _check_claim(
        self, name: str, dpid: int, connection: SwitchConnection
    ) -> SwitchConnection | None:
        """The connection of a switch that another one may replace, None if it has none.

        ClaimRefused if it may not.
        """
        self._claims.check_certificate(connection, dpid)
        current = self._peers.get(name)
        if current is not None and current.connection.lost is None:
            await self._claims.contest(name, current.connection)
        await self._claims.await_turn(name, connection)
        return current.connection if current else None

    async def _take_over(self, reconciler: SwitchReconciler, peer: SwitchPeer) -> None:
        """Take our role at a switch, audit it, and send its batches."""
        connection, ready = peer.connection, peer.ready
        assert ready
        try:
            if not await self._take_role(connection):
                reconciler.mastership_lost()
                return
            if (
                reconciler.control is not Control.TAKING_OVER
                or reconciler.connection is not connection
            ):
                return  # another process is responsible by now, or the switch has reconnected
            reconciler.take_control()
            outcome = await reconciler.audit()
            if isinstance(outcome, Undefined):
                return  # the connection has ended, or the switch is not ours any more
            if isinstance(outcome, Failed):
                reason = f"it refuses what it should hold: {next(iter(outcome.refused.values()))}"
                self._report(SwitchUnusable(ready.dpid, reason))
                connection.close(reason)
                return
            if self._finder and reconciler.usable:
                await send_punts(connection, reconciler.switch, self._pipeline)
                up = [number for number, is_up in peer.ports.items() if is_up]
                self._finder.switch_up(reconciler.switch, connection, up, ready.ports)
        except (ConnectionLost, RequestRefused, TimeoutError) as error:
            connection.close(str(error) or "no answer in time")
            return
        if reconciler.usable and not connection.lost and not reconciler.up:
            reconciler.open(monitor=ready.version >= V1_4)
            self._report(SwitchUp(reconciler.switch))

    async def _take_role(self, connection: SwitchConnection) -> bool:
        """Whether we have got our role; only masters have a generation that can be too old."""
        try:
            await connection.role(self._role, self._generation)
        except RequestRefused as refused:
            if not refused.error.stale_generation:
                raise
            return False
        return True

    # Events of switches

    def event_received(self, peer: SwitchPeer, event: Event) -> None:
        """A switch has sent something that is no answer to a request."""
        up = isinstance(event, PortChanged) and self._note_port(peer, event)
        reconciler = self._using(peer)
        if reconciler is None:
            return
        name = reconciler.switch
        match event:
            case PortChanged(_, port):
                self._report(PortStateChanged(name, port.number, up))
                if self._finder:
                    self._finder.port_changed(name, port, up)
            case PacketIn(port=port, data=data):
                if self._finder:
                    self._finder.packet_in(name, port, data)
            case RoleChanged(role) if role not in (Role.MASTER, self._role):
                reconciler.mastership_lost()
            case FlowUpdated() if _concerns_us(reconciler, event):
                self._auditor.audit_soon(name)
            case MonitorResumed():
                self._auditor.audit_soon(name)
            case SwitchError():
                self._errors.add(name, f"switch {name}: {event.text}")

    def writing_resumed(self, peer: SwitchPeer) -> None:
        """A switch can be sent more, after it could not."""
        if reconciler := self._using(peer):
            reconciler.queue.send_soon()

    def _note_port(self, peer: SwitchPeer, event: PortChanged) -> bool:
        """Keep a change of a port; returns whether the port is up."""
        name = self._names.get(peer.ready.dpid) if peer.ready else None
        declared = name is not None and self._topology.at(name, event.port.number) is not None
        return peer.note_port(event, declared)

    def _using(self, peer: SwitchPeer) -> SwitchReconciler | None:
        """The reconciler that uses the connection of a peer; None before set-up and at the end."""
        name = self._names.get(peer.ready.dpid) if peer.ready else None
        reconciler = self.reconcilers.get(name) if name else None
        if reconciler is None or reconciler.connection is not peer.connection:
            return None
        return reconciler

    async def _audit(self, name: str) -> None:
        """Audit a switch, and have it send us the packets that discovery needs."""
        reconciler = self.reconcilers.get(name)
        if reconciler is None:
            return  # it is no longer part of the network
        await reconciler.audit()
        if self._finder and reconciler.usable and reconciler.connection:
            try:
                await send_punts(reconciler.connection, name, self._pipeline)
            except (ConnectionLost, TimeoutError) as error:
                log.info("switch %s: %s", name, error)  # sent again when the switch is back

    def _busy(self) -> set[str]:
        """Switches that have so much to do that probes would come late."""
        return {name for name, one in self.reconcilers.items() if one.queue.window.load > BUSY}

    def _report(self, event: NetworkEvent) -> None:
        if self._finder and isinstance(event, MastershipLost):
            self._finder.switch_down(event.switch)
        self._report_event(event)


def _concerns_us(reconciler: SwitchReconciler, event: FlowUpdated) -> bool:
    if reconciler.control is not Control.OURS:
        return False
    ours = event.cookie & OUR_COOKIE_MASK == OUR_COOKIES or is_punt(event.cookie)
    return ours or event.entry.key in reconciler.shadow.entries
