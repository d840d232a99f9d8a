"""What a switch says, to bytes, for tests of the controller's side.

Written from the specification; `test_replies` checks it against os-ken's parsers.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from sdn.openflow.protocol.codec import encode_flow_stats
from sdn.openflow.protocol.constants import (
    ANY,
    V1_3,
    V1_4,
    FlowEvent,
    Multipart,
    Role,
    Type,
)
from sdn.openflow.protocol.messages import FlowStat
from sdn.openflow.protocol.wire import MULTIPART, message, multipart
from sdn.tables.flows import FlowEntry


def split(data: bytes) -> list[bytes]:
    """A stream as whole messages."""
    found = []
    while data:
        (length,) = struct.unpack_from("!H", data, 2)
        found.append(data[:length])
        data = data[length:]
    return found


class Header(NamedTuple):
    version: int
    type: int
    length: int
    xid: int


def header(data: bytes) -> Header:
    return Header(*struct.unpack_from("!BBHI", data))


def hello(version: int, *offered: int) -> bytes:
    """A hello, with a bitmap if versions are given."""
    bitmap = sum(1 << each for each in offered)
    element = struct.pack("!HHI", 1, 8, bitmap) if offered else b""
    return message(version, Type.HELLO, 1, element)


def features(version: int, xid: int, dpid: int = 0xD2, tables: int = 254, aux: int = 0) -> bytes:
    body = struct.pack("!QIBB2xII", dpid, 0, tables, aux, 0x4F, 0)
    return message(version, Type.FEATURES_REPLY, xid, body)


def port(version: int, number: int, name: str = "p", config: int = 0, state: int = 0) -> bytes:
    mac = number.to_bytes(6, "big")
    if version == V1_3:
        return struct.pack(
            "!I4x6s2x16sIIIIIIII", number, mac, name.encode(), config, state, *[0] * 6
        )
    ethernet = struct.pack("!HH4xIIIIII", 0, 32, *[0] * 6)
    fixed = struct.pack("!IH2x6s2x16sII", number, 72, mac, name.encode(), config, state)
    return fixed + ethernet


def parts(version: int, xid: int, kind: Multipart, bodies: Sequence[bytes]) -> bytes:
    """A multipart reply in as many messages as there are bodies."""
    last = len(bodies) - 1
    return b"".join(
        multipart(version, Type.MULTIPART_REPLY, kind, xid, body, int(number < last))
        for number, body in enumerate(bodies)
    )


def port_desc(version: int, xid: int, *ports: bytes) -> bytes:
    return parts(version, xid, Multipart.PORT_DESC, [b"".join(ports)])


def port_status(version: int, reason: int, described: bytes) -> bytes:
    return message(version, Type.PORT_STATUS, 0, struct.pack("!B7x", reason) + described)


def packet_in(version: int, port: int, data: bytes, cookie: int = 5, table: int = 3) -> bytes:
    match = struct.pack("!HHII4x", 1, 12, 0x80000004, port)
    body = struct.pack("!IHBBQ", ANY, len(data), 1, table, cookie) + match + bytes(2) + data
    return message(version, Type.PACKET_IN, 0, body)


def error(version: int, xid: int, kind: int, code: int, data: bytes = b"") -> bytes:
    return message(version, Type.ERROR, xid, struct.pack("!HH", kind, code) + data)


def role_reply(version: int, xid: int, role: int, generation: int) -> bytes:
    return message(version, Type.ROLE_REPLY, xid, struct.pack("!I4xQ", role, generation))


def role_status(role: Role, generation: int) -> bytes:
    return message(V1_4, Type.ROLE_STATUS, 0, struct.pack("!IB3xQ", role, 0, generation))


def barrier_reply(version: int, xid: int) -> bytes:
    return message(version, Type.BARRIER_REPLY, xid)


def group_desc(group: int, buckets: bytes, kind: int = 0) -> bytes:
    return struct.pack("!HBxI", 8 + len(buckets), kind, group) + buckets


def group_features(version: int, xid: int, types: int, most: int, actions: int) -> bytes:
    body = struct.pack("!II4I4I", types, 0, most, 0, 0, 0, actions, 0, 0, 0)
    return parts(version, xid, Multipart.GROUP_FEATURES, [body])


def flow_update(event: FlowEvent, cookie: int, entry: FlowEntry) -> bytes:
    record = encode_flow_stats(V1_4, 0, [FlowStat(0, 0, 0, entry)])[MULTIPART.size + 48 :]
    fixed = (24 + len(record), event, entry.table, 0, 0, 0, entry.priority, cookie)
    return struct.pack("!HHBBHHH4xQ", *fixed) + record


def flow_update_short(event: FlowEvent, xid: int = 0) -> bytes:
    return struct.pack("!HHI", 8, event, xid)


def flow_updates(*updates: bytes) -> bytes:
    return parts(V1_4, 0, Multipart.FLOW_MONITOR, [b"".join(updates)])
