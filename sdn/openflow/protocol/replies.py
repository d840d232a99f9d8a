"""Decodes the less frequent messages of a switch; the frequent ones are in `decode`."""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from sdn.openflow.protocol.constants import (
    GROUP_ALL,
    V1_3,
    VERSIONS,
    ActionType,
    FlowEvent,
    InstructionType,
    Oxm,
    Role,
)
from sdn.openflow.protocol.decode import decode_entry, match_fields
from sdn.openflow.protocol.events import (
    FlowUpdated,
    GroupFeatures,
    MonitorPaused,
    MonitorResumed,
    PacketIn,
    PortChanged,
    RoleChanged,
    RoleReply,
)
from sdn.openflow.protocol.messages import Foreign, Port, TableFeature
from sdn.openflow.protocol.wire import (
    HEADER,
    MULTIPART,
    TYPE_LENGTH,
    MalformedMessage,
    pad8,
    printable,
    read,
)
from sdn.tables.flows import Change, FlowEntry

_BITMAP = Struct("!I")
_FEATURES = Struct("!QIBB2xI")
_ERROR = Struct("!HH")
_ROLE = Struct("!I4xQ")
_ROLE_STATUS = Struct("!IB3xQ")
_PORT_STATUS = Struct("!B7x")
_PORT_1_3 = Struct("!I4x6s2x16sII24x")
_PORT_1_4 = Struct("!IH2x6s2x16sII")
_PACKET_IN = Struct("!IHBBQ")
_GROUP_FEATURES = Struct("!II4I4I")
_TABLE = Struct("!HB5x32s16x4xI")
_UPDATE = Struct("!HHI")
_UPDATE_FULL = Struct("!HHBxIH4xQ")

_VERSION_BITMAP = 1
_DOWN = 1  # in the configuration and in the state of a port
_PORT_CHANGES = (Change.ADD, Change.DELETE, Change.MODIFY)

# Properties in the features of a table.
_INSTRUCTIONS, _NEXT_TABLES, _APPLY_ACTIONS, _MATCH = 0, 2, 6, 8
_EXPERIMENTER = 0xFFFF
_HAS_MASK = 1 << 8
_FIELD = ~0x1FF  # of a match field's header: all but mask flag and length


class Features(NamedTuple):
    """What a switch says about itself."""

    dpid: int
    n_tables: int
    auxiliary: int
    capabilities: int


def common_version(message: bytes) -> int | None:
    """The version to speak after a hello: the highest that both know, None if there is none."""
    version = message[0]
    at = HEADER.size
    while at < len(message):
        kind, length = read(TYPE_LENGTH, message, at)
        if length < TYPE_LENGTH.size or at + length > len(message):
            raise MalformedMessage(f"a hello element of {length} bytes in {len(message)}")
        if kind == _VERSION_BITMAP:
            (bitmap,) = read(_BITMAP, message, at + TYPE_LENGTH.size)
            return max((known for known in VERSIONS if bitmap >> known & 1), default=None)
        at += pad8(length)
    version = min(version, max(VERSIONS))
    return version if version in VERSIONS else None


def decode_features(message: bytes) -> Features:
    """What a switch says about itself."""
    dpid, _, n_tables, auxiliary, capabilities = read(_FEATURES, message, HEADER.size)
    return Features(dpid, n_tables, auxiliary, capabilities)


def decode_error(message: bytes) -> tuple[int, int, bytes]:
    """Type and code of an error, and its data."""
    kind, code = read(_ERROR, message, HEADER.size)
    return kind, code, message[HEADER.size + _ERROR.size :]


def decode_role(xid: int, message: bytes) -> RoleReply:
    """Our role, as an answer."""
    role, generation = read(_ROLE, message, HEADER.size)
    return RoleReply(xid, _role(role), generation)


def decode_role_status(message: bytes) -> RoleChanged:
    """Our role, changed by another controller."""
    role, _, generation = read(_ROLE_STATUS, message, HEADER.size)
    return RoleChanged(_role(role), generation)


def _role(number: int) -> Role:
    try:
        return Role(number)
    except ValueError:
        raise MalformedMessage(f"there is no role {number}") from None


def decode_ports(version: int, data: bytes, at: int) -> list[Port]:
    """All ports from a place in a message on."""
    ports = []
    while at < len(data):
        if version == V1_3:
            number, mac, name, config, state = read(_PORT_1_3, data, at)
            length, least = _PORT_1_3.size, _PORT_1_3.size
        else:
            number, length, mac, name, config, state = read(_PORT_1_4, data, at)
            least = _PORT_1_4.size
        if length < least or at + length > len(data):
            raise MalformedMessage(f"a port of {length} bytes, {len(data) - at} are left")
        up = not (config | state) & _DOWN
        ports.append(Port(number, _text(name), mac.hex(":"), up))
        at += length
    return ports


def decode_port_status(version: int, message: bytes) -> PortChanged:
    """A port that came, changed or went."""
    (reason,) = read(_PORT_STATUS, message, HEADER.size)
    ports = decode_ports(version, message, HEADER.size + _PORT_STATUS.size)
    if reason >= len(_PORT_CHANGES) or len(ports) != 1:
        raise MalformedMessage(f"a port status with reason {reason} for {len(ports)} ports")
    return PortChanged(_PORT_CHANGES[reason], ports[0])


