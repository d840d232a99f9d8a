"""The change feed: it ends for readers that are too slow."""

import asyncio
from contextlib import aclosing

import pytest

from dispatcher.reports import change_feed
from dispatcher.views import Change, ChangeType
from tests.dispatcher.support import TIMEOUT, specs, world
from tests.etcd import TestEtcd


async def test_a_reader_that_is_too_slow_gets_lagged_and_nothing_more(
    etcd_server: TestEtcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_feed, "_MOST", 250)
    types: tuple[ChangeType, ...] = ("record", "network")

    async with (
        world(etcd_server.access()) as w,
        w.dispatcher() as d,
        asyncio.timeout(TIMEOUT),
        aclosing(d.changes(types)) as slow,
        aclosing(d.changes(types)) as quick,
    ):
        assert (await anext(slow)).type == "network"
        assert (await anext(quick)).type == "network"

        async def read() -> None:
            active = 0
            async for change in quick:
                active += change.type == "record" and change.data.state == "active"
                if active == 300:
                    return

        reading = asyncio.create_task(read())
        for host in ("h1", "h2", "h3"):
            await d.begin("subscription", specs(100, host), wait=TIMEOUT)
        await reading
        assert [change.type async for change in slow] == ["lagged"]


async def test_a_slow_reader_gets_the_newest_load_only(etcd_server: TestEtcd) -> None:
    types: tuple[ChangeType, ...] = ("network", "load")

    def never() -> object:
        raise AssertionError("nobody wants to know of the load")

    async with (
        world(etcd_server.access()) as w,
        w.dispatcher() as d,
        asyncio.timeout(TIMEOUT),
        aclosing(d.changes(types[:1])) as other,
        aclosing(d.changes(types)) as reader,
    ):
        assert (await anext(other)).type == "network"
        d.publish_load(never)
        assert (await anext(reader)).type == "network"
        for number in range(3):
            d.publish_load(lambda number=number: number)  # type: ignore[misc]
        assert await anext(reader) == Change("load", 2)
        d.publish_load(lambda: 3)
        assert await anext(reader) == Change("load", 3)
