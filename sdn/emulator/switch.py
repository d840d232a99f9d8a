"""One emulated switch without I/O: bytes of controllers and frames in, bytes and frames out.

Time is passed in. After `feed` or `tick`, the caller sends each connection's `outgoing` bytes,
carries the returned frames, and calls `tick` again at `wake_at`.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import NamedTuple

from msgspec.structs import replace

from sdn.emulator.connection import ControllerConnection
from sdn.emulator.control import Control
from sdn.emulator.datapath import ACTION, NO_COOKIE, Datapath, Frames, Outcome, Punt, SwitchCounters
from sdn.emulator.faults import Barriers, Faults, When, any_flow_mod
from sdn.emulator.model import SOFTWARE, Pace, SwitchModel
from sdn.emulator.refused import NO_PERMISSION, ErrorCode
from sdn.emulator.rules import Rule
from sdn.emulator.tables import Tables
from sdn.openflow.protocol.codec import decode_flow_mod, encode_group_ops, encode_ops
from sdn.openflow.protocol.constants import V1_4, VERSIONS, Type
from sdn.openflow.protocol.messages import Foreign, Port
from sdn.openflow.protocol.wire import message
from sdn.tables.flows import FlowEntry, FlowOp, GroupOp

MAX_WORK = 16_384
"""Messages that wait to be carried out beyond which no more should be fed."""

_FLOW_MOD, _GROUP_MOD, _BARRIER = int(Type.FLOW_MOD), int(Type.GROUP_MOD), int(Type.BARRIER_REQUEST)
_AT_ONCE = frozenset({Type.HELLO, Type.ERROR, Type.ECHO_REQUEST, Type.ECHO_REPLY})


class _Work(NamedTuple):
    due: float
    connection: ControllerConnection
    received: bytes


def _nothing() -> None:
    """There is nothing to wake."""


class EmulatedSwitch:
    """A switch: the interface for its controllers, its neighbours, and tests that make it fail.

    `wake` is called when there is something to send, or a time to `tick` at, that neither `feed`
    nor `tick` has caused.
    """

    def __init__(
        self,
        name: str,
        dpid: int,
        ports: Iterable[Port],
        model: SwitchModel = SOFTWARE,
        versions: Sequence[int] = VERSIONS,
        wake: Callable[[], None] = _nothing,
    ) -> None:
        self.name = name
        self.dpid = dpid
        self.versions = tuple(versions)
        self._wake = wake
        self._faults = Faults()
        self._datapath = Datapath(model, ports)
        self._control = Control(name, dpid, self._datapath, self._faults)
        self._pace = Pace()
        self._work: deque[_Work] = deque()
        self._acknowledgements: deque[tuple[float, ControllerConnection, bytes]] = deque()

    @property
    def model(self) -> SwitchModel:
        """The kind of switch; may be changed at any time."""
        return self._datapath.tables.model

    @model.setter
    def model(self, model: SwitchModel) -> None:
        self._datapath.tables.model = model

    @property
    def tables(self) -> Tables:
        """Its entries and groups."""
        return self._datapath.tables

    @property
    def ports(self) -> tuple[Port, ...]:
        """Its ports."""
        return tuple(self._datapath.ports.values())

    @property
    def counters(self) -> SwitchCounters:
        """The counters of the switch."""
        return self._datapath.counters

    @property
    def connections(self) -> tuple[ControllerConnection, ...]:
        """The controllers that it is connected to."""
        return tuple(self._control.connections)

    def entries(self) -> list[FlowEntry | Foreign]:
        """All entries in the terms of the control plane."""
        return [rule.entry for rule in self.tables]

    def rules(self) -> list[Rule]:
        """All entries with their cookies and counters."""
        return list(self.tables)

    # Controllers.

    def connect(self) -> ControllerConnection:
        """A new controller; it is greeted at once."""
        connection = ControllerConnection(self.versions)
        self._control.connections.append(connection)
        return connection

    def disconnect(self, connection: ControllerConnection) -> None:
        """The controller has disconnected; its messages are still carried out."""
        connection.end("the controller is gone")
        if connection in self._control.connections:
            self._control.connections.remove(connection)

    def feed(self, connection: ControllerConnection, data: bytes, now: float) -> Frames:
        """Handle bytes of a controller; returns frames that leave the switch."""
        frames: Frames = []
        handle = self._control.handle
        prompt = self._prompt
        for received in connection.messages(data):
            kind = received[1]
            # By far the most frequent case first; nothing that it does makes work wait.
            if kind == _FLOW_MOD and prompt:
                handle(connection, received)
                continue
            if self._at_once(kind):
                frames += self._carry_out(connection, received, now)
            elif kind != _BARRIER or self._faults.barriers is Barriers.HONEST:
                self._work.append(_Work(self._due(kind, now), connection, received))
            prompt = self._prompt
        return frames

    def tick(self, now: float) -> Frames:
        """Do the work that is due; returns frames that leave the switch."""
        frames: Frames = []
        while self._work and self._work[0].due <= now:
            _, connection, received = self._work.popleft()
            frames += self._carry_out(connection, received, now)
        while self._acknowledgements and self._acknowledgements[0][0] <= now:
            _, connection, reply = self._acknowledgements.popleft()
            connection.send(reply)
        return frames

    @property
    def wake_at(self) -> float | None:
        """When there is something to do next; None if not before something comes."""
        times = [queue[0][0] for queue in (self._work, self._acknowledgements) if queue]
        soonest = min(times, default=inf)
        return None if soonest == inf else soonest

    @property
    def busy(self) -> bool:
        """Whether so much work waits that controllers should not be read from."""
        return len(self._work) > MAX_WORK

    def congested(self, connection: ControllerConnection, congested: bool) -> None:
        """The controller reads too slowly, or has caught up.

        Meanwhile packet-ins for it are lost, and its flow monitors are paused.
        """
        connection.congested = congested
        if not connection.ready:
            return
        if congested:
            connection.send(connection.monitors.pause(connection.version))
        else:
            connection.send(connection.monitors.resume(connection.version, self.tables))

    @property
    def _prompt(self) -> bool:
        return not self._work and self.model.instant and self._faults.barriers is not Barriers.EARLY

    def _at_once(self, kind: int) -> bool:
        if kind in _AT_ONCE:
            return True
        if self._faults.barriers is Barriers.EARLY:
            # Other requests are answered at once, so that they do not reveal the waiting work.
            return kind not in (_FLOW_MOD, _GROUP_MOD)
        if kind == _BARRIER and self._faults.barriers is Barriers.IGNORED:
            return False
        return not self._work and (kind != _FLOW_MOD or self.model.instant)

    def _due(self, kind: int, now: float) -> float:
        due = self._pace.flow_mod(self.model, now) if kind == _FLOW_MOD else self._pace.other(now)
        if self._faults.barriers is Barriers.EARLY:
            due = inf if self._faults.hold is None else due + self._faults.hold
        return due

    def _carry_out(self, connection: ControllerConnection, received: bytes, now: float) -> Frames:
        if received[1] != _BARRIER:
            return self._control.handle(connection, received) or []
        xid = int.from_bytes(received[4:8], "big")
        reply = message(connection.version, Type.BARRIER_REPLY, xid)
        if self.model.acknowledge_after:
            due = now + self.model.acknowledge_after
            self._acknowledgements.append((due, connection, reply))
        else:
            connection.send(reply)
        return []

    # The network.

    def receive(self, frame: bytes, in_port: int) -> Frames:
        """Handle a frame that comes in by a port; returns frames that leave the switch."""
        outcome = self._datapath.receive(frame, in_port)
        if outcome.punts:
            self._control.send_packet_ins(outcome)
            self._wake()
        return outcome.frames

    def set_port(self, port: int, up: bool) -> None:
        """Take a port up or down, and report it to the controllers."""
        changed = self._datapath.set_port(port, up)
        if changed is not None:
            self._control.report_port(changed)
            self._wake()

    def add_port(self, port: Port) -> None:
        """Add a port, and report it to the controllers."""
        self._datapath.add_port(port)
        self._control.report_port(port, new=True)
        self._wake()

    # Faults that tests inject.

    def ignore_barriers(self) -> None:
        """Answer no barrier any more, until `behave`."""
        self._faults.barriers = Barriers.IGNORED

    def lie(self, hold: float | None = None) -> None:
        """Answer barriers at once, but carry flow-mods and group-mods out `hold` seconds later.

        Without a time they wait until `behave`, and are lost if the switch restarts before.
        """
        self._faults.barriers, self._faults.hold = Barriers.EARLY, hold

    def delay(self, seconds: float) -> None:
        """Answer barriers so much later from now on."""
        self.model = replace(self.model, acknowledge_after=seconds)

    def refuse(
        self,
        when: When = any_flow_mod,
        *,
        skip: int = 0,
        times: int | None = 1,
        error: ErrorCode = NO_PERMISSION,
    ) -> None:
        """Answer flow-mods of a kind with an error: so many (None: all) after the first `skip`."""
        self._faults.add(when, skip, times, error)

    def lose(self, when: When = any_flow_mod, *, skip: int = 0, times: int | None = 1) -> None:
        """Silently drop flow-mods of a kind: so many (None: all) after the first `skip`."""
        self._faults.add(when, skip, times, None)

    def behave(self) -> None:
        """Stop to fail; work that was held back is carried out."""
        lies = self._faults.barriers is Barriers.EARLY
        # Another fault may have begun after a lie: what waits for ever is due now, too.
        self._work = deque(
            work._replace(due=0.0) if lies or work.due == inf else work for work in self._work
        )
        self._faults.clear()
        self._wake()

    def restart(self, keep_tables: bool = False) -> None:
        """Forget connections, roles, unfinished work and, unless they are kept, all entries."""
        for connection in self.connections:
            connection.end("the switch restarts")
        self._control.connections.clear()
        self._control.generation = None
        self._work.clear()
        self._acknowledgements.clear()
        self._pace = Pace()
        if not keep_tables:
            self.tables.clear()
        self._wake()

    def change(self, op: FlowOp, cookie: int | None = None) -> None:
        """Change a table as another application would; raises Refused if that cannot be done.

        The entry gets the cookie given, or the one that it would have if it were ours.
        """
        sent = encode_ops(V1_4, [op], 0)
        given = op.entry.cookie if cookie is None else cookie
        # Without a mask for the cookie, the message changes entries of any application.
        self.change_by_message(sent[:8] + given.to_bytes(8, "big") + bytes(8) + sent[24:])

    def change_by_message(self, flow_mod: bytes) -> None:
        """Change a table by any flow-mod; raises Refused if that cannot be done."""
        changes = self.tables.apply(decode_flow_mod(flow_mod), flow_mod)
        self._control.report_changes(changes, None, 0)
        self._wake()

    def change_group(self, op: GroupOp) -> None:
        """Change a group as another application would; raises Refused if that cannot be done."""
        changes = self.tables.apply_group(encode_group_ops(V1_4, [op], 0))
        self._control.report_changes(changes, None, 0)
        self._wake()

    def send_packet_ins(self, frame: bytes, in_port: int, count: int = 1) -> None:
        """Send a frame to the controllers as though an entry had said so."""
        punt = Punt(in_port, 0, NO_COOKIE, ACTION, frame)
        self._control.send_packet_ins(Outcome([], [punt] * count))
        self._wake()
