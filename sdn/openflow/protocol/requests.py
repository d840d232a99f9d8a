"""Encodes the less frequent messages of a controller; the frequent ones are in `encode`."""

from struct import Struct, pack

from sdn.openflow.protocol.constants import (
    ALL_TABLES,
    ANY,
    CONTROLLER_PORT,
    NO_BUFFER,
    VERSIONS,
    ActionType,
    Multipart,
    Role,
    Type,
)
from sdn.openflow.protocol.layouts import OUTPUT
from sdn.openflow.protocol.wire import TYPE_LENGTH, message, multipart

_ERROR = Struct("!HH")
_ROLE = Struct("!I4xQ")
_PACKET_OUT = Struct("!IIH6x")
_FLOW_STATS = Struct("!B3xII4xQQ")
_FLOW_MONITOR = Struct("!IIIHBB")
_ANY_MATCH = pack("!HH4x", 1, 4)
_VERSION_BITMAP = 1

_MONITOR_ADD = 0
_MONITOR_DELETE = 2
_MONITOR_FLAGS = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4  # added, removed, modified; with instructions

_ERROR_DATA = 64  # an error shows that much of the message that it answers


def hello(xid: int) -> bytes:
    """The first message: the versions that we speak."""
    bitmap = sum(1 << version for version in VERSIONS)
    element = TYPE_LENGTH.pack(_VERSION_BITMAP, 8) + bitmap.to_bytes(4, "big")
    return message(max(VERSIONS), Type.HELLO, xid, element)


def error(version: int, xid: int, kind: int, code: int, data: bytes) -> bytes:
    """The answer to a message that cannot be served, with its beginning or a text as data."""
    return message(version, Type.ERROR, xid, _ERROR.pack(kind, code) + data[:_ERROR_DATA])


def role_request(version: int, xid: int, role: Role, generation: int) -> bytes:
    """Asks for a role; a switch refuses generations older than the latest that it has seen."""
    return message(version, Type.ROLE_REQUEST, xid, _ROLE.pack(role, generation))


def packet_out(version: int, xid: int, port: int, data: bytes) -> bytes:
    """Sends a packet out of a port."""
    action = OUTPUT.pack(ActionType.OUTPUT, OUTPUT.size, port, 0)
    body = _PACKET_OUT.pack(NO_BUFFER, CONTROLLER_PORT, len(action)) + action + data
    return message(version, Type.PACKET_OUT, xid, body)


def multipart_request(version: int, xid: int, kind: Multipart, body: bytes = b"") -> bytes:
    """Asks for something that may take several messages to answer."""
    return multipart(version, Type.MULTIPART_REQUEST, kind, xid, body)


def flow_stats_request(
    version: int, xid: int, cookie: int, cookie_mask: int, table: int = ALL_TABLES
) -> bytes:
    """Asks for all entries whose cookie agrees where the mask is set."""
    body = _FLOW_STATS.pack(table, ANY, ANY, cookie, cookie_mask) + _ANY_MATCH
    return multipart_request(version, xid, Multipart.FLOW, body)


def flow_monitor_request(version: int, xid: int, monitor: int, on: bool) -> bytes:
    """Starts or stops reports of changes to entries (our own changes only by their xid)."""
    command = _MONITOR_ADD if on else _MONITOR_DELETE
    body = _FLOW_MONITOR.pack(monitor, ANY, ANY, _MONITOR_FLAGS, ALL_TABLES, command)
    return multipart_request(version, xid, Multipart.FLOW_MONITOR, body + _ANY_MATCH)
