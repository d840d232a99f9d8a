"""The SDK with the whole control plane: real etcd, configurators, OpenFlow and REST."""

from collections.abc import Iterator
from typing import Any

import pytest

from dzflow import ControlPlane
from dzflow.sdk import AsyncRest, Counters
from dzflow.sdk.errors import Conflict, InvalidRequest, NotAuthorised, NotFound
from dzflow.sdk.reporter import Reporter
from tests.dzflow.sdk.fake_service import STOCKS
from tests.dzflow.sdk.support import EVENT, WIDER, prices
from tests.etcd import TestEtcd
from tests.stack import Stack, StackOptions
from tests.support import WAIT, until_sync


@pytest.fixture(scope="module")
def stack(etcd_server: TestEtcd) -> Iterator[Stack]:
    with Stack(etcd_server.access(), StackOptions(topology="ring:4", trees=2)) as running:
        with ControlPlane(running.url) as operator:
            operator.put_space("stocks", STOCKS)
        yield running


def at(stack: Stack, host: str) -> ControlPlane:
    return ControlPlane(stack.url, host, timeout=60.0)


def test_events_reach_every_matching_subscription_once(stack: Stack) -> None:
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
    with ControlPlane(stack.url) as control_plane:  # who closes does not wait for long
        until_sync(lambda: control_plane.rest.records("subscription") == [])
        until_sync(lambda: control_plane.rest.records("advertisement") == [])


def test_publishers_leave_a_tree_that_breaks(stack: Stack) -> None:
    with at(stack, "h1") as publisher, at(stack, "h3") as subscriber:
        subscription = subscriber.subscribe("stocks", {})
        advertisement = publisher.advertise("stocks", {})
        usable = publisher.space("stocks")["trees"]
        assert len(usable) == 2
        # One that only one of the trees has.
        trees = publisher.rest.get("/topology")["trees"]
        ends = [{(li["a"], li["a_port"]) for li in tree["links"]} for tree in trees]
        links = stack.network.topology.links
        link = next(li for li in links if sum((li.a, li.a_port) in some for some in ends) == 1)

        async def set_link(up: bool) -> None:
            stack.network.set_link(link, up)

        stack.run(set_link(False))
        try:
            until_sync(lambda: len(advertisement.view.trees) == 1)
            advertisement.publish_many({"price": p, "volume": 1} for p in range(20))
            assert sorted(prices(subscription, 20)) == [*range(20)]
        finally:
            stack.run(set_link(True))
        until_sync(lambda: len(advertisement.view.trees) == 2)


def changed_to(space: dict[str, Any], version: int) -> bool:
    return bool(space["versions"] == [version] and not space["changing"])


def test_a_changed_schema_interrupts_no_event(stack: Stack) -> None:
    with at(stack, "h1") as publisher, at(stack, "h3") as subscriber:
        publisher.put_space("changing", STOCKS)
        subscription = subscriber.subscribe("changing", "price > 100")
        advertisement = publisher.advertise("changing", {})
        advertisement.publish({"price": 200, "volume": 1})
        publisher.put_space("changing", WIDER)
        until_sync(lambda: advertisement.view.version == 1)
        advertisement.publish({"price": 4000, "volume": 1})
        assert prices(subscription, 2) == [200, 4000]
        until_sync(lambda: changed_to(publisher.space("changing"), 1))
        advertisement.publish({"price": 4500, "volume": 1})
        assert prices(subscription, 1) == [4500]
        with pytest.raises(Conflict):
            publisher.delete_space("changing")
    with ControlPlane(stack.url) as operator:
        operator.delete_space("changing")


def test_the_record_of_a_crashed_application_ends_by_itself(stack: Stack) -> None:
    with at(stack, "h1") as living, ControlPlane(stack.url) as operator:
        subscription = living.subscribe("stocks", {}, ttl=6)
        crashed = operator.rest.begin("subscription", "h1", "stocks", {}, ttl=6)["id"]

        def ended() -> bool:
            found = operator.rest.get(f"/requests/{crashed}")
            return bool(found["state"] == "removed")

        until_sync(ended)
        # Renewed in the meantime.
        assert operator.rest.record("subscription", subscription.id)["state"] == "active"


def test_tokens_are_shown_and_hosts_see_their_own_only(stack: Stack) -> None:
    with (
        ControlPlane(stack.guarded_url, "h1", stack.tokens["h1"]) as one,
        ControlPlane(stack.guarded_url, "h2", stack.tokens["h2"]) as other,
    ):
        subscription = other.subscribe("stocks", {})
        one.advertise("stocks", {}).publish(EVENT)
        assert subscription.get(WAIT) == EVENT
        with pytest.raises(NotAuthorised):
            one.rest.begin("subscription", "h2", "stocks", {})
    with ControlPlane(stack.guarded_url, "h1") as nobody, pytest.raises(NotAuthorised):
        nobody.subscribe("stocks", {})


def test_refusals_and_explanations(stack: Stack) -> None:
    with at(stack, "h1") as application:
        with pytest.raises(InvalidRequest, match="prize"):
            application.rest.begin("subscription", "h1", "stocks", "prize > 1")
        with pytest.raises(NotFound):
            application.rest.end("subscription", "s1-0123456789abcdef")
        found = application.explain("stocks", "price > 100", "h1")
        assert found["regions"]
        assert 0 <= found["false_share"] < 1


async def test_the_control_plane_accepts_reports(stack: Stack) -> None:
    async with AsyncRest(stack.url) as rest:
        reporter = Reporter(rest, "h1", lambda: {"stocks": Counters(published=1)})
        reporter.sample("stocks", EVENT)
        await reporter.send()  # an error if it is refused
