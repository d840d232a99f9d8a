"""How a switch serves its controllers: each message is carried out and answered at once."""

from collections.abc import Callable, Iterable
from struct import Struct

from sdn.emulator import answers
from sdn.emulator.actions import TABLE, Steps, parse_actions
from sdn.emulator.connection import ControllerConnection
from sdn.emulator.datapath import Datapath, Frames, Outcome
from sdn.emulator.faults import Faults
from sdn.emulator.matching import parse_match
from sdn.emulator.refused import (
    BAD_LEN,
    BAD_MULTIPART,
    BAD_PORT,
    BAD_REQUEST_TABLE,
    BAD_ROLE,
    BAD_TYPE,
    BUFFER_UNKNOWN,
    FIXED_TABLE_FEATURES,
    IS_SLAVE,
    STALE_GENERATION,
    Refused,
)
from sdn.emulator.rules import Changed, Selection
from sdn.openflow.protocol.codec import decode_flow_mod, encode_flow_stats
from sdn.openflow.protocol.constants import (
    ALL_TABLES,
    CONTROLLER_PORT,
    MAX_PORT,
    MORE,
    NO_BUFFER,
    V1_4,
    Multipart,
    Role,
    Type,
)
from sdn.openflow.protocol.messages import Port
from sdn.openflow.protocol.wire import HEADER, MULTIPART, MalformedMessage, message, read
from sdn.tables.flows import Output

_GET_CONFIG, _SET_CONFIG, _PORT_MOD, _TABLE_MOD = 7, 9, 16, 17
_DESCRIPTION = 0  # a multipart request

_CONFIG = Struct("!HH")
_ROLE = Struct("!I4xQ")
_PACKET_OUT = Struct("!IIH6x")
_FLOW_STATS = Struct("!B3xII4xQQ")

_FOR_MASTERS = frozenset({Type.FLOW_MOD, Type.GROUP_MOD, Type.PACKET_OUT, _PORT_MOD, _TABLE_MOD})
_MASTER_REQUEST = 0

Serve = Callable[[ControllerConnection, int, bytes], Frames | None]


