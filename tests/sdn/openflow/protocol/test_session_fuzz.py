"""Whatever a peer sends, `feed` returns events and raises nothing; the session goes on or ends."""

import struct
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from sdn.openflow.protocol.constants import V1_3, VERSIONS, Type
from sdn.openflow.protocol.events import Closed
from tests.sdn.openflow import peer
from tests.sdn.openflow.session_seeds import BARRIER, SEEDS, started

CASES = 120_000


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
