"""Events reach every subscription that wants them, once, over real sockets and tables."""

import copy
import json
import pickle
import socket
import threading
import time

import pytest

from dzflow import ControlPlane, host_protocol
from dzflow.address import DELIVERY, Scope
from dzflow.attribute import MissingAttribute, OutsideDomain, UnknownAttribute
from dzflow.index import build_index
from dzflow.sdk import Event
from dzflow.sdk.errors import (
    Closed,
    EventTooLarge,
    HostFull,
    InvalidRequest,
    NoHost,
    NotFound,
    OutsideAdvertisement,
)
from dzflow.sdk.events import datagrams
from dzflow.space import Space
from tests.dzflow.sdk.fake_service import STOCKS, FakeService
from tests.dzflow.sdk.support import EVENT, at, prices
from tests.support import WAIT, until_sync


def test_an_event_reaches_each_matching_subscription_of_every_host_once(
    service: FakeService,
) -> None:
    with (
        at(service, "h1") as publisher,
        at(service, "h1") as neighbour,
        at(service, "h3") as one,
        at(service, "h3") as other,
    ):
        subscriptions = [
            publisher.subscribe("stocks", "price > 100"),
            publisher.subscribe("stocks", {}),
            neighbour.subscribe("stocks", "price > 100"),
            one.subscribe("stocks", {"price": {"gt": 100}}),
            one.subscribe("stocks", [{"price": {"gt": 100}}, {"volume": {"lt": 11}}]),
            other.subscribe("stocks", "price > 100"),
        ]
        with publisher.advertise("stocks", "price > 0") as advertisement:
            for price in (200, 300, 400):
                advertisement.publish({"price": price, "volume": 10})
            for subscription in subscriptions:
                assert prices(subscription, 3) == [200, 300, 400]
            advertisement.publish({"price": 999, "volume": 10})
            for subscription in subscriptions:
                assert prices(subscription, 1) == [999]  # and nothing was doubled before it
        assert publisher.counters()["stocks"].published == 4


def test_each_subscription_gets_exactly_the_matching_events(service: FakeService) -> None:
    with at(service, "h1") as publisher, at(service, "h3") as subscriber:
        cheap = subscriber.subscribe("stocks", "price < 100.5")
        dear = subscriber.subscribe("stocks", "price >= 100.5 and volume > 7")
        advertisement = publisher.advertise("stocks", {})
        offered = [(100, 1), (100.5, 7), (100.5, 8), (100.4999, 9), (900, 900)]
        assert advertisement.publish_many({"price": p, "volume": v} for p, v in offered) == 5
        assert prices(cheap, 2) == [100, 100.4999]
        assert prices(dear, 2) == [100.5, 900]


def test_unmatched_events_are_counted_as_unwanted_or_for_another_application(
    service: FakeService,
) -> None:
    with (
        at(service, "h1") as publisher,
        at(service, "h3") as one,
        at(service, "h3") as other,
    ):
        mine = one.subscribe("stocks", "price > 800")
        others = other.subscribe("stocks", "price < 100")
        advertisement = publisher.advertise("stocks", {})
        for price in (50, 900):
            advertisement.publish({"price": price, "volume": 1})
        assert prices(others, 1) == [50]
        assert prices(mine, 1) == [900]
        until_sync(lambda: one.counters()["stocks"].for_other_app == 1)
        # A false positive, as a coarse region lets it through.
        payload = datagrams.encode(datagrams.EventIds().next(1, 0), {"price": 400, "volume": 1})
        _deliver(service, "h3", payload)
        until_sync(lambda: one.counters()["stocks"].unwanted == 1)
        found = one.counters()["stocks"]
        assert (found.received, found.delivered, found.for_other_app) == (3, 1, 1)


def test_copies_from_the_same_host_are_no_false_positives(service: FakeService) -> None:
    with at(service, "h1") as application:
        subscription = application.subscribe("stocks", "price > 800")
        advertisement = application.advertise("stocks", {})
        advertisement.publish_many({"price": price, "volume": 1} for price in (100, 200, 900))
        assert prices(subscription, 1) == [900]
        found = application.counters()["stocks"]
        assert (found.published, found.received, found.copies, found.delivered) == (3, 3, 3, 1)
        assert (found.unwanted, found.for_other_app, found.unclassified) == (0, 0, 0)