class Control:
    """The controllers of one switch; carries out their messages."""

    def __init__(self, name: str, dpid: int, datapath: Datapath, faults: Faults) -> None:
        self.name = name
        self.dpid = dpid
        self.connections: list[ControllerConnection] = []
        self.generation: int | None = None
        self._datapath = datapath
        self._faults = faults
        self._serve: dict[int, Serve] = {
            Type.FLOW_MOD: self._flow_mod,
            Type.GROUP_MOD: self._group_mod,
            Type.PACKET_OUT: self._packet_out,
            Type.MULTIPART_REQUEST: self._multipart,
            Type.ECHO_REQUEST: self._echo,
            Type.FEATURES_REQUEST: self._features,
            Type.ROLE_REQUEST: self._role,
            Type.SET_ASYNC: self._set_async,
            _GET_CONFIG: self._get_config,
            _SET_CONFIG: self._set_config,
            Type.HELLO: self._ignore,
            Type.ERROR: self._ignore,
            Type.ECHO_REPLY: self._ignore,
        }
        self._parts: dict[int, Serve] = {
            _DESCRIPTION: self._description,
            Multipart.FLOW: self._flow_stats,
            Multipart.GROUP_DESC: self._groups,
            Multipart.GROUP_FEATURES: self._group_features,
            Multipart.TABLE_FEATURES: self._table_features,
            Multipart.PORT_DESC: self._ports,
            Multipart.FLOW_MONITOR: self._monitor,
        }

    def handle(self, connection: ControllerConnection, received: bytes) -> Frames | None:
        """Carry out a message; frames that leave the switch because of it."""
        kind = received[1]
        try:
            serve = self._serve.get(kind)
            if connection.role is Role.SLAVE and kind in _FOR_MASTERS:
                raise Refused(IS_SLAVE)
            if serve is None:
                raise Refused(BAD_TYPE)
            return serve(connection, int.from_bytes(received[4:8], "big"), received)
        except Refused as refused:
            self._datapath.counters.errors += 1
            connection.refuse(refused.error, received)
        except MalformedMessage:
            self._datapath.counters.errors += 1
            connection.refuse(BAD_LEN, received)
        return None

    # Asynchronous messages.

    def report_changes(
        self, changes: list[Changed], by: ControllerConnection | None, xid: int
    ) -> None:
        """Report changes to the flow monitors."""
        for connection in self.connections:
            if connection.monitors:
                own = xid if connection is by else None
                connection.send(connection.monitors.changed(connection.version, changes, own))

    def report_port(self, port: Port, new: bool = False) -> None:
        """Report to all controllers that a port went up or down, or is new."""
        reason = answers.PORT_ADDED if new else answers.PORT_MODIFIED
        for connection in self.connections:
            if connection.wants(connection.wishes.port_status, reason):
                connection.send(answers.port_status(connection.version, port, reason))

    def send_packet_ins(self, outcome: Outcome) -> None:
        """Send packet-ins to the controllers that want them and are not congested."""
        counters = self._datapath.counters
        for punt in outcome.punts:
            for connection in self.connections:
                if not connection.wants(connection.wishes.packet_in, punt.reason):
                    continue
                if connection.congested:
                    counters.packet_ins_lost += 1
                else:
                    counters.packet_ins += 1
                    connection.send(answers.packet_in(connection.version, punt))

    # Requests that change the switch.

    def _flow_mod(self, connection: ControllerConnection, xid: int, received: bytes) -> None:
        datapath = self._datapath
        datapath.counters.flow_mods += 1
        mod = decode_flow_mod(received)
        if self._faults.passes(mod):
            changes = datapath.tables.apply(mod, received)
            self.report_changes(changes, connection, xid)

    def _group_mod(self, connection: ControllerConnection, xid: int, received: bytes) -> None:
        changes = self._datapath.tables.apply_group(received)
        self.report_changes(changes, connection, xid)

    def _packet_out(self, _connection: ControllerConnection, _xid: int, received: bytes) -> Frames:
        buffer, in_port, length = read(_PACKET_OUT, received, HEADER.size)
        if buffer != NO_BUFFER:
            raise Refused(BUFFER_UNKNOWN)
        if in_port > MAX_PORT and in_port != CONTROLLER_PORT:
            raise Refused(BAD_PORT)
        at = HEADER.size + _PACKET_OUT.size
        if at + length > len(received):
            raise MalformedMessage(f"actions of {length} bytes, {len(received) - at} are left")
        steps: Steps = parse_actions(received[at : at + length])
        self._datapath.tables.check_steps(tuple(s for s in steps if s != Output(TABLE)))
        outcome = self._datapath.execute(steps, received[at + length :], in_port)
        self.send_packet_ins(outcome)
        return outcome.frames

    def _role(self, connection: ControllerConnection, xid: int, received: bytes) -> None:
        number, generation = read(_ROLE, received, HEADER.size)
        if number not in tuple(Role):
            raise Refused(BAD_ROLE)
        role = Role(number)
        if role in (Role.MASTER, Role.SLAVE):
            if self.generation is not None and _behind(generation, self.generation):
                raise Refused(STALE_GENERATION)
            self.generation = generation
        if role is Role.MASTER:
            self._demote_others(connection, generation)
        if role is not Role.NO_CHANGE:
            connection.role = role
        connection.send(answers.role(connection.version, xid, connection.role, self.generation))

    def _demote_others(self, master: ControllerConnection, generation: int) -> None:
        for other in self.connections:
            if other is master or other.role is not Role.MASTER:
                continue
            wanted = other.wants(other.wishes.role_status, _MASTER_REQUEST)
            other.role = Role.SLAVE
            if wanted and other.version >= V1_4:
                other.send(answers.role_status(other.version, generation))

    # Requests that change nothing.

    def _echo(self, connection: ControllerConnection, xid: int, received: bytes) -> None:
        connection.send(message(connection.version, Type.ECHO_REPLY, xid, received[8:]))

    def _features(self, connection: ControllerConnection, xid: int, _received: bytes) -> None:
        model = self._datapath.tables.model
        connection.send(answers.features(connection.version, xid, self.dpid, model))

    def _get_config(self, connection: ControllerConnection, xid: int, _received: bytes) -> None:
        connection.send(answers.config(connection.version, xid, connection.settings))

    def _set_config(self, connection: ControllerConnection, _xid: int, received: bytes) -> None:
        connection.settings = _CONFIG.pack(*read(_CONFIG, received, HEADER.size))

    def _set_async(self, connection: ControllerConnection, _xid: int, received: bytes) -> None:
        connection.set_async(received)

    def _ignore(self, _connection: ControllerConnection, _xid: int, _received: bytes) -> None:
        """Nothing to be done about it."""

    def _multipart(self, connection: ControllerConnection, xid: int, received: bytes) -> None:
        *_, kind, flags = read(MULTIPART, received)
        serve = self._parts.get(kind)
        if serve is None or flags & MORE:
            raise Refused(BAD_MULTIPART)
        if kind == Multipart.FLOW_MONITOR and connection.version < V1_4:
            raise Refused(BAD_MULTIPART)
        serve(connection, xid, received)

    def _description(self, connection: ControllerConnection, xid: int, _received: bytes) -> None:
        connection.send(answers.description(connection.version, xid, _DESCRIPTION, self.name))

    def _flow_stats(self, connection: ControllerConnection, xid: int, received: bytes) -> None:
        table, out_port, out_group, cookie, mask = read(_FLOW_STATS, received, MULTIPART.size)
        tables = self._datapath.tables
        if table >= tables.model.tables and table != ALL_TABLES:
            raise Refused(BAD_REQUEST_TABLE)
        fields = parse_match(received[MULTIPART.size + _FLOW_STATS.size :])
        found = tables.selected(Selection(table, fields, cookie, mask, out_port, out_group))
        stats = (rule.stat for rule in found)
        connection.send(encode_flow_stats(connection.version, xid, stats))

    def _groups(self, connection: ControllerConnection, xid: int, _received: bytes) -> None:
        found = self._datapath.tables.groups.values()
        connection.send(answers.groups(connection.version, xid, found))

    def _group_features(self, connection: ControllerConnection, xid: int, _received: bytes) -> None:
        model = self._datapath.tables.model
        connection.send(answers.group_features(connection.version, xid, model))

    def _table_features(self, connection: ControllerConnection, xid: int, received: bytes) -> None:
        if len(received) > MULTIPART.size:
            raise Refused(FIXED_TABLE_FEATURES)
        model = self._datapath.tables.model
        connection.send(answers.table_features(connection.version, xid, model))

    def _ports(self, connection: ControllerConnection, xid: int, _received: bytes) -> None:
        found: Iterable[Port] = self._datapath.ports.values()
        connection.send(answers.ports(connection.version, xid, found))

    def _monitor(self, connection: ControllerConnection, xid: int, received: bytes) -> None:
        tables = self._datapath.tables
        connection.send(connection.monitors.request(connection.version, xid, received, tables))


def _behind(generation: int, latest: int) -> bool:
    """Whether a generation is older; numbers go round, so the nearer way tells."""
    return (generation - latest) & 0xFFFFFFFFFFFFFFFF >= 1 << 63
