"""A valid message of every kind that a session reads, and sessions that wait for them."""

import struct

from dzflow.address import ALL, Match
from sdn.openflow.protocol.codec import encode_flow_stats, encode_group_ops
from sdn.openflow.protocol.constants import (
    OUR_COOKIES,
    V1_4,
    VERSIONS,
    FlowEvent,
    Multipart,
    Role,
    Type,
)
from sdn.openflow.protocol.events import Ready
from sdn.openflow.protocol.messages import FlowStat
from sdn.openflow.protocol.session import Session
from sdn.openflow.protocol.wire import message
from sdn.tables.flows import Change, FlowEntry, GroupEntry, GroupOp, Output, ToGroup
from tests.sdn.openflow import peer

MATCH = Match(0xFF1E << 112, ALL ^ (ALL >> 16))
ENTRY = FlowEntry(3, 100, MATCH, (Output(2), ToGroup(7)), 4, 5)
# The xids that a new session uses for its requests.
FEATURES, PORTS, STATS, GROUPS, GROUP_FEATURES, TABLES, BARRIER, ROLE, ECHO, MONITOR = range(2, 12)


def opening(version: int) -> bytes:
    """What makes a session ready."""
    return (
        peer.hello(version, version)
        + peer.features(version, FEATURES)
        + peer.port_desc(version, PORTS, peer.port(version, 1))
    )


def table_features() -> bytes:
    properties = (
        struct.pack("!HHHHHH4x", 0, 12, 1, 4, 4, 4)
        + struct.pack("!HHBB2x", 2, 6, 1, 2)
        + struct.pack("!HHHHHH4x", 6, 12, 0, 4, 22, 4)
        + struct.pack("!HHIII", 8, 16, 0x80000004, 0x80000A02, 0x80003720)
    )
    fixed = struct.pack("!HB5x32s16x4xI", 64 + len(properties), 1, b"t", 100)
    return fixed + properties


def seeds(version: int) -> list[bytes]:
    """A valid message of every kind that a session takes apart."""
    stats = [FlowStat(OUR_COOKIES, 1, 2, ENTRY), FlowStat(1, 1, 2, FlowEntry(0, 0, None))]
    bucket = encode_group_ops(version, [GroupOp(Change.ADD, GroupEntry(1, "h1", 2))], 1)[16:]
    parts = peer.parts
    found = [
        peer.hello(version, 4, 5),
        peer.features(version, FEATURES),
        peer.port_desc(version, PORTS, peer.port(version, 1), peer.port(version, 2)),
        encode_flow_stats(version, STATS, stats),
        parts(version, GROUPS, Multipart.GROUP_DESC, [peer.group_desc(1, bucket * 2)]),
        peer.group_features(version, GROUP_FEATURES, 1, 5, 0xFFFFFFFF),
        parts(version, TABLES, Multipart.TABLE_FEATURES, [table_features() * 2]),
        peer.barrier_reply(version, BARRIER),
        peer.role_reply(version, ROLE, Role.MASTER, 9),
        message(version, Type.ECHO_REPLY, ECHO, b"data"),
        message(version, Type.ECHO_REQUEST, 1, b"data"),
        peer.port_status(version, 2, peer.port(version, 1)),
        peer.packet_in(version, 1, b"packet"),
        peer.error(version, BARRIER, 5, 1, b"data"),
        message(version, Type.FLOW_REMOVED, 0, bytes(40)),
        message(version, Type.EXPERIMENTER, 0, bytes(8)),
    ]
    if version == V1_4:
        updates = [
            peer.flow_update(FlowEvent.ADDED, OUR_COOKIES, ENTRY),
            peer.flow_update_short(FlowEvent.ABBREV, 7),
            peer.flow_update_short(FlowEvent.PAUSED),
        ]
        found += [peer.flow_updates(*updates), peer.role_status(Role.SLAVE, 3)]
    return found


OPENINGS = {version: opening(version) for version in VERSIONS}
SEEDS = {version: seeds(version) for version in VERSIONS}


def started(version: int, ready: bool) -> Session:
    """A new session; if it is to be ready, it has asked for everything that can be asked for."""
    session = Session()
    if ready:
        (event,) = session.feed(OPENINGS[version])
        assert isinstance(event, Ready)
        session.request_flow_stats()
        session.request_group_desc()
        session.request_group_features()
        session.request_table_features()
        session.send_barrier()
        session.request_role(Role.MASTER, 9)
        session.request_echo()
        if version == V1_4:
            assert session.start_flow_monitor() == MONITOR
        session.outgoing()
    return session
