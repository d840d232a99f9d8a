"""Following a prefix of etcd: snapshots, changes, re-reading after compaction, bad documents."""

import asyncio
import contextlib
from typing import Any

import pytest

from configurators.store.etcd.client import Access, Etcd, KeyPage
from configurators.store.mirror import Changes, KeyChange, Mirror, Snapshot, follow, follow_key
from tests.etcd import TestEtcd

LIMIT = 20.0  # seconds for whatever should happen


class Reported:
    """What a mirror has reported; `until` waits for a report."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, int | None]] = []
        self._more = asyncio.Event()

    def __call__(self, name: str, value: int | None, revision: int) -> None:
        del revision
        self.changes.append((name, value))
        self._more.set()

    async def until(self, name: str, value: int | None) -> None:
        async with asyncio.timeout(LIMIT):
            while (name, value) not in self.changes:
                await self._more.wait()
                self._more.clear()


async def test_follow_yields_a_snapshot_and_then_every_change(etcd_server: TestEtcd) -> None:
    async with Etcd(etcd_server.access()) as etcd:
        first = await etcd.put("a/1", b"one")
        async with asyncio.timeout(LIMIT), contextlib.aclosing(follow(etcd, "a/")) as updates:
            snapshot = await anext(updates)
            assert isinstance(snapshot, Snapshot)
            assert snapshot.changes == [KeyChange("1", b"one", first)]
            await etcd.put("b/1", b"elsewhere")
            second = await etcd.put("a/2", b"two")
            assert await anext(updates) == Changes([KeyChange("2", b"two", second)], second)
            await etcd.delete("a/1")
            change = (await anext(updates)).changes[0]
            assert (change.name, change.value) == ("1", None)


async def test_follow_reads_a_new_snapshot_after_a_compaction(etcd_server: TestEtcd) -> None:
    async with Etcd(etcd_server.access()) as etcd:
        old = await etcd.put("a/1", b"one")
        await etcd.delete("a/1")
        new = await etcd.put("a/2", b"two")
        await etcd.maintenance.compact(new)
        async with asyncio.timeout(LIMIT), contextlib.aclosing(follow(etcd, "a/", old)) as updates:
            update = await anext(updates)
        assert isinstance(update, Snapshot)
        assert update.changes == [KeyChange("2", b"two", new)]


async def test_follow_key_skips_keys_that_only_begin_alike_and_values_already_known(
    etcd_server: TestEtcd,
) -> None:
    async with Etcd(etcd_server.access()) as etcd:
        known = await etcd.put("key", b"1")
        await etcd.put("keyhole", b"not this one")
        values = follow_key(etcd, "key", newer_than=known)
        async with asyncio.timeout(LIMIT), contextlib.aclosing(values):
            waiting = asyncio.ensure_future(anext(values))
            newest = await etcd.put("key", b"2")
            value = await waiting
            assert (value.value, value.revision) == (b"2", newest)


async def test_a_mirror_keeps_the_decoded_state(etcd_server: TestEtcd) -> None:
    async with Etcd(etcd_server.access()) as etcd:
        await etcd.put("n/a", b"1")
        reported = Reported()
        mirror = Mirror(etcd, "n/", int, reported)
        await mirror.start()
        assert mirror.values == {"a": 1}
        await etcd.put("n/b", b"2")
        await etcd.delete("n/a")
        await reported.until("a", None)
        assert mirror.values == {"b": 2}
        await mirror.stop()


async def test_a_refresh_reports_each_change_once(etcd_server: TestEtcd) -> None:
    async with Etcd(etcd_server.access()) as etcd:
        await etcd.put("n/a", b"1")
        await etcd.put("n/b", b"1")
        reported = Reported()
        mirror = Mirror(etcd, "n/", int, reported)
        await mirror.start()
        await etcd.put("n/a", b"2")
        await etcd.delete("n/b")
        await mirror.refresh()
        await mirror.refresh("a")
        await etcd.put("n/last", b"9")
        await reported.until("last", 9)
        assert [value for name, value in reported.changes if name == "a"] == [1, 2]
        assert [value for name, value in reported.changes if name == "b"] == [1, None]
        await mirror.stop()


class SlowReads(Etcd):
    """An etcd whose answers to reads can be kept back."""

    def __init__(self, access: Access) -> None:
        super().__init__(access)
        self.was_read = asyncio.Event()
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def range(self, *given: Any, **more: Any) -> KeyPage:
        page = await super().range(*given, **more)
        self.was_read.set()
        await self.go_on.wait()
        return page


@pytest.mark.parametrize("under", ["", "x"])
@pytest.mark.parametrize("watched", [False, True])
async def test_a_late_answer_to_an_earlier_read_brings_nothing_back(
    etcd_server: TestEtcd, under: str, watched: bool
) -> None:
    access = etcd_server.access()
    async with Etcd(access) as etcd, SlowReads(access) as slow:
        await etcd.put("a/x1", b"1")
        reported = Reported()
        mirror = Mirror(slow, "a/", int, reported)
        if watched:
            await mirror.start()
        else:
            await mirror.refresh(under)
        slow.was_read.clear()
        slow.go_on.clear()
        earlier = asyncio.create_task(mirror.refresh(under))
        await slow.was_read.wait()
        await etcd.delete("a/x1")
        if watched:
            await reported.until("x1", None)
            slow.go_on.set()
        else:
            kept, slow.go_on = slow.go_on, asyncio.Event()
            slow.go_on.set()
            await mirror.refresh(under)
            kept.set()
        await earlier
        await mirror.stop()
        assert reported.changes == [("x1", 1), ("x1", None)]
        assert mirror.values == {}


async def test_a_mirror_keeps_the_value_before_one_that_cannot_be_decoded(
    etcd_server: TestEtcd, caplog: pytest.LogCaptureFixture
) -> None:
    async with Etcd(etcd_server.access()) as etcd:
        await etcd.put("n/a", b"1")
        reported = Reported()
        mirror = Mirror(etcd, "n/", int, reported)
        await mirror.start()
        await etcd.put("n/a", b"no number")
        await etcd.put("n/b", b"2")
        await reported.until("b", 2)
        assert mirror.values == {"a": 1, "b": 2}
        assert "n/a at revision" in caplog.text
        await mirror.stop()
