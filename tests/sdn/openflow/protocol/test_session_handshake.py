import struct
from collections.abc import Callable

import pytest

from sdn.openflow.protocol import requests
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
    PortChanged,
    Ready,
    SwitchError,
)
from sdn.openflow.protocol.messages import Port
from sdn.openflow.protocol.session import NotReady, Session
from sdn.openflow.protocol.wire import message
from sdn.tables.flows import Change
from tests.sdn.openflow import peer
from tests.sdn.openflow.peer import header, split
from tests.sdn.openflow.sessions import OPS, both, closing, connect


@both
def test_a_session_greets_and_asks_for_features_and_ports(version: int) -> None:
    session = Session()
    assert session.outgoing() == requests.hello(1)
    assert session.feed(peer.hello(6, 6, version)) == []
    assert session.outgoing() == message(
        version, Type.FEATURES_REQUEST, 2
    ) + requests.multipart_request(version, 3, Multipart.PORT_DESC)
    assert session.outgoing() == b""


def test_features_and_ports_may_come_in_any_order_and_in_parts() -> None:
    session = Session()
    session.feed(peer.hello(V1_4))
    one, two = peer.port(V1_4, 1), peer.port(V1_4, 2)
    first, second = split(peer.parts(V1_4, 3, Multipart.PORT_DESC, [one, two]))
    assert session.feed(first) == []
    assert session.feed(second) == []
    (ready,) = session.feed(peer.features(V1_4, 2))
    assert isinstance(ready, Ready)
    assert [port.number for port in ready.ports] == [1, 2]


def test_ports_that_change_during_the_handshake_are_told_after_it() -> None:
    session = Session()
    session.feed(peer.hello(V1_3))
    down, up = peer.port(V1_3, 1, state=1), peer.port(V1_3, 1)
    assert session.feed(peer.port_status(V1_3, 2, down) + peer.port_status(V1_3, 2, up)) == []
    assert session.feed(peer.packet_in(V1_3, 1, b"early")) == []
    events = session.feed(peer.features(V1_3, 2) + peer.port_desc(V1_3, 3, up))
    assert [type(event) for event in events] == [Ready, PortChanged]
    assert events[1] == PortChanged(Change.MODIFY, Port(1, "p", "00:00:00:00:00:01", True))


@pytest.mark.parametrize(("first", "offered"), [(1, ()), (6, (6,)), (2, (1, 2))])
def test_a_peer_without_a_common_version_is_told_so_and_dropped(
    first: int, offered: tuple[int, ...]
) -> None:
    session = Session()
    session.outgoing()
    reason = closing(session, peer.hello(first, *offered))
    assert "no common version" in reason
    answer = session.outgoing()
    assert header(answer).type == Type.ERROR
    assert struct.unpack_from("!HH", answer, 8) == (0, 0)
    assert b"OpenFlow 1.3 and 1.4" in answer


def test_a_switch_that_refuses_our_hello_says_why() -> None:
    for before in (b"", peer.hello(6)):
        session = Session()
        refusal = peer.error(6, 1, 0, 0, b"only version 6 here")
        assert "only version 6 here" in closing(session, before + refusal)


def test_a_switch_that_refuses_to_introduce_itself_is_dropped() -> None:
    session = Session()
    session.feed(peer.hello(V1_3))
    assert "not supported" in closing(session, peer.error(V1_3, 3, 1, 2))


def test_other_errors_during_the_handshake_change_nothing() -> None:
    session = Session()
    assert session.feed(peer.hello(V1_3) + peer.error(V1_3, 99, 1, 2)) == []
    assert session.closed is None


def test_an_auxiliary_connection_is_refused() -> None:
    session = Session()
    session.feed(peer.hello(V1_3))
    assert "auxiliary" in closing(session, peer.features(V1_3, 2, aux=1))


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n",
        bytes.fromhex("160301020001"),
        b"\0" * 8,
        peer.features(V1_4, 2),
        message(V1_4, Type.ECHO_REQUEST, 1),
    ],
    ids=["http", "tls", "zeros", "features", "echo"],
)
def test_a_peer_that_does_not_begin_with_hello_is_dropped_at_its_first_bytes(data: bytes) -> None:
    closing(Session(), data + bytes(8))


def test_a_long_hello_is_not_waited_for() -> None:
    assert "2000 bytes" in closing(Session(), struct.pack("!BBHI", 5, 0, 2000, 1))


def test_nothing_can_be_sent_before_the_switch_is_ready() -> None:
    session = Session()
    session.outgoing()
    asks: list[Callable[[], object]] = [
        lambda: session.send_ops(OPS),
        session.request_flow_stats,
        session.start_flow_monitor,
        lambda: session.packet_out(1, b""),
    ]
    for ask in asks:
        with pytest.raises(NotReady, match="Ready"):
            ask()
    assert session.outgoing() == b""


def conversation() -> bytes:
    """All that a switch says in a session that asked for three things after it was ready."""
    return b"".join(
        [
            peer.hello(6, 4, 5, 6),
            peer.features(V1_4, 2),
            peer.port_desc(V1_4, 3, peer.port(V1_4, 1)),
            peer.packet_in(V1_4, 1, b"packet"),
            peer.port_status(V1_4, 2, peer.port(V1_4, 1, state=1)),
            peer.error(V1_4, 4, 5, 1),
        ]
    )


def test_how_the_bytes_are_cut_makes_no_difference() -> None:
    data = conversation()
    expected = Session().feed(data)
    assert [type(event) for event in expected] == [Ready, PacketIn, PortChanged, SwitchError]
    for size in (1, 2, 7, 8, 9, 50):
        session = Session()
        events: list[Event] = []
        for at in range(0, len(data), size):
            events += session.feed(data[at : at + size])
        assert events == expected


def test_the_end_of_a_connection_is_told_once() -> None:
    session = connect()
    assert session.eof() == [Closed("the switch closed the connection")]
    assert session.eof() == []
    session = connect()
    session.feed(peer.barrier_reply(V1_4, 1)[:5])
    (closed,) = session.eof()
    assert isinstance(closed, Closed)
    assert "in the middle" in closed.reason
