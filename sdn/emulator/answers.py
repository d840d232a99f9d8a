"""Encodes the messages of a switch; flow statistics are in `sdn.openflow.protocol.codec`."""

from collections.abc import Iterable
from functools import lru_cache
from struct import Struct, pack

from sdn.emulator.datapath import ACTION, FROM_GROUP, Punt
from sdn.emulator.frames import SETTABLE
from sdn.emulator.matching import LENGTHS, MASKABLE
from sdn.emulator.model import SwitchModel
from sdn.emulator.rules import Group, Rule
from sdn.openflow.protocol.constants import (
    GROUP_ALL,
    MORE,
    NO_BUFFER,
    V1_3,
    ActionType,
    FlowEvent,
    InstructionType,
    Multipart,
    Oxm,
    Role,
    Type,
)
from sdn.openflow.protocol.layouts import GROUP_DESC, IN_PORT
from sdn.openflow.protocol.messages import Port
from sdn.openflow.protocol.wire import MAX_MESSAGE, MULTIPART, TYPE_LENGTH, message, multipart

_FEATURES = Struct("!QIBB2xII")
_ROLE = Struct("!I4xQ")
_ROLE_STATUS = Struct("!IB3xQ")
_PORT_STATUS = Struct("!B7x")
_PORT_1_3 = Struct("!I4x6s2x16sII6I")
_PORT_1_4 = Struct("!IH2x6s2x16sII")
_ETHERNET = Struct("!HH4x6I")
_PACKET_IN = Struct("!IHBBQ")
_GROUP_FEATURES = Struct("!II4I4I")
_TABLE = Struct("!HB5x32sQQII")
_UPDATE = Struct("!HHBBHHH4xQ")
_SHORT_UPDATE = Struct("!HHI")
_DESCRIPTION = Struct("!256s256s256s32s256s")

_CAN_FLOW_STATS = 1
_LINK_DOWN, _LIVE = 1, 4
PORT_ADDED, PORT_MODIFIED = 0, 2
# Ten gigabit: features now, advertised, supported and of the peer; speed now and at most in kbit/s.
_SPEEDS = (1 << 6, 1 << 6, 1 << 6, 0, 10_000_000, 10_000_000)
_MASTER_REQUEST = 0
_DELETED = 2
_NO_GENERATION = 0xFFFFFFFFFFFFFFFF
_BASIC_CLASS = 0x8000
_HAS_MASK = 0x100
_ANY_MATCH = 1

# Properties in the features of a table.
_INSTRUCTIONS, _NEXT_TABLES, _APPLY_ACTIONS, _MATCH, _WILDCARDS, _SET_FIELDS = 0, 2, 6, 8, 10, 14


def features(version: int, xid: int, dpid: int, model: SwitchModel) -> bytes:
    """The features of the switch; it buffers no packets, so packet-ins are always whole."""
    body = _FEATURES.pack(dpid, 0, model.tables, 0, _CAN_FLOW_STATS, 0)
    return message(version, Type.FEATURES_REPLY, xid, body)


def config(version: int, xid: int, settings: bytes) -> bytes:
    """The configuration that a controller has set."""
    return message(version, Type.GET_CONFIG_REPLY, xid, settings)


def role(version: int, xid: int, role: Role, generation: int | None) -> bytes:
    """The answer to a request for a role."""
    body = _ROLE.pack(role, _NO_GENERATION if generation is None else generation)
    return message(version, Type.ROLE_REPLY, xid, body)


def role_status(version: int, generation: int) -> bytes:
    """Tells a master that another controller has replaced it (1.4)."""
    body = _ROLE_STATUS.pack(Role.SLAVE, _MASTER_REQUEST, generation)
    return message(version, Type.ROLE_STATUS, 0, body)


def packet_in(version: int, punt: Punt) -> bytes:
    """A frame for the controller."""
    reason = ACTION if version == V1_3 and punt.reason >= FROM_GROUP else punt.reason
    fixed = _PACKET_IN.pack(NO_BUFFER, len(punt.frame), reason, punt.table, punt.cookie)
    match = TYPE_LENGTH.pack(_ANY_MATCH, TYPE_LENGTH.size + IN_PORT.size)
    match += IN_PORT.pack(Oxm.IN_PORT, punt.in_port) + bytes(4)
    return message(version, Type.PACKET_IN, 0, fixed + match + bytes(2) + punt.frame)


def port_status(version: int, port: Port, reason: int) -> bytes:
    """A port that went up or down, or is new."""
    body = _PORT_STATUS.pack(reason) + _port(version, port)
    return message(version, Type.PORT_STATUS, 0, body)


def ports(version: int, xid: int, found: Iterable[Port]) -> bytes:
    """All ports."""
    return _parts(version, xid, Multipart.PORT_DESC, (_port(version, port) for port in found))


def description(version: int, xid: int, kind: int, name: str) -> bytes:
    """The description of the switch."""
    words = ("dzflow", "emulated switch", "dzflow", "none", name)
    body = _DESCRIPTION.pack(*(word.encode()[:31] for word in words))
    return (
        MULTIPART.pack(version, Type.MULTIPART_REPLY, MULTIPART.size + len(body), xid, kind, 0)
        + body
    )


