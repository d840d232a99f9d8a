"""Publishers and subscribers follow the control plane's announcements: versions and trees."""

from collections import Counter
from collections.abc import Iterator

import pytest

from dzflow.address import read
from tests.dzflow.sdk.fake_service import STOCKS, FakeService
from tests.dzflow.sdk.support import EVENT, WIDER, at, prices
from tests.support import WAIT, until_sync


@pytest.fixture
def ring() -> Iterator[FakeService]:
    with FakeService("ring:4", trees=2) as running:
        yield running


def test_publishers_and_subscribers_change_to_a_new_version_without_a_loss(
    service: FakeService,
) -> None:
    with at(service, "h1") as publisher, at(service, "h3") as subscriber:
        subscription = subscriber.subscribe("stocks", "price > 100")
        advertisement = publisher.advertise("stocks", {})
        addresses = service.addresses_sent_by("h1")
        assert service.connected.wait(WAIT)
        advertisement.publish({"price": 200, "volume": 1})
        service.put_space("stocks", WIDER)
        advertisement.publish({"price": 300, "volume": 1})
        until_sync(lambda: advertisement.view.version == 1)
        advertisement.publish({"price": 4000, "volume": 1})
        assert prices(subscription, 3) == [200, 300, 4000]
        service.drop_version("stocks", 0)
        advertisement.publish({"price": 4500, "volume": 1})
        assert prices(subscription, 1) == [4500]
        assert {read(address).scope.version for address in addresses[2:]} == {1}
        assert read(addresses[0]).scope.version == 0


def test_an_event_of_an_unannounced_version_waits_until_the_version_is_known(
    service: FakeService,
) -> None:
    with at(service, "h1") as publisher, at(service, "h3") as subscriber:
        subscription = subscriber.subscribe("stocks", "price > 100")
        service.cut_streams()
        service.mute_streams = True
        service.put_space("stocks", WIDER)
        # The publisher reads the space now and so has the new version at once.
        advertisement = publisher.advertise("stocks", {})
        advertisement.publish({"price": 4000, "volume": 1})
        assert prices(subscription, 1) == [4000]
        assert subscriber.counters()["stocks"].delivered == 1


def test_a_lost_stream_is_reopened_and_missed_changes_are_read(service: FakeService) -> None:
    with at(service, "h1") as publisher:
        advertisement = publisher.advertise("stocks", {})
        assert service.connected.wait(WAIT)
        for expected in (1, 2, 3, 0):
            service.cut_streams()
            service.put_space("stocks", STOCKS)
            until_sync(lambda expected=expected: advertisement.view.version == expected)  # type: ignore[misc]


def test_without_a_stream_spaces_are_polled(service: FakeService) -> None:
    service.refuse_streams = True
    with at(service, "h1") as publisher:
        advertisement = publisher.advertise("stocks", {})
        for expected in (1, 2):
            service.put_space("stocks", STOCKS)
            until_sync(lambda expected=expected: advertisement.view.version == expected)  # type: ignore[misc]
        service.refuse_streams = False
        assert service.connected.wait(WAIT)


def test_events_are_spread_over_the_trees_and_leave_a_broken_one(ring: FakeService) -> None:
    with at(ring, "h1") as publisher, at(ring, "h3") as subscriber:
        subscription = subscriber.subscribe("stocks", {})
        advertisement = publisher.advertise("stocks", {})
        addresses = ring.addresses_sent_by("h1")
        assert ring.connected.wait(WAIT)
        advertisement.publish_many({"price": n, "volume": 1} for n in range(60))
        assert prices(subscription, 60) == [*range(60)]
        trees = Counter(read(address).tree for address in addresses)
        assert set(trees) == {0, 1}
        assert min(trees.values()) > 10
        addresses.clear()
        ring.set_trees("stocks", [1])
        until_sync(lambda: advertisement.view.trees == (1,))
        advertisement.publish_many({"price": n, "volume": 1} for n in range(20))
        assert prices(subscription, 20) == [*range(20)]
        assert {read(address).tree for address in addresses} == {1}
        ring.set_trees("stocks", [])  # nothing better is known
        ring.set_trees("stocks", [0])
        until_sync(lambda: advertisement.view.trees == (0,))
        advertisement.publish(EVENT)
        assert prices(subscription, 1) == [500]


def test_a_filter_without_conditions_survives_any_change_of_schema(service: FakeService) -> None:
    other = {"attributes": [{"name": "colour", "type": "enum", "values": ["red", "blue"]}]}
    with at(service, "h1") as publisher, at(service, "h3") as subscriber:
        everything = subscriber.subscribe("stocks", {})
        advertisement = publisher.advertise("stocks", {})
        assert service.connected.wait(WAIT)
        service.put_space("stocks", other)
        until_sync(lambda: advertisement.view.version == 1)
        advertisement.publish({"colour": "red"})
        assert everything.get(WAIT) == {"colour": "red"}
