"""Events as bytes, doubles, server-sent lines, inboxes: the parts without sockets."""

import threading
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dzflow.address import DELIVERY, MAX_SPACE, MAX_VERSION
from dzflow.host_protocol import MAX_PAYLOAD, deliver, joined, parse, parse_delivery, send
from dzflow.sdk.errors import BadAnswer, Closed, EventTooLarge
from dzflow.sdk.events.datagrams import EventIds, RecentIds, copy, decode, encode
from dzflow.sdk.events.event import Event
from dzflow.sdk.events.inbox import ThreadInbox
from dzflow.sdk.rest.server_events import LineReader, ServerEvent
from dzflow.sdk.space_view import Expression, SpaceView

TOLD = {
    "name": "stocks",
    "number": 3,
    "version": 1,
    "prefix": 0xFF1E,
    "trees": [0, 2],
    "attributes": [{"name": "price", "type": "int", "min": 0, "max": 100}],
    "index": {"kind": "fields"},
}

values = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.booleans(), st.text()
)


@given(
    st.integers(1, MAX_SPACE),
    st.integers(0, MAX_VERSION),
    st.dictionaries(st.text(max_size=20), values, max_size=8),
)
def test_an_event_comes_out_as_it_went_in(space: int, version: int, event: dict[str, Any]) -> None:
    event_id = EventIds().next(space, version)
    try:
        payload = encode(event_id, event)
    except EventTooLarge:
        return
    assert payload[:2] == b"\x01\x00"
    found = decode(payload)
    assert found is not None
    assert (found.id, found.event) == (event_id, event)
    assert (found.space, found.version, found.copied) == (space, version, False)
    copied = decode(copy(payload))
    assert copied == (event_id, event, True, None)


def test_times_survive() -> None:
    moment = datetime(2026, 1, 31, 12, 0, 0, 123456, UTC)
    found = decode(encode(1, {"at": moment}))
    assert found is not None
    assert found.event == {"at": moment}


@given(st.binary(max_size=64))
def test_any_bytes_are_an_event_or_none(data: bytes) -> None:
    for payload in (data, b"\x01\x00" + data, b"\x01\x00" + bytes(8) + data):
        found = decode(payload)
        assert found is None or isinstance(found.event, dict)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\x01",
        b"\x01\x00" + bytes(8),
        b"\x02\x00" + bytes(8) + b"\x80",
        b"\x01\x00" + bytes(8) + b"\x93\x01\x02\x03",
        b"\x01\x00" + bytes(8) + b"\x80\x80",
        b"\x01\x00" + bytes(8) + b"\x81\xa1a\xc4\xff" + bytes(MAX_PAYLOAD),
    ],
)
def test_a_payload_that_is_no_event_is_none(payload: bytes) -> None:
    assert decode(payload) is None


def test_ids_are_different_and_random_below_the_scope() -> None:
    ids = EventIds()
    found = [ids.next(5, 2) for _ in range(10_000)]
    assert len(set(found)) == len(found)
    assert {each >> 52 for each in found} == {5 << 2 | 2}
    parts = [each & (1 << 52) - 1 for each in found]
    for bit in range(52):  # each bit is set in about half of them
        assert 4_500 < sum(part >> bit & 1 for part in parts) < 5_500


def test_threads_get_different_ids() -> None:
    ids = EventIds()
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda: found.extend([ids.next(1, 0) for _ in range(5_000)]))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(set(found)) == 20_000


def test_recent_ids_are_known_within_a_bound() -> None:
    recent = RecentIds(size=10)
    for n in range(20):
        assert n not in recent
        recent.add(n)
    assert all(n in recent for n in range(10, 20))
    for n in range(100, 130):
        recent.add(n)
    assert 3 not in recent  # forgotten by now


def test_datagrams_of_a_host_are_parsed() -> None:
    there = DELIVERY.to_bytes(16, "big")
    assert parse_delivery(deliver(there, b"event")) == b"event"
    assert parse_delivery(joined(True)) is True
    assert parse_delivery(joined(False)) is False
    for datagram in (b"", b"\x01", b"\x01\x05\x01", deliver(bytes(16), b"event")):
        assert parse_delivery(datagram) is None
    assert parse(send(77, b"event")) == (77, b"event")


def test_lines_become_events() -> None:
    lines = (
        ": hello||event: space|data: {}||data: 1||event: bad|data: {||event:x|data:[1,|data:2]||"
    )
    reader = LineReader()
    found = [told for line in lines.split("|") if (told := reader.read(line))]
    assert found == [
        ServerEvent("space", {}),
        ServerEvent("message", 1),
        ServerEvent("x", [1, 2]),
    ]


def test_a_space_is_read_and_reused_where_nothing_changed() -> None:
    view = SpaceView.from_json(TOLD)
    assert (view.number, view.version, view.trees) == (3, 1, (0, 2))
    same = SpaceView.from_json({**TOLD, "trees": []}, view)
    assert same.index is view.index
    assert same.trees == (0, 2)
    other = SpaceView.from_json({**TOLD, "version": 2}, view)
    assert other.index is not view.index
    with pytest.raises(BadAnswer, match="same version"):
        SpaceView.from_json({"name": "stocks"})
    with pytest.raises(BadAnswer):
        SpaceView.from_json({**TOLD, "number": 0})


def test_a_filter_is_read_for_each_version() -> None:
    view = SpaceView.from_json(TOLD)
    colours = [{"name": "colour", "type": "bool"}]
    other = SpaceView.from_json({**TOLD, "version": 2, "attributes": colours}, view)
    expression = Expression("price > 3")
    found = expression.filter(view)
    assert found is not None
    assert found.matches((4,))
    assert expression.filter(other) is None
    assert expression.filter(view) is found


def numbered(n: int) -> Event:
    return Event({"n": n}, id=n, space="numbers", received=0.0)


def test_a_closed_inbox_gives_the_remaining_events_and_then_the_end() -> None:
    inbox = ThreadInbox(2)
    assert inbox.put(numbered(1))
    assert inbox.put(numbered(2))
    assert not inbox.put(numbered(3))
    inbox.close()
    assert inbox.put(numbered(4))  # ignored
    assert [inbox.get(), inbox.get()] == [{"n": 2}, {"n": 3}]
    with pytest.raises(Closed):
        inbox.get()
    assert inbox.dropped == 1


def test_closing_wakes_all_receivers() -> None:
    inbox = ThreadInbox(2)
    ended = []

    def wait() -> None:
        with pytest.raises(Closed):
            inbox.get(30)
        ended.append(True)

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    inbox.close()
    for thread in threads:
        thread.join(30)
    assert ended == [True] * 3
