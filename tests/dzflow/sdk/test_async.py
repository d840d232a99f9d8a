"""The SDK for tasks: the same names as for threads, awaited."""

import asyncio
import inspect

import pytest

import dzflow
from dzflow import AsyncControlPlane, ControlPlane
from dzflow.sdk import (
    Advertisement,
    AsyncAdvertisement,
    AsyncRest,
    AsyncSubscription,
    Rest,
    Subscription,
)
from dzflow.sdk.errors import Closed, OutsideAdvertisement
from tests.dzflow.sdk.fake_service import FakeService
from tests.dzflow.sdk.support import EVENT
from tests.support import WAIT, until


def public_interface(kind: type) -> dict[str, list[str]]:
    """The public methods and properties of a class, with the names of their parameters."""
    members = inspect.getmembers(kind, inspect.isfunction)
    found = {n: list(inspect.signature(m).parameters) for n, m in members if n[0] != "_"}
    constructor = {"__init__": list(inspect.signature(kind).parameters)}
    properties: dict[str, list[str]] = {
        n: [] for n, m in inspect.getmembers(kind) if isinstance(m, property)
    }
    return found | constructor | properties


@pytest.mark.parametrize(
    ("threads", "tasks", "without"),
    [
        (Rest, AsyncRest, {"stream"}),  # which needs an event loop
        (ControlPlane, AsyncControlPlane, set()),
        (Subscription, AsyncSubscription, {"__init__"}),  # not for applications
        (Advertisement, AsyncAdvertisement, {"__init__"}),
    ],
)
def test_both_offer_the_same(threads: type, tasks: type, without: set[str]) -> None:
    offered = [public_interface(kind) for kind in (threads, tasks)]
    for name in without:
        for each in offered:
            each.pop(name, None)
    assert offered[0] == offered[1]


async def test_events_come_to_tasks(service: FakeService) -> None:
    before = asyncio.all_tasks()
    async with (
        AsyncControlPlane(service.url, "h1") as publisher,
        AsyncControlPlane(service.url, "h3") as subscriber,
    ):
        advertisement = await publisher.advertise("stocks", "price > 0")
        async with (
            subscriber.subscribe("stocks", "price > 100") as events,
            publisher.subscribe("stocks", "price > 100") as own,
        ):
            await advertisement.publish(EVENT)
            await advertisement.publish_many(
                {"price": price, "volume": 1} for price in range(51, 151)
            )
            for subscription in (events, own):
                assert await subscription.get(WAIT) == EVENT
                seen = 0
                async for event in subscription:
                    assert event["price"] == 101 + seen
                    seen += 1
                    if seen == 50:
                        break
            with pytest.raises(TimeoutError):
                await events.get(0.01)
            with pytest.raises(OutsideAdvertisement):
                await advertisement.publish({"price": 0, "volume": 1})
            await events.update("price > 400")
            await advertisement.publish({"price": 300, "volume": 1})
            await advertisement.publish({"price": 450, "volume": 1})
            assert (await events.get(WAIT))["price"] == 450
            waiting = asyncio.create_task(anext(events, None))
            await asyncio.sleep(0)
        assert await waiting is None
        with pytest.raises(Closed):
            await events.get()
        assert (await subscriber.spaces())[0]["name"] == "stocks"
        assert [host["id"] for host in await subscriber.rest.hosts()] == ["h1", "h2", "h3"]
        assert subscriber.counters()["stocks"].delivered == 52
    assert service.records == {}
    await until(lambda: asyncio.all_tasks() == before)


async def test_several_tasks_can_wait_at_one_subscription(service: FakeService) -> None:
    async with AsyncControlPlane(service.url, "h1") as application:
        subscription = await application.subscribe("stocks", {})
        advertisement = await application.advertise("stocks", {})
        waiting = [asyncio.create_task(subscription.get(WAIT)) for _ in range(5)]
        for price in range(5):
            await advertisement.publish({"price": price, "volume": 1})
        events = await asyncio.gather(*waiting)
        assert sorted(event["price"] for event in events) == [0, 1, 2, 3, 4]


async def test_a_cancelled_subscription_receives_nothing(service: FakeService) -> None:
    async with AsyncControlPlane(service.url, "h1") as application:
        advertisement = await application.advertise("stocks", {})
        service.faults.append(lambda _, path: "busy" if path == "/subscribe" else None)

        async def subscribe() -> None:
            await application.subscribe("stocks", {})

        task = asyncio.create_task(subscribe())
        await until(lambda: service.count("POST", "/subscribe"))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await advertisement.publish(EVENT)
        await until(lambda: application.counters()["stocks"].received == 1)
        assert application.counters()["stocks"].delivered == 0


async def test_closing_ends_a_subscription_that_is_being_opened(service: FakeService) -> None:
    service.faults.append(lambda _, path: "busy" if path == "/subscribe" else None)
    application = AsyncControlPlane(service.url, "h1")

    async def subscribe() -> None:
        await application.subscribe("stocks", {})

    task = asyncio.create_task(subscribe())
    await until(lambda: service.count("POST", "/subscribe"))
    await application.close()
    with pytest.raises(Closed):
        await task


def test_the_package_offers_both_and_nothing_else() -> None:
    assert dzflow.ControlPlane is ControlPlane
    assert dzflow.AsyncControlPlane is AsyncControlPlane
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = dzflow.Nothing
