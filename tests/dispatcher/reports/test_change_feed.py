"""The change feed: it ends for readers that are too slow, and watches records only if it must."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial

import pytest
from msgspec import Struct

from configurators.store.etcd.client import Etcd, WatchBatch
from configurators.store.keys import FINISHED, RECORDS
from dispatcher.reports import change_feed
from dispatcher.views import Change, ChangeType, RecordView, Skipped
from tests.dispatcher.support import TIMEOUT, specs, world
from tests.etcd import TestEtcd


def record_of(change: Change) -> RecordView:
    """The record that a change is about."""
    assert isinstance(change.data, RecordView)
    return change.data


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
                active += isinstance(change.data, RecordView) and change.data.state == "active"
                if active == 300:
                    return

        reading = asyncio.create_task(read())
        for host in ("h1", "h2", "h3"):
            await d.begin("subscription", specs(100, host), wait=TIMEOUT)
        await reading
        assert [change.type async for change in slow] == ["lagged"]


async def test_a_slow_reader_gets_the_newest_load_only(etcd_server: TestEtcd) -> None:
    types: tuple[ChangeType, ...] = ("network", "load")

    def never() -> Struct:
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
            d.publish_load(partial(Skipped, number))
        assert await anext(reader) == Change("load", Skipped(2))
        d.publish_load(partial(Skipped, 3))
        assert await anext(reader) == Change("load", Skipped(3))


async def test_a_sample_needs_no_watch_while_there_is_one_dispatcher(
    etcd_server: TestEtcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    types: tuple[ChangeType, ...] = ("record",)
    watched: list[str] = []
    watch = Etcd.watch

    def note(etcd: Etcd, prefix: str, after: int) -> AsyncGenerator[WatchBatch, None]:
        watched.append(prefix)
        return watch(etcd, prefix, after)

    monkeypatch.setattr(Etcd, "watch", note)

    async with (
        world(etcd_server.access()) as w,
        w.dispatcher() as d,
        asyncio.timeout(TIMEOUT),
        aclosing(d.changes(types, most=3)) as sample,
    ):
        reading = asyncio.ensure_future(anext(sample))
        await asyncio.sleep(0)  # it is a reader from here on
        (begun,) = await d.begin("subscription", specs(1), wait=TIMEOUT)
        assert begun.record
        seen = [record_of(await reading), record_of(await anext(sample))]
        assert [(one.id, one.state) for one in seen] == [
            (begun.record.id, "pending"),
            (begun.record.id, "active"),
        ]
        await d.end("subscription", [begun.record.id], wait=TIMEOUT)
        assert record_of(await anext(sample)).state == "removing"
        assert await anext(sample) == Change("skipped", Skipped(1))
        assert not {RECORDS, FINISHED} & set(watched)

        async with w.dispatcher() as other:  # what that one writes, only etcd tells
            reading = asyncio.ensure_future(anext(sample))
            while not reading.done():
                await other.begin("subscription", specs(1), wait=TIMEOUT)
            assert (await reading).type == "record"
            assert {RECORDS, FINISHED} <= set(watched)


async def test_a_reader_of_every_record_beside_a_sample_gets_each_change_once(
    etcd_server: TestEtcd,
) -> None:
    async with (
        world(etcd_server.access()) as w,
        w.dispatcher() as d,
        asyncio.timeout(TIMEOUT),
        aclosing(d.changes(("record", "network"), most=1000)) as sample,
        aclosing(d.changes(("record", "network"))) as whole,
    ):
        assert (await anext(sample)).type == (await anext(whole)).type == "network"
        begun = await d.begin("subscription", specs(20), wait=TIMEOUT)
        for reader in (sample, whole):
            seen = [record_of(await anext(reader)) for _ in range(2 * len(begun))]
            told = sorted((one.id, one.state) for one in seen)
            ids = [one.record.id for one in begun if one.record]
            wanted = [(id, state) for id in ids for state in ("active", "pending")]
            assert told == sorted(wanted)
