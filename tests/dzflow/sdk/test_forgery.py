"""What a hostile host can send to others in a space without tags: it suppresses nothing."""

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from dzflow.address import DELIVERY
from dzflow.sdk import Advertisement
from dzflow.sdk.events import datagrams
from tests.dzflow.sdk.fake_service import FakeService
from tests.dzflow.sdk.support import EVENT, at, prices
from tests.support import WAIT, until_sync

_HEAD = b"\x01\x00" + bytes(8)


def forge(service: FakeService, host: str, sent: Sequence[tuple[int, bytes]]) -> None:
    """Have a program on an emulated host send payloads to addresses."""
    lines = "".join(f"{address:x} {payload.hex()}\n" for address, payload in sent)
    wire = service.emulated.endpoint(host)
    assert wire
    command = [sys.executable, "-m", "tests.forger", wire]
    done = subprocess.run(command, input=lines, text=True, capture_output=True, timeout=WAIT)
    assert done.stdout.split() == [str(len(sent))], done.stderr


def address_of(advertisement: Advertisement, event: dict[str, Any]) -> int:
    """Where a publisher sends an event."""
    view = advertisement.view
    return view.address(view.space.keys(event), 0)


def test_who_sees_an_id_cannot_suppress_the_events_that_follow(service: FakeService) -> None:
    with at(service, "h1") as publisher, at(service, "h2") as hostile, at(service, "h3") as victim:
        subscription = victim.subscribe("stocks", {})
        advertisement = publisher.advertise("stocks", {})
        behind = address_of(hostile.advertise("stocks", {}), EVENT)
        advertisement.publish(EVENT)
        seen = subscription.get(WAIT).id
        rubbish = [datagrams.encode(seen + n, {"price": "rubbish"}) for n in range(1, 51)]
        forge(service, "h2", [(behind, payload) for payload in rubbish])
        until_sync(lambda: victim.counters()["stocks"].malformed == 50)
        published = list(range(20))
        advertisement.publish_many({"price": price, "volume": 1} for price in published)
        assert prices(subscription, 20) == published
        assert victim.counters()["stocks"].doubles == 0


def test_rubbish_under_the_very_id_of_an_event_does_not_suppress_it(service: FakeService) -> None:
    with at(service, "h2") as hostile, at(service, "h3") as victim:
        subscription = victim.subscribe("stocks", {})
        behind = address_of(hostile.advertise("stocks", {}), EVENT)
        event_id = datagrams.EventIds().next(1, 0)
        rubbish = [
            datagrams.encode(event_id, event)
            for event in ({"price": "rubbish"}, {}, {**EVENT, "price": float("nan")})
        ]
        genuine = datagrams.encode(event_id, EVENT)
        forge(service, "h2", [(behind, payload) for payload in (*rubbish, genuine, genuine)])
        assert subscription.get(WAIT) == EVENT
        until_sync(lambda: victim.counters()["stocks"].doubles == 1)
        assert victim.counters()["stocks"].malformed == 3


@pytest.mark.parametrize(
    "event",
    [
        b"\x82\xa5price" + b"\x91" * 1_100 + b"\xc0",  # deeply nested lists
        b"\x81\xa5price" * 150 + b"\x80",  # deeply nested maps
        b"\x91" * 1_150 + b"\x80",
        b"\x81\x80\x01",  # a map as a name
        b"\x82\xa5price\x01\x05\x01",  # a number as a name
        b"\x83\xa5price\x01\xa6volume\x01\xa5price\xcd\x03\x84",  # a name twice
        b"\x82\xa5price\x01\xa6volume\xd4\x05\x00",  # an unknown extension type
        b"\x82\xa5price\x01\xa6volume\xc7\x0c\xff" + b"\xff" * 12,  # no time at all
        b"\x82\xa5price\x01\xa6volume\xc0",
        b"\x82\xa5price\x01\xa6volume\xa2\xff\xff",  # not UTF-8
        b"\xdf\xff\xff\xff\xff\xa5price\x01",
    ],
)
def test_hostile_encodings_are_counted_and_later_events_arrive(
    service: FakeService, event: bytes
) -> None:
    with at(service, "h3") as victim:
        subscription = victim.subscribe("stocks", {})
        payload = _HEAD + event
        genuine = datagrams.encode(datagrams.EventIds().next(1, 0), EVENT)
        # To the host itself, so that all of it is read at once.
        forge(service, "h3", [(DELIVERY, payload), (DELIVERY, genuine)])
        assert subscription.get(WAIT) == EVENT
        assert victim.undecodable() == 1


def test_no_encoding_makes_the_decoder_fail() -> None:
    scalars: list[Any] = [None, True, 2**64 - 1, -(2**63), 1e308, "x", b"x", msgspec.Raw(b"\xc1")]
    for value in (*scalars, scalars[:7], {"a": 1}, msgspec.msgpack.Ext(7, b"x")):
        for event in ({"price": value}, {"price": [value]}, [value], value):
            datagrams.decode(_HEAD + msgspec.msgpack.encode(event))
    for length in range(64):
        assert datagrams.decode(b"\x01\x02" + bytes(8) + bytes((length,)) + b"x" * 40) is None


@pytest.mark.parametrize("flags", [4, 8, 128, 255, 6])
def test_flags_of_a_later_version_are_not_understood(flags: int) -> None:
    payload = datagrams.encode(1, EVENT)
    assert datagrams.decode(payload[:1] + bytes((flags,)) + payload[2:]) is None


def test_made_up_versions_do_not_make_receivers_ask_the_control_plane_again_and_again(
    service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dzflow.sdk.events.receiver._LEARN_EVERY", 3_600.0)
    with at(service, "h3") as victim:
        subscription = victim.subscribe("stocks", {})
        assert service.connected.wait(WAIT)
        until_sync(lambda: service.count("GET", "/spaces") == 1)
        ids = datagrams.EventIds()
        for _ in range(3):
            made_up = [datagrams.encode(ids.next(1, version), EVENT) for version in (1, 2, 3)]
            # Another application of the host may use a space that this one does not know.
            made_up += [datagrams.encode(ids.next(number, 0), EVENT) for number in (2, 7, 1_023)]
            genuine = datagrams.encode(ids.next(1, 0), EVENT)
            forge(service, "h3", [(DELIVERY, payload) for payload in (*made_up, genuine)])
            assert subscription.get(WAIT) == EVENT
            until_sync(lambda: service.count("GET", "/spaces") > 1)
        assert service.count("GET", "/spaces") == 2
