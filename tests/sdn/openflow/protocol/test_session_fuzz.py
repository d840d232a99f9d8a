"""Whatever a peer sends, `feed` returns events and raises nothing; the session goes on or ends."""

import struct
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from dzflow.address import ALL, Match
from sdn.flows import Change, FlowEntry, GroupEntry, GroupOp, Output, ToGroup
from sdn.openflow.protocol.codec import encode_flow_stats, encode_group_ops
from sdn.openflow.protocol.constants import (
    OUR_COOKIES,
    V1_3,
    V1_4,
    VERSIONS,
    FlowEvent,
    Multipart,
    Role,
    Type,
)
from sdn.openflow.protocol.events import Closed, Ready
from sdn.openflow.protocol.messages import FlowStat
from sdn.openflow.protocol.session import Session
from sdn.openflow.protocol.wire import message
from tests.sdn.openflow import peer

CASES = 120_000
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


def noise(random: Random, version: int) -> bytes:
    """Random bytes, mostly behind a header that makes them look like a message."""
    body = random.randbytes(random.randrange(120))
    if random.random() < 0.2:
        return body
    kind = random.randrange(36)
    length = 8 + len(body) if random.random() < 0.9 else random.randrange(65536)
    head = struct.pack("!BBHI", version, kind, length, random.randrange(14))
    if kind == Type.MULTIPART_REPLY:
        body = struct.pack("!HH4x", random.randrange(18), random.randrange(2)) + body[8:]
    return head + body


def mutated(random: Random, data: bytes) -> bytes:
    """A message with a few bytes changed, cut out, put in or repeated."""
    changed = bytearray(data)
    for _ in range(random.randrange(1, 4)):
        at = random.randrange(len(changed) + 1)
        match random.randrange(6):
            case 0 | 1 if at < len(changed):
                changed[at] = random.choice((0, 1, 7, 8, 127, 255, random.randrange(256)))
            case 2 if at + 2 <= len(changed):
                struct.pack_into("!H", changed, at, random.choice((0, 3, 4, 8, 16, 0xFFFF)))
            case 3:
                del changed[at : at + random.randrange(1, 20)]
            case 4:
                changed[at:at] = random.randbytes(random.randrange(1, 20))
            case _:
                changed[at:at] = changed[: random.randrange(40)]
    # Mostly with a length that is right, so that more than the header is put to the test.
    if len(changed) >= 8 and random.random() < 0.8:
        changed[:2] = data[:2]
        struct.pack_into("!H", changed, 2, len(changed))
        changed[4:8] = data[4:8]
    return bytes(changed)


def case(random: Random, version: int) -> bytes:
    data = random.choice(SEEDS[version])
    match random.randrange(8):
        case 0:
            return noise(random, version)
        case 1:
            return data[: random.randrange(len(data))]
        case 2:
            length = random.choice((0, 7, len(data) - 1, len(data) + 1, 0xFFFF))
            return data[:2] + struct.pack("!H", length) + data[4:]
        case 3:
            return mutated(random, data) + random.choice(SEEDS[version])
        case _:
            return mutated(random, data)


def test_no_bytes_make_feed_raise_or_say_anything_after_the_end() -> None:
    random = Random(20)
    ended = went_on = 0
    sessions = {version: started(version, True) for version in VERSIONS}
    for number in range(CASES):
        version = random.choice(VERSIONS)
        # Every tenth case meets a session that has heard nothing yet.
        fresh = number % 10 == 0
        session = started(version, False) if fresh else sessions[version]
        data = case(random, version)
        cut = random.randrange(len(data) + 1)
        events = session.feed(data[:cut]) + session.feed(data[cut:])
        assert not any(isinstance(event, Closed) for event in events[:-1])
        session.outgoing()
        assert session.buffered < 65536
        if session.closed is None:
            went_on += 1
        else:
            ended += 1
            assert isinstance(events[-1], Closed)
            assert session.closed == events[-1].reason != ""
        if not fresh and (session.closed is not None or session.buffered or number % 7 == 0):
            sessions[version] = started(version, True)
    # Both happen often, or else the cases would test little.
    assert ended > CASES // 10
    assert went_on > CASES // 10


def test_every_seed_is_taken_by_a_session_that_is_ready() -> None:
    for version in VERSIONS:
        for data in SEEDS[version]:
            session = started(version, True)
            session.feed(data)
            assert session.closed is None, data


@given(st.lists(st.binary(max_size=100), max_size=5), st.booleans(), st.sampled_from(VERSIONS))
def test_arbitrary_chunks_are_survived(chunks: list[bytes], ready: bool, version: int) -> None:
    session = started(version, ready)
    for chunk in chunks:
        session.feed(chunk)
    session.eof()
    assert session.closed


def test_a_session_that_ends_leaves_others_as_they_were() -> None:
    good, bad = started(V1_3, True), started(V1_3, True)
    bad.feed(b"\xff" * 100)
    assert bad.closed
    assert good.closed is None
    assert good.feed(peer.barrier_reply(V1_3, BARRIER))
