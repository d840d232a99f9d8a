import struct
from collections.abc import Iterator

import pytest

from sdn.openflow.protocol import receiver, requests
from sdn.openflow.protocol.codec import (
    encode_flow_stats,
)
from sdn.openflow.protocol.constants import (
    V1_3,
    V1_4,
    Multipart,
    Type,
)
from sdn.openflow.protocol.events import (
    Closed,
    Event,
    PacketIn,
    Ready,
)
from sdn.openflow.protocol.outbox import MAX_ANSWERS
from sdn.openflow.protocol.session import Session
from sdn.openflow.protocol.wire import message
from tests.sdn.openflow import peer
from tests.sdn.openflow.peer import header, split
from tests.sdn.openflow.sessions import OPS, STATS, both, closing, connect


@both
def test_unknown_types_are_answered_with_an_error_and_the_session_goes_on(version: int) -> None:
    session = connect(version)
    for kind in (4, 5, 14, 22, 77, 255):
        unknown = struct.pack("!BBHI", version, kind, 10, 42) + b"ab"
        assert session.feed(unknown) == []
        assert session.outgoing() == requests.error(version, 42, 1, 1, unknown)
    assert session.closed is None


def test_known_messages_without_use_are_passed_over() -> None:
    session = connect()
    for kind in (Type.FLOW_REMOVED, Type.TABLE_STATUS, Type.REQUEST_FORWARD):
        assert session.feed(message(V1_4, kind, 0, b"whatever")) == []
    assert session.outgoing() == b""


@pytest.mark.parametrize("length", [0, 1, 7])
def test_a_length_shorter_than_a_header_ends_the_session(length: int) -> None:
    session = connect()
    reason = closing(session, struct.pack("!BBHI", V1_4, 21, length, 1))
    assert f"{length} bytes" in reason
    assert struct.unpack_from("!HH", session.outgoing(), 8) == (1, 6)


def test_a_length_over_the_limit_ends_the_session_before_the_message_has_come() -> None:
    session = Session(max_message=4096)
    session.feed(peer.hello(V1_4))
    assert "5000 bytes" in closing(session, struct.pack("!BBHI", V1_4, 10, 5000, 1))


def test_another_version_in_the_middle_ends_the_session() -> None:
    session = connect(V1_4)
    assert "version 4" in closing(session, peer.barrier_reply(V1_3, 1))
    assert struct.unpack_from("!HH", session.outgoing(), 8) == (1, 0)


def test_a_malformed_message_ends_the_session_after_what_came_before_it() -> None:
    session = connect()
    good = peer.packet_in(V1_4, 1, b"good")
    bad = message(V1_4, Type.PACKET_IN, 7, b"bad")
    events = session.feed(good + bad + good)
    assert [type(event) for event in events] == [PacketIn, Closed]
    assert session.outgoing() == requests.error(V1_4, 7, 1, 6, bad)


def test_what_was_not_sent_when_a_session_ended_is_not_sent_any_more() -> None:
    session = connect()
    session.send_ops(OPS)
    closing(session, peer.barrier_reply(V1_3, 1))
    assert [header(each).type for each in split(session.outgoing())] == [Type.ERROR]


def test_a_second_hello_is_refused_but_not_fatal() -> None:
    session = connect()
    assert session.feed(peer.hello(V1_4)) == []
    assert header(session.outgoing()).type == Type.ERROR
    assert session.closed is None


def test_a_peer_that_asks_without_reading_is_dropped() -> None:
    session = connect()
    echo = message(V1_4, Type.ECHO_REQUEST, 1, bytes(60000))
    for _ in range(100):  # answered and taken away each time
        assert session.feed(echo) == []
        session.outgoing()
    assert "more than can be sent" in closing(session, echo * 100)
    assert len(session.outgoing()) <= MAX_ANSWERS + 100