def groups(version: int, xid: int, found: Iterable[Group]) -> bytes:
    """All groups with their buckets."""
    items = (
        GROUP_DESC.pack(GROUP_DESC.size + len(group.data), GROUP_ALL, group.number) + group.data
        for group in found
    )
    return _parts(version, xid, Multipart.GROUP_DESC, items)


def group_features(version: int, xid: int, model: SwitchModel) -> bytes:
    """Groups of type all only, with the actions that a bucket may have."""
    actions = 1 << ActionType.OUTPUT | 1 << ActionType.SET_FIELD
    most = [model.max_groups, 0, 0, 0]
    body = _GROUP_FEATURES.pack(1 << GROUP_ALL, 0, *most, actions, 0, 0, 0)
    return multipart(version, Type.MULTIPART_REPLY, Multipart.GROUP_FEATURES, xid, body)


def table_features(version: int, xid: int, model: SwitchModel) -> bytes:
    """The features of all tables."""
    return _parts(version, xid, Multipart.TABLE_FEATURES, _tables(model))


def updates(version: int, xid: int, found: Iterable[bytes]) -> bytes:
    """The reports of a flow monitor: at least one message, which may be empty."""
    return _parts(version, xid, Multipart.FLOW_MONITOR, found)


def update(event: FlowEvent, rule: Rule, instructions: bool) -> bytes:
    """One change of an entry, for `updates`."""
    rest = rule.instructions if instructions and event != FlowEvent.REMOVED else b""
    length = _UPDATE.size + len(rule.match) + len(rest)
    reason = _DELETED if event == FlowEvent.REMOVED else 0
    fixed = _UPDATE.pack(length, event, rule.table, reason, 0, 0, rule.priority, rule.cookie)
    return fixed + rule.match + rest


def short_update(event: FlowEvent, xid: int = 0) -> bytes:
    """A change that the controller itself made with this xid, a pause, or its end."""
    return _SHORT_UPDATE.pack(_SHORT_UPDATE.size, event, xid)


def _parts(version: int, xid: int, kind: Multipart, items: Iterable[bytes]) -> bytes:
    """The whole answer to a multipart request, in as many messages as it takes."""
    room = MAX_MESSAGE - MULTIPART.size
    bodies: list[list[bytes]] = [[]]
    used = 0
    for item in items:
        if used + len(item) > room:
            bodies.append([])
            used = 0
        bodies[-1].append(item)
        used += len(item)
    last = len(bodies) - 1
    return b"".join(
        multipart(version, Type.MULTIPART_REPLY, kind, xid, b"".join(body), MORE * (number < last))
        for number, body in enumerate(bodies)
    )


def _port(version: int, port: Port) -> bytes:
    mac, name = bytes.fromhex(port.mac.replace(":", "")), port.name.encode()[:15]
    state = _LIVE if port.up else _LINK_DOWN
    if version == V1_3:
        return _PORT_1_3.pack(port.number, mac, name, 0, state, *_SPEEDS)
    length = _PORT_1_4.size + _ETHERNET.size
    return _PORT_1_4.pack(port.number, length, mac, name, 0, state) + _ETHERNET.pack(
        0, _ETHERNET.size, *_SPEEDS
    )


@lru_cache(maxsize=64)
def _tables(model: SwitchModel) -> tuple[bytes, ...]:
    matched = b"".join(
        pack("!I", _field(field, length, model.masks == "any" and field in MASKABLE))
        for field, length in LENGTHS.items()
    )
    wild = b"".join(pack("!I", _field(field, length)) for field, length in LENGTHS.items())
    settable = b"".join(pack("!I", _field(field, length)) for field, length in SETTABLE.items())
    actions = [ActionType.OUTPUT, ActionType.SET_FIELD]
    if model.max_groups:
        actions.append(ActionType.GROUP)
    found = []
    for table in range(model.tables):
        following = bytes(range(table + 1, model.tables))
        instructions = [InstructionType.APPLY_ACTIONS]
        if following:
            instructions.append(InstructionType.GOTO_TABLE)
        properties = b"".join(
            (
                _property(_INSTRUCTIONS, _ids(instructions)),
                _property(_NEXT_TABLES, following),
                _property(_APPLY_ACTIONS, _ids(actions)),
                _property(_MATCH, matched),
                _property(_WILDCARDS, wild),
                _property(_SET_FIELDS, settable),
            )
        )
        name = f"table {table}".encode()
        capacity = min(model.table_capacity, 0xFFFFFFFF)
        length = _TABLE.size + len(properties)
        found.append(_TABLE.pack(length, table, name, 0, 0, 0, capacity) + properties)
    return tuple(found)


def _property(kind: int, data: bytes) -> bytes:
    length = TYPE_LENGTH.size + len(data)
    return TYPE_LENGTH.pack(kind, length) + data + bytes(-length % 8)


def _ids(kinds: Iterable[int]) -> bytes:
    return b"".join(TYPE_LENGTH.pack(kind, TYPE_LENGTH.size) for kind in kinds)


def _field(field: int, length: int, masked: bool = False) -> int:
    header = _BASIC_CLASS << 16 | field << 9
    return header | _HAS_MASK | 2 * length if masked else header | length
