"""The client's end of HTTP/2, beside a server's end that is written out frame by frame."""

from collections.abc import Iterator
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from configurators.store.etcd.headers import encode
from configurators.store.etcd.http2 import HEAD_BYTES, Answer, Event, Http2Client, NoAnswer

DATA, HEADERS, RESET, SETTINGS, PUSH, PING, GO_AWAY, WINDOW, CONTINUATION = (
    0,
    1,
    3,
    4,
    5,
    6,
    7,
    8,
    9,
)
END_STREAM = ACK = 1
END_HEADERS, PADDED, PRIORITY = 4, 8, 0x20
LARGEST = 1 << 20

BEGIN = encode(((":status", "200"),))
END = encode((("grpc-status", "0"),))
BOTH = ((":status", "200"), ("grpc-status", "0"))


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return pack("!I", len(payload))[1:] + pack("!BBI", kind, flags, stream) + payload


def frames(sent: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    while sent:
        length = int.from_bytes(sent[:3], "big")
        stream = int.from_bytes(sent[5:9], "big")
        yield sent[3], sent[4], stream, sent[HEAD_BYTES : HEAD_BYTES + length]
        sent = sent[HEAD_BYTES + length :]


def answer(stream: int, body: bytes = b"answer") -> bytes:
    return (
        frame(HEADERS, END_HEADERS, stream, BEGIN)
        + frame(DATA, 0, stream, body)
        + frame(HEADERS, END_HEADERS | END_STREAM, stream, END)
    )


def connected(*settings: tuple[int, int]) -> Http2Client:
    client = Http2Client(LARGEST)
    client.to_send()
    packed = b"".join(pack("!HI", name, value) for name, value in settings)
    assert client.receive(frame(SETTINGS, 0, 0, packed)) == []
    assert list(frames(client.to_send())) == [(SETTINGS, ACK, 0, b"")]
    return client


def sent_bodies(client: Http2Client) -> dict[int, int]:
    """How many bytes of bodies are sent now, by stream."""
    found: dict[int, int] = {}
    for kind, _, stream, payload in frames(client.to_send()):
        if kind == DATA:
            found[stream] = found.get(stream, 0) + len(payload)
    return found


def test_a_connection_begins_with_the_preface_and_no_table_of_headers() -> None:
    begin = Http2Client(LARGEST).to_send()
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    assert begin.startswith(preface)
    kind, _, stream, settings = next(frames(begin.removeprefix(preface)))
    assert (kind, stream) == (SETTINGS, 0)
    assert pack("!HI", 1, 0) in settings


def test_a_request_gets_its_answer() -> None:
    client = connected()
    first, second = client.request(b"head", b"one"), client.request(b"head", b"two")
    assert list(frames(client.to_send())) == [
        (HEADERS, END_HEADERS, first, b"head"),
        (DATA, END_STREAM, first, b"one"),
        (HEADERS, END_HEADERS, second, b"head"),
        (DATA, END_STREAM, second, b"two"),
    ]
    assert client.receive(answer(second, b"2") + answer(first, b"1")) == [
        Answer(second, BOTH, b"2"),
        Answer(first, BOTH, b"1"),
    ]
    assert client.to_send() == b""


@given(st.lists(st.integers(1, 40), max_size=20))
def test_it_does_not_matter_how_the_bytes_are_cut(lengths: list[int]) -> None:
    client = connected()
    stream = client.request(b"head", b"body")
    padded = bytes((3,)) + b"part" + bytes(3)
    received = (
        frame(HEADERS, PRIORITY, stream, bytes(5) + BEGIN[:3])
        + frame(CONTINUATION, END_HEADERS, stream, BEGIN[3:])
        + frame(DATA, PADDED, stream, padded)
        + frame(0x99, 0xFF, stream, b"of an unknown kind")
        + frame(DATA, 0, stream, b"ner")
        + frame(HEADERS, END_STREAM, stream, END[:2])
        + frame(CONTINUATION, END_HEADERS, stream, END[2:])
    )
    events: list[Event] = []
    for length in lengths:
        events += client.receive(received[:length])
        received = received[length:]
    events += client.receive(received)
    assert events == [Answer(stream, BOTH, b"partner")]


def test_an_answer_may_consist_of_headers_only() -> None:
    client = connected()
    stream = client.request(b"head", b"body")
    only = encode((("grpc-status", "5"),))
    events = client.receive(frame(HEADERS, END_HEADERS | END_STREAM, stream, only))
    assert events == [Answer(stream, (("grpc-status", "5"),), b"")]


def test_a_large_request_waits_for_room_on_its_stream_and_on_the_connection() -> None:
    client = connected()
    first = client.request(b"head", bytes(100_000))
    second = client.request(b"head", bytes(10))
    assert sent_bodies(client) == {first: 65_535}  # all that the connection has room for
    client.receive(frame(WINDOW, 0, 0, pack("!I", 50_000)))
    assert sent_bodies(client) == {second: 10}  # the first one lacks room on its stream
    client.receive(frame(WINDOW, 0, first, pack("!I", 20_000)))
    assert sent_bodies(client) == {first: 20_000}
    client.receive(frame(SETTINGS, 0, 0, pack("!HI", 4, 65_535 + 50_000)))
    assert sent_bodies(client) == {first: 14_465}


def test_frames_are_as_large_as_the_server_permits() -> None:
    client = connected((5, 20_000), (4, 1 << 20))
    client.receive(frame(WINDOW, 0, 0, pack("!I", 1 << 20)))
    client.request(b"head", bytes(50_000))
    sizes = [len(payload) for kind, _, _, payload in frames(client.to_send()) if kind == DATA]
    assert sizes == [20_000, 20_000, 10_000]


def test_room_is_made_for_what_was_read() -> None:
    client = connected()
    part = bytes(16_384)
    told = 0
    for _ in range(2_000):
        stream = client.request(b"head", b"body")
        client.to_send()
        client.receive(frame(DATA, END_STREAM, stream, part))
        for kind, _, of, payload in frames(client.to_send()):
            assert (kind, of) == (WINDOW, 0)
            told += int.from_bytes(payload, "big")
    assert told == (2_000 * len(part)) >> 24 << 24


def test_an_answer_that_is_too_large_is_cancelled() -> None:
    client = connected()
    stream = client.request(b"head", b"body")
    client.to_send()
    part = frame(DATA, 0, stream, bytes(16_384))
    assert client.receive(part * (LARGEST // 16_384)) == []
    (event,) = client.receive(part)
    assert isinstance(event, NoAnswer)
    assert event.too_large
    assert [kind for kind, *_ in frames(client.to_send())] == [RESET]
    assert client.receive(part) == []  # the rest of what was on its way
    again = client.request(b"head", b"body")
    assert client.receive(answer(again)) == [Answer(again, BOTH, b"answer")]


def test_what_the_server_has_refused_or_left_was_not_seen() -> None:
    client = connected()
    first, refused, ended, unseen = (client.request(b"head", b"body") for _ in range(4))
    received = (
        frame(RESET, 0, refused, pack("!I", 7))
        + frame(RESET, 0, ended, pack("!I", 2))
        + frame(GO_AWAY, 0, 0, pack("!II", ended, 0))
    )
    events = client.receive(received)
    assert all(isinstance(event, NoAnswer) for event in events)
    assert {e.stream: e.unseen for e in events if isinstance(e, NoAnswer)} == {
        refused: True,
        ended: False,
        unseen: True,
    }
    assert not client.usable
    assert client.receive(answer(first)) == [Answer(first, BOTH, b"answer")]


def test_a_lost_connection_leaves_open_what_became_of_requests() -> None:
    client = connected()
    stream = client.request(b"head", b"body")
    assert client.lose("gone") == [NoAnswer(stream, "gone")]
    assert client.over == "gone"
    assert not client.usable


def test_a_cancelled_request_is_told_and_its_answer_ignored() -> None:
    client = connected()
    stream = client.request(b"head", b"body")
    client.to_send()
    client.cancel(stream)
    client.cancel(stream)
    assert list(frames(client.to_send())) == [(RESET, 0, stream, pack("!I", 8))]
    assert client.receive(answer(stream)) == []


def test_the_server_says_how_many_requests_it_takes_at_a_time() -> None:
    client = connected((3, 2))
    first = client.request(b"head", b"body")
    assert not client.full
    client.request(b"head", b"body")
    assert client.full
    client.receive(answer(first))
    assert not client.full


def test_a_ping_is_answered() -> None:
    client = connected()
    client.receive(frame(PING, 0, 0, b"12345678") + frame(PING, ACK, 0, b"notasked"))
    assert list(frames(client.to_send())) == [(PING, ACK, 0, b"12345678")]


@pytest.mark.parametrize(
    "wrong",
    [
        frame(DATA, 0, 1, bytes(16_385)),
        frame(PUSH, 0, 1, bytes(4)),
        frame(CONTINUATION, END_HEADERS, 1),
        frame(HEADERS, 0, 1) + frame(DATA, 0, 1),
        frame(HEADERS, 0, 1) + frame(CONTINUATION, END_HEADERS, 3),
        frame(HEADERS, 0, 1) + frame(CONTINUATION, 0, 1, bytes(16_384)) * 5,
        frame(HEADERS, END_HEADERS, 1, b"\xff"),
        frame(DATA, PADDED, 1, bytes((1,))),
        frame(SETTINGS, 0, 0, bytes(5)),
        frame(WINDOW, 0, 0, bytes(3)),
    ],
)
def test_a_server_that_breaks_the_protocol_is_left(wrong: bytes) -> None:
    client = connected()
    stream = client.request(b"head", b"body")
    (event,) = client.receive(wrong)
    assert event[0] == stream
    assert isinstance(event, NoAnswer)
    assert not event.unseen
    assert client.over
    assert client.receive(answer(stream)) == []


@given(st.lists(st.binary(max_size=200), max_size=5))
def test_garbage_ends_the_connection_at_most(parts: list[bytes]) -> None:
    client = connected()
    stream = client.request(b"head", b"body")
    events = [event for part in parts for event in client.receive(part)]
    events += client.lose("the end")
    assert [event.stream for event in events] == [stream]