def endless(session: Session, kind: Multipart, xid: int, body: bytes) -> Iterator[list[Event]]:
    (part, _) = split(peer.parts(V1_4, xid, kind, [body, b""]))
    while session.closed is None:
        yield session.feed(part)


@pytest.mark.parametrize("kind", [Multipart.FLOW, Multipart.GROUP_DESC, Multipart.TABLE_FEATURES])
def test_an_endless_answer_ends_the_session(
    kind: Multipart, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver, "MAX_ENTRIES", 5000)
    session = connect()
    xid = {
        Multipart.FLOW: session.request_flow_stats,
        Multipart.GROUP_DESC: session.request_group_desc,
        Multipart.TABLE_FEATURES: session.request_table_features,
    }[kind]()
    body = {
        Multipart.FLOW: encode_flow_stats(V1_4, xid, STATS)[16:],
        Multipart.GROUP_DESC: peer.group_desc(1, b""),
        Multipart.TABLE_FEATURES: struct.pack("!HB5x32s16x4xI", 64, 3, b"t", 9),
    }[kind]
    *_, last = endless(session, kind, xid, body * 100)
    assert isinstance(last[-1], Closed)
    assert "more than" in last[-1].reason


def test_endless_ports_during_the_handshake_end_the_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(receiver, "MAX_ITEMS", 100)
    session = Session()
    session.feed(peer.hello(V1_4))
    told = b"".join(peer.port_status(V1_4, 0, peer.port(V1_4, n)) for n in range(1, 102))
    assert "more than 100 ports" in closing(session, told)


@both
def test_a_switch_cannot_change_its_datapath_id(version: int) -> None:
    session = Session()
    session.feed(peer.hello(version))
    asked = [header(each).xid for each in split(session.outgoing())][-2:]
    assert session.feed(peer.features(version, asked[0], dpid=1)) == []
    assert session.feed(peer.features(version, asked[0], dpid=2)) == []
    (ready,) = session.feed(peer.port_desc(version, asked[1]))
    assert isinstance(ready, Ready)
    assert ready.dpid == 1
    assert session.feed(peer.features(version, asked[0], dpid=3)) == []
    assert session.ignored == 2


def test_an_answer_of_empty_parts_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver, "MAX_ENTRIES", 100)
    session = connect(V1_4)
    xid = session.request_flow_stats()
    part = peer.parts(V1_4, xid, Multipart.FLOW, [b"", b""])[:16]  # more follow
    assert "100 entries" in closing(session, part * 101)


def test_answers_add_up_while_the_switch_does_not_read_them() -> None:
    session = connect(V1_4)
    echo = message(V1_4, Type.ECHO_REQUEST, 1, bytes(60_000))
    for _ in range(2 * MAX_ANSWERS // len(echo)):
        assert session.feed(echo) == []
        session.outgoing(taken=True)
    while session.closed is None:
        session.feed(echo)
        session.outgoing(taken=False)
    assert "asks for more" in session.closed


def test_what_nobody_has_asked_for_is_counted() -> None:
    session = connect(V1_4)
    unasked = [
        peer.barrier_reply(V1_4, 999),
        peer.role_reply(V1_4, 999, 2, 1),
        message(V1_4, Type.ECHO_REPLY, 999),
        message(V1_4, Type.ECHO_REQUEST, 999),
        message(V1_4, Type.EXPERIMENTER, 999, bytes(8)),
        message(V1_4, Type.FLOW_REMOVED, 999),
        peer.parts(V1_4, 999, Multipart.FLOW, [b""]),
    ]
    assert session.feed(b"".join(unasked)) == []
    assert session.ignored == len(unasked)


def test_a_text_of_the_switch_has_no_control_characters_and_an_end() -> None:
    session = Session()
    reason = closing(session, peer.error(V1_4, 1, 0, 0, b"\x1b[2J\nwrong" + bytes(900)))
    assert "?[2J?wrong" in reason
    assert len(reason) < 300
