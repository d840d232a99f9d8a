"""Publishers and subscribers follow what the control plane tells: new versions, broken trees."""

from collections import Counter
from collections.abc import Iterator
from functools import partial

import pytest

from dzflow import ControlPlane
from dzflow.address import read
from tests.dzflow.sdk.service import LIMIT, STOCKS, Service
from tests.dzflow.sdk.support import EVENT, at, prices, until

WIDER = {
    "attributes": [
        {"name": "price", "type": "float", "min": 0, "max": 5000},
        {"name": "volume", "type": "int", "min": 0, "max": 1000},
    ]
}


@pytest.fixture
def ring() -> Iterator[Service]:
    with Service("ring:4", trees=2) as running:
        yield running


def sent_to(service: Service, host: str) -> list[int]:
    """The addresses that a host sends to from now on."""
    seen: list[int] = []
    emulated = service.network.hosts[host]
    sent = emulated.publish

    def noted(destination: int, payload: bytes) -> None:
        seen.append(destination)
        sent(destination, payload)

    service.do(lambda: setattr(emulated, "publish", noted))
    return seen


def version(control_plane: ControlPlane) -> int:
    """The version that a publisher uses now."""
    station = control_plane._core._station
    assert station is not None
    view = station.view("stocks")
    assert view is not None
    return view.version


def test_publishers_and_subscribers_go_over_to_a_new_version_without_a_loss(
    service: Service,
) -> None:
    with at(service, "h1") as publisher, at(service, "h3") as subscriber:
        subscription = subscriber.subscribe("stocks", "price > 100")
        advertisement = publisher.advertise("stocks", {})
        addresses = sent_to(service, "h1")
        assert service.connected.wait(LIMIT)
        advertisement.publish({"price": 200, "volume": 1})
        service.do(lambda: service.put_space("stocks", WIDER))
        advertisement.publish({"price": 300, "volume": 1})
        until(lambda: version(publisher) == 1)
        advertisement.publish({"price": 4000, "volume": 1})
        assert prices(subscription, 3) == [200, 300, 4000]
        service.do(lambda: service.drop_version("stocks", 0))
        advertisement.publish({"price": 4500, "volume": 1})
        assert prices(subscription, 1) == [4500]
        assert {read(address).scope.version for address in addresses[2:]} == {1}
        assert read(addresses[0]).scope.version == 0


def test_an_event_under_a_version_not_heard_of_yet_is_held_until_it_is_known(
    service: Service,
) -> None:
    with at(service, "h1") as publisher, at(service, "h3") as subscriber:
        subscription = subscriber.subscribe("stocks", "price > 100")
        service.do(service.cut_streams)
        told = service.tell
        service.do(lambda: setattr(service, "tell", lambda *_: None))
        service.faults.append(lambda _, path: "busy" if path == "/stream" else None)
        service.do(lambda: service.put_space("stocks", WIDER))
        # The publisher reads the space now and so has the new version at once.
        advertisement = publisher.advertise("stocks", {})
        advertisement.publish({"price": 4000, "volume": 1})
        assert prices(subscription, 1) == [4000]
        assert subscriber.counters()["stocks"].delivered == 1
        service.do(lambda: setattr(service, "tell", told))


def test_a_lost_stream_is_taken_up_again_and_what_was_missed_is_read(service: Service) -> None:
    with at(service, "h1") as publisher:
        publisher.advertise("stocks", {})
        assert service.connected.wait(LIMIT)
        for expected in (1, 2, 3, 0):
            service.do(service.cut_streams)
            service.do(lambda: service.put_space("stocks", STOCKS))
            until(partial(_has_version, publisher, expected))


def test_without_a_stream_spaces_are_read_now_and_then(service: Service) -> None:
    service.refuse_streams = True
    with at(service, "h1") as publisher:
        publisher.advertise("stocks", {})
        for expected in (1, 2):
            service.do(lambda: service.put_space("stocks", STOCKS))
            until(partial(_has_version, publisher, expected))
        service.refuse_streams = False
        assert service.connected.wait(LIMIT)


def test_events_are_spread_over_the_trees_and_leave_a_broken_one(ring: Service) -> None:
    with at(ring, "h1") as publisher, at(ring, "h3") as subscriber:
        subscription = subscriber.subscribe("stocks", {})
        advertisement = publisher.advertise("stocks", {})
        addresses = sent_to(ring, "h1")
        assert ring.connected.wait(LIMIT)
        advertisement.publish_many({"price": n, "volume": 1} for n in range(60))
        assert prices(subscription, 60) == [*range(60)]
        trees = Counter(read(address).tree for address in addresses)
        assert set(trees) == {0, 1}
        assert min(trees.values()) > 10
        addresses.clear()
        ring.do(lambda: ring.use_trees("stocks", [1]))
        station = publisher._core._station
        assert station is not None
        until(lambda: station.view("stocks").trees == (1,))  # type: ignore[union-attr]
        advertisement.publish_many({"price": n, "volume": 1} for n in range(20))
        assert prices(subscription, 20) == [*range(20)]
        assert {read(address).tree for address in addresses} == {1}
        ring.do(lambda: ring.use_trees("stocks", []))  # nothing better is known
        ring.do(lambda: ring.use_trees("stocks", [0]))
        until(lambda: station.view("stocks").trees == (0,))  # type: ignore[union-attr]
        advertisement.publish(EVENT)
        assert prices(subscription, 1) == [500]


def test_a_subscription_that_the_new_schema_cannot_mean_gets_nothing(service: Service) -> None:
    other = {"attributes": [{"name": "colour", "type": "enum", "values": ["red", "blue"]}]}
    with at(service, "h1") as publisher, at(service, "h3") as subscriber:
        everything = subscriber.subscribe("stocks", {})
        advertisement = publisher.advertise("stocks", {})
        assert service.connected.wait(LIMIT)
        service.do(lambda: service.put_space("stocks", other))
        until(lambda: version(publisher) == 1)
        advertisement.publish({"colour": "red"})
        assert everything.get(LIMIT) == {"colour": "red"}


def _has_version(control_plane: ControlPlane, expected: int) -> bool:
    return version(control_plane) == expected