def decode_packet_in(message: bytes) -> PacketIn:
    """A packet that was sent to the controller."""
    at = HEADER.size
    _, _, reason, table, cookie = read(_PACKET_IN, message, at)
    fields, after = match_fields(message, at + _PACKET_IN.size, len(message))
    port = dict(fields or ()).get(Oxm.IN_PORT)
    if port is None:
        raise MalformedMessage("a packet-in does not say by which port the packet came")
    return PacketIn(int.from_bytes(port, "big"), message[after + 2 :], cookie, reason, table)


def decode_group_features(xid: int, message: bytes) -> GroupFeatures:
    """The groups that a switch can have; only the type that we use counts."""
    types, _, *rest = read(_GROUP_FEATURES, message, MULTIPART.size)
    max_groups, actions = rest[GROUP_ALL], rest[4 + GROUP_ALL]
    needed = 1 << ActionType.OUTPUT | 1 << ActionType.SET_FIELD
    usable = bool(types >> GROUP_ALL & 1) and actions & needed == needed
    return GroupFeatures(xid, usable, max_groups)


def decode_table_features(data: bytes, at: int) -> list[TableFeature]:
    """The features of each table, from a position in a message on."""
    tables = []
    while at < len(data):
        length, table, name, max_entries = read(_TABLE, data, at)
        after = at + length
        if length < _TABLE.size or after > len(data):
            raise MalformedMessage(f"features of {length} bytes, {len(data) - at} are left")
        properties = dict(_properties(data[at + _TABLE.size : after]))
        goto = InstructionType.GOTO_TABLE in _ids(properties.get(_INSTRUCTIONS, b""))
        actions = _ids(properties.get(_APPLY_ACTIONS, b""))
        fields = _field_ids(properties.get(_MATCH, b""))
        ipv6_dst = fields.get(Oxm.IPV6_DST & _FIELD)
        tables.append(
            TableFeature(
                table=table,
                name=_text(name),
                max_entries=max_entries,
                in_port=Oxm.IN_PORT & _FIELD in fields,
                ipv6_dst=ipv6_dst is not None,
                masks=bool(ipv6_dst),
                output=ActionType.OUTPUT in actions,
                groups=ActionType.GROUP in actions,
                goes_to=frozenset(properties.get(_NEXT_TABLES, b"")) if goto else frozenset(),
            )
        )
        at = after
    return tables


def _properties(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        kind, length = read(TYPE_LENGTH, data, at)
        if length < TYPE_LENGTH.size or at + length > len(data):
            raise MalformedMessage(f"a property of {length} bytes, {len(data) - at} are left")
        yield kind, data[at + TYPE_LENGTH.size : at + length]
        at += pad8(length)


def _ids(data: bytes) -> set[int]:
    """The types of instructions or actions that a property lists."""
    found, at = set(), 0
    while at < len(data):
        kind, length = read(TYPE_LENGTH, data, at)
        if length < TYPE_LENGTH.size:
            raise MalformedMessage(f"an instruction or action of {length} bytes in a list")
        found.add(kind)
        at += length
    return found


def _field_ids(data: bytes) -> dict[int, bool]:
    """The match fields that a property lists, and whether they take any mask."""
    found, at = {}, 0
    while at < len(data):
        (header,) = read(_BITMAP, data, at)
        found[header & _FIELD] = bool(header & _HAS_MASK)
        at += 8 if header >> 16 == _EXPERIMENTER else 4
    return found


Update = FlowUpdated | MonitorPaused | MonitorResumed


def decode_flow_updates(data: bytes, at: int) -> list[Update]:
    """The changes by others that a flow monitor reports, from a position in a message on."""
    updates: list[Update] = []
    while at < len(data):
        length, event, _ = read(_UPDATE, data, at)
        after = at + length
        if length < _UPDATE.size or after > len(data):
            raise MalformedMessage(f"a flow update of {length} bytes, {len(data) - at} are left")
        if event == FlowEvent.PAUSED:
            updates.append(MonitorPaused())
        elif event == FlowEvent.RESUMED:
            updates.append(MonitorResumed())
        elif event in _FLOW_CHANGES:
            cookie, entry = _updated_entry(data, at, after)
            updates.append(FlowUpdated(_FLOW_CHANGES[event], cookie, entry))
        elif event != FlowEvent.ABBREV:  # our own change
            raise MalformedMessage(f"there is no flow update {event}")
        at = after
    return updates


_FLOW_CHANGES = {
    int(FlowEvent.INITIAL): Change.ADD,
    int(FlowEvent.ADDED): Change.ADD,
    int(FlowEvent.REMOVED): Change.DELETE,
    int(FlowEvent.MODIFIED): Change.MODIFY,
}


def _updated_entry(data: bytes, at: int, after: int) -> tuple[int, FlowEntry | Foreign]:
    _, _, table, timeouts, priority, cookie = read(_UPDATE_FULL, data[:after], at)
    start = at + _UPDATE_FULL.size
    return cookie, decode_entry(data, start, after, table, priority, bool(timeouts))


def _text(name: bytes) -> str:
    return printable(name.split(b"\0", 1)[0])
