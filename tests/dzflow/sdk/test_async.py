"""The SDK for tasks is the SDK for threads, awaited."""

import asyncio
import inspect
from collections.abc import Coroutine
from typing import Any

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
from tests.dzflow.sdk.service import LIMIT, Service
from tests.dzflow.sdk.support import EVENT


def awaited(test: Coroutine[Any, Any, None]) -> None:
    """Run a test that ends in time and leaves no task behind."""

    async def limited() -> None:
        async with asyncio.timeout(LIMIT):
            await test
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(limited())


def offers(kind: type) -> dict[str, list[str]]:
    """What a class offers: methods with the names of their parameters."""
    members = inspect.getmembers(kind, lambda member: inspect.isfunction(member))
    found = {n: list(inspect.signature(m).parameters) for n, m in members if n[0] != "_"}
    constructor = {"__init__": list(inspect.signature(kind).parameters)}
    properties: dict[str, list[str]] = {
        n: [] for n, m in inspect.getmembers(kind) if isinstance(m, property)
    }
    return found | constructor | properties


@pytest.mark.parametrize(
    ("threads", "tasks"),
    [
        (Rest, AsyncRest),
        (ControlPlane, AsyncControlPlane),
        (Subscription, AsyncSubscription),
        (Advertisement, AsyncAdvertisement),
    ],
)
def test_both_offer_the_same(threads: type, tasks: type) -> None:
    more = offers(tasks)
    more.pop("stream", None)  # for who has an event loop only
    assert offers(threads) == more


def test_events_come_to_tasks(service: Service) -> None:
    async def run() -> None:
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
                    assert await subscription.get(LIMIT) == EVENT
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
                assert (await events.get(LIMIT))["price"] == 450
                waiting = asyncio.create_task(anext(events, None))
                await asyncio.sleep(0)
            assert await waiting is None
            with pytest.raises(Closed):
                await events.get()
            assert (await subscriber.spaces())[0]["name"] == "stocks"
            assert subscriber.counters()["stocks"].delivered == 52
        assert service.records == {}

    awaited(run())


def test_several_tasks_can_wait_at_one_subscription(service: Service) -> None:
    async def run() -> None:
        async with AsyncControlPlane(service.url, "h1") as application:
            subscription = await application.subscribe("stocks", {})
            advertisement = await application.advertise("stocks", {})
            waiting = [asyncio.create_task(subscription.get(LIMIT)) for _ in range(5)]
            for price in range(5):
                await advertisement.publish({"price": price, "volume": 1})
            events = await asyncio.gather(*waiting)
            assert sorted(event["price"] for event in events) == [0, 1, 2, 3, 4]

    awaited(run())


def test_a_task_that_is_cancelled_while_it_subscribes_leaves_nothing_here(
    service: Service,
) -> None:
    async def run() -> None:
        async with AsyncControlPlane(service.url, "h1") as application:
            await application.advertise("stocks", {})
            service.faults.append(lambda _, path: "busy" if path == "/subscribe" else None)
            task = asyncio.create_task(application.subscribe("stocks", {})._work)
            while not service.count("POST", "/subscribe"):
                await asyncio.sleep(0.001)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert application._core._station is not None
            assert not any(application._core._station.sorter._wants.values())

    awaited(run())


def test_the_package_offers_both_and_nothing_else() -> None:
    assert dzflow.ControlPlane is ControlPlane
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = dzflow.Nothing
