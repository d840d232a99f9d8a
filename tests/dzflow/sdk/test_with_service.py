"""The SDK with the whole control plane: real etcd, configurators, OpenFlow and REST."""

from collections.abc import Iterator

import pytest

from dzflow import ControlPlane
from dzflow.sdk.errors import Conflict, InvalidRequest, NotAuthorised, NotFound
from tests.dzflow.sdk.service import LIMIT, STOCKS
from tests.dzflow.sdk.support import EVENT, prices, until
from tests.etcd import TestEtcd
from tests.stack import Stack, StackOptions

WIDER = {
    "attributes": [
        {"name": "price", "type": "float", "min": 0, "max": 5000},
        {"name": "volume", "type": "int", "min": 0, "max": 1000},
    ]
}


@pytest.fixture(scope="module")
def stack(etcd_server: TestEtcd) -> Iterator[Stack]:
    with Stack(etcd_server.access(), StackOptions(topology="ring:4", trees=2)) as running:
        with ControlPlane(running.url) as operator:
            operator.put_space("stocks", STOCKS)
        yield running


def at(stack: Stack, host: str) -> ControlPlane:
    return ControlPlane(stack.url, host, timeout=60.0)


def test_events_reach_who_wants_them_once_everywhere(stack: Stack) -> None:
    with at(stack, "h1") as publisher, at(stack, "h1") as neighbour, at(stack, "h3") as far:
        subscriptions = [
            publisher.subscribe("stocks", "price > 100"),
            neighbour.subscribe("stocks", "price > 100"),
            far.subscribe("stocks", "price > 100"),
            far.subscribe("stocks", {"price": {"gt": 100}, "volume": {"lt": 50}}),
        ]
        with publisher.advertise("stocks", "price > 0") as advertisement:
            advertisement.publish_many({"price": p, "volume": 1} for p in range(50, 150))
            for subscription in subscriptions:
                assert sorted(prices(subscription, 49)) == [*range(101, 150)]
        subscriptions[2].update("price < 10")
        with publisher.advertise("stocks", {}) as advertisement:
            advertisement.publish({"price": 500, "volume": 1})
            advertisement.publish({"price": 5, "volume": 1})
            assert prices(subscriptions[2], 1) == [5]
            assert prices(subscriptions[3], 1) == [500]
    with ControlPlane(stack.url) as control_plane:
        assert control_plane.records("subscription") == []
        assert control_plane.records("advertisement") == []


def test_publishers_leave_a_tree_that_breaks(stack: Stack) -> None:
    with at(stack, "h1") as publisher, at(stack, "h3") as subscriber:
        subscription = subscriber.subscribe("stocks", {})
        advertisement = publisher.advertise("stocks", {})
        usable = publisher.space("stocks")["trees"]
        assert len(usable) == 2
        station = publisher._core._station
        assert station is not None
        # One that only one of the trees has.
        trees = publisher.get("/topology")["trees"]
        ends = [{(li["a"], li["a_port"]) for li in tree["links"]} for tree in trees]
        links = stack.network.topology.links
        link = next(li for li in links if sum((li.a, li.a_port) in some for some in ends) == 1)

        async def set_link(up: bool) -> None:
            stack.network.set_link(link, up)

        stack.run(set_link(False))
        try:
            until(lambda: len(station.view("stocks").trees) == 1)  # type: ignore[union-attr]
            advertisement.publish_many({"price": p, "volume": 1} for p in range(20))
            assert sorted(prices(subscription, 20)) == [*range(20)]
        finally:
            stack.run(set_link(True))
        until(lambda: len(station.view("stocks").trees) == 2)  # type: ignore[union-attr]


def test_a_changed_schema_interrupts_nobody(stack: Stack) -> None:
    with at(stack, "h1") as publisher, at(stack, "h3") as subscriber:
        publisher.put_space("changing", STOCKS)
        subscription = subscriber.subscribe("changing", "price > 100")
        advertisement = publisher.advertise("changing", {})
        advertisement.publish({"price": 200, "volume": 1})
        publisher.put_space("changing", WIDER)
        station = publisher._core._station
        assert station is not None
        until(lambda: station.view("changing").version == 1)  # type: ignore[union-attr]
        advertisement.publish({"price": 4000, "volume": 1})
        assert prices(subscription, 2) == [200, 4000]
        until(lambda: publisher.space("changing")["versions"] == [1])
        advertisement.publish({"price": 4500, "volume": 1})
        assert prices(subscription, 1) == [4500]
        with pytest.raises(Conflict):
            publisher.delete_space("changing")
    with ControlPlane(stack.url) as operator:
        operator.delete_space("changing")


def test_the_record_of_a_crashed_application_ends_by_itself(stack: Stack) -> None:
    with at(stack, "h1") as living, ControlPlane(stack.url) as operator:
        subscription = living.subscribe("stocks", {}, ttl=1.5)
        crashed = operator.begin("subscription", "h1", "stocks", {}, ttl=1.5)["id"]

        def ended() -> bool:
            found = operator.get(f"/requests/{crashed}")
            return bool(found["state"] == "removed")

        until(ended)
        # Renewed in the meantime.
        assert operator.record("subscription", subscription.id)["state"] == "active"


def test_tokens_are_shown_and_hosts_see_their_own_only(stack: Stack) -> None:
    with (
        ControlPlane(stack.guarded_url, "h1", stack.tokens["h1"]) as one,
        ControlPlane(stack.guarded_url, "h2", stack.tokens["h2"]) as other,
    ):
        subscription = other.subscribe("stocks", {})
        one.advertise("stocks", {}).publish(EVENT)
        assert subscription.get(LIMIT) == EVENT
        with pytest.raises(NotAuthorised):
            one.begin("subscription", "h2", "stocks", {})
    with ControlPlane(stack.guarded_url, "h1") as nobody, pytest.raises(NotAuthorised):
        nobody.subscribe("stocks", {})


def test_refusals_and_explanations(stack: Stack) -> None:
    with at(stack, "h1") as application:
        with pytest.raises(InvalidRequest, match="prize"):
            application.begin("subscription", "h1", "stocks", "prize > 1")
        with pytest.raises(NotFound):
            application.end("subscription", "s1-0123456789abcdef")
        found = application.explain("stocks", "price > 100", "h1")
        assert found["regions"]
        assert 0 <= found["false_share"] < 1


def test_reports_are_taken(stack: Stack) -> None:
    with at(stack, "h1") as application:
        application.advertise("stocks", {}).publish(EVENT)
        station = application._core._station
        assert station is not None
        before = station._reported
    assert station._reported != before  # the last report, at the end, was accepted