def test_duplicates_and_malformed_datagrams_are_dropped_and_counted(service: FakeService) -> None:
    with at(service, "h3") as subscriber:
        subscription = subscriber.subscribe("stocks", {})
        ids = datagrams.EventIds()
        first = datagrams.encode(ids.next(1, 0), EVENT)
        for payload in (
            first,
            first,
            b"",
            b"\x01\x00" + bytes(8) + b"\xc1",
            datagrams.encode(ids.next(1, 0), {"price": "dear", "volume": 1}),
            datagrams.encode(ids.next(1, 0), {"colour": "red"}),
            datagrams.encode(ids.next(1, 0), {**EVENT, "price": 1.0}),
        ):
            _deliver(service, "h3", payload)
        assert prices(subscription, 2) == [500, 1]
        found = subscriber.counters()["stocks"]
        assert (found.doubles, found.malformed, found.delivered) == (1, 2, 2)
        assert subscriber.undecodable() == 2


def test_events_are_checked_before_they_are_sent(service: FakeService) -> None:
    with at(service, "h1") as publisher:
        advertisement = publisher.advertise("stocks", "price > 100")
        for event, error in [
            ({"price": 100, "volume": 1}, OutsideAdvertisement),
            ({"price": 200}, MissingAttribute),
            ({"price": 200, "volume": 1, "colour": 1}, UnknownAttribute),
            ({"price": 2000, "volume": 1}, OutsideDomain),
        ]:
            with pytest.raises(error):
                advertisement.publish(event)
        assert publisher.counters() == {}


def test_an_event_is_as_long_as_a_datagram_may_be(service: FakeService) -> None:
    names = "abcdef"
    schema = {"attributes": [{"name": name, "type": "string"} for name in names]}
    service.put_space("texts", schema)
    with at(service, "h1") as publisher, at(service, "h2") as subscriber:
        subscription = subscriber.subscribe("texts", {})
        texts = publisher.advertise("texts", {})
        fits = dict.fromkeys(names, "x" * 150)
        room = host_protocol.MAX_PAYLOAD - len(datagrams.encode(0, fits))
        fits |= {"a": "x" * 250, "b": "x" * 250, "c": "x" * (150 + room - 200)}
        assert len(datagrams.encode(0, fits)) == host_protocol.MAX_PAYLOAD
        texts.publish(fits)
        assert subscription.get(WAIT) == fits
        with pytest.raises(EventTooLarge, match="takes 1201 bytes, at most 1200"):
            texts.publish(fits | {"d": "x" * 151})


def test_an_event_is_a_dict_that_knows_its_id_space_and_time_of_receipt(
    service: FakeService,
) -> None:
    with at(service, "h1") as publisher, at(service, "h3") as subscriber:
        subscription = subscriber.subscribe("stocks", {})
        before = time.time()
        event_id = publisher.advertise("stocks", {}).publish(EVENT)
        event = subscription.get(WAIT)
        assert event == EVENT
        assert isinstance(event, Event)
        assert (event.id, event.space) == (event_id, "stocks")
        assert before <= event.received <= time.time()
        for copied in (copy.copy(event), pickle.loads(pickle.dumps(event))):  # noqa: S301
            assert isinstance(copied, Event)
            assert copied == EVENT
            assert (copied.id, copied.received) == (event.id, event.received)
        assert json.loads(json.dumps(event)) == EVENT


def test_a_filter_is_replaced_in_one_step(service: FakeService) -> None:
    with at(service, "h1") as publisher, at(service, "h3") as subscriber:
        subscription = subscriber.subscribe("stocks", "price < 100")
        advertisement = publisher.advertise("stocks", "price < 200")
        advertisement.update("price > 50")
        subscription.update("price > 400")
        with pytest.raises(OutsideAdvertisement):
            advertisement.publish({"price": 10, "volume": 1})
        advertisement.publish_many({"price": p, "volume": 1} for p in (60, 500))
        assert prices(subscription, 1) == [500]
        assert subscription.filter == "price > 400"
        records = subscriber.rest.records("subscription", host="h3")
        assert [record["filter"] for record in records] == ["price > 400"]


def test_closing_ends_the_record_and_the_iteration(service: FakeService) -> None:
    with at(service, "h1") as publisher, at(service, "h3") as subscriber:
        advertisement = publisher.advertise("stocks", {})
        seen: list[object] = []
        with subscriber.subscribe("stocks", {}) as subscription:
            advertisement.publish(EVENT)
            thread = threading.Thread(target=lambda: seen.extend(subscription))
            thread.start()
            until_sync(lambda: seen)
        thread.join(WAIT)
        assert not thread.is_alive()
        assert seen == [EVENT]
        with pytest.raises(Closed):
            subscription.get()
        subscription.close()  # again: nothing more happens
        advertisement.close()
        with pytest.raises(Closed):
            advertisement.publish(EVENT)
    assert service.records == {}
    assert service.call(service.control.entries) == 0


def test_closing_the_control_plane_closes_everything_in_one_call_per_kind(
    service: FakeService,
) -> None:
    with at(service, "h1") as application:
        subscriptions = [application.subscribe("stocks", f"price > {n}") for n in range(10)]
        application.advertise("stocks", {})
    assert service.records == {}
    assert service.count("POST", "/unsubscribe") == service.count("POST", "/unadvertise") == 1
    with pytest.raises(Closed):
        subscriptions[0].get()
    with pytest.raises(Closed):
        application.subscribe("stocks", {})


def test_a_slow_application_loses_the_oldest_events_and_knows_how_many(
    service: FakeService,
) -> None:
    with at(service, "h1") as publisher, at(service, "h3") as subscriber:
        subscription = subscriber.subscribe("stocks", {}, queue=3)
        advertisement = publisher.advertise("stocks", {})
        advertisement.publish_many({"price": p, "volume": 1} for p in range(10))
        found = subscriber.counters
        until_sync(lambda: "stocks" in found() and found()["stocks"].dropped == 7)
        assert subscription.dropped == 7
        assert prices(subscription, 3) == [7, 8, 9]
        with pytest.raises(TimeoutError):
            subscription.get(0.01)


def test_errors_name_the_mistake(service: FakeService) -> None:
    with at(service, "h1") as application:
        with pytest.raises(NotFound, match="no space"):
            application.subscribe("stokcs", {})
        with pytest.raises(UnknownAttribute):
            application.subscribe("stocks", "prize > 1")
        with pytest.raises(InvalidRequest, match="prize"):
            application.rest.begin("subscription", "h1", "stocks", "prize > 1")
    assert service.records == {}
    with ControlPlane(service.url) as nowhere, pytest.raises(NoHost):
        nowhere.subscribe("stocks", {})
    with at(service, "h99") as stranger, pytest.raises(NoHost, match="h99"):
        stranger.advertise("stocks", {})


def test_an_emulated_host_refuses_the_65th_application(service: FakeService) -> None:
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(64)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
            each.settimeout(WAIT)
            each.sendto(bytes((1, host_protocol.JOIN)), service.emulated.network.endpoints()["h1"])
            assert each.recv(100)[2] == 1
        with at(service, "h1") as application, pytest.raises(HostFull, match="at most 64"):
            application.subscribe("stocks", {})
    finally:
        for each in sockets:
            each.close()


def test_an_application_follows_its_host_to_another_endpoint(
    service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dzflow.sdk.host_agent.JOIN_EVERY", 0.05)
    with at(service, "h1") as publisher, at(service, "h3") as subscriber:
        subscription = subscriber.subscribe("stocks", {})
        advertisement = publisher.advertise("stocks", {})

        async def move() -> None:
            for name in ("h1", "h3"):
                await service.emulated.network.hosts[name].close(WAIT)
                await service.emulated.network.hosts[name].open()

        service.run(move())

        def arrives() -> bool:
            advertisement.publish(EVENT)
            try:
                return subscription.get(0.05) == EVENT
            except TimeoutError:
                return False

        until_sync(arrives)


def test_the_address_is_the_one_that_the_index_gives(service: FakeService) -> None:
    with at(service, "h1") as publisher:
        advertisement = publisher.advertise("stocks", {})
        seen = service.addresses_sent_by("h1")
        advertisement.publish(EVENT)
        until_sync(lambda: seen)
    space = Space.from_json("stocks", STOCKS)
    assert seen == [Scope(1).event(build_index(space).point(space.keys(EVENT)), 0)]


def _deliver(service: FakeService, host: str, payload: bytes) -> None:
    """Bring a datagram to all applications of a host."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.bind(("127.0.0.1", 0))
        delivery = host_protocol.send(DELIVERY, payload)
        sender.sendto(delivery, service.emulated.network.endpoints()[host])
