import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import pytest
from msgspec import structs

from configurators.store.etcd import connection
from configurators.store.etcd.client import (
    Access,
    Compacted,
    Delete,
    Etcd,
    Put,
    StoreUnavailable,
    WatchBatch,
    WatchEvent,
)
from tests.etcd import PASSWORD, USER, TestEtcd, authenticate, running


async def collect(batches: AsyncGenerator[WatchBatch, None], last: str) -> list[WatchEvent]:
    """All changes up to the one of a key."""
    found: list[WatchEvent] = []
    async with asyncio.timeout(60), aclosing(batches):
        async for batch in batches:
            assert batch.revision == batch.events[-1].revision
            found += batch.events
            if found[-1].key == last:
                break
    return found


async def test_a_watch_tells_what_changed_after_a_revision_in_order(etcd_server: TestEtcd) -> None:
    async with Etcd(etcd_server.access()) as etcd:
        await etcd.put("w/old", b"0")
        after = (await etcd.range("w/")).revision
        first = await etcd.put("w/a", b"1")
        both = await etcd.transact([], [Put("w/b", b"2"), Delete("w/a"), Put("x", b"3")])
        watching = asyncio.create_task(collect(etcd.watch("w/", after), "w/end"))
        last = await etcd.put("w/end", b"")
        assert sorted(await watching, key=lambda change: (change.revision, change.key)) == [
            WatchEvent("w/a", b"1", first),
            WatchEvent("w/a", None, both.revision),
            WatchEvent("w/b", b"2", both.revision),
            WatchEvent("w/end", b"", last),
        ]


async def test_large_changes_of_one_transaction_come_as_one_batch(etcd_server: TestEtcd) -> None:
    async with Etcd(etcd_server.access()) as etcd:
        after = (await etcd.range("")).revision
        for round_ in range(4):  # more than etcd sends in one message
            await etcd.transact([], [Put(f"{round_}/{n}", bytes(50_000)) for n in range(100)])
        await etcd.put("end", b"")
        found = await collect(etcd.watch("", after), "end")
        assert len(found) == len({change.key for change in found}) == 401
        assert [change.revision for change in found] == sorted(c.revision for c in found)
        await etcd.delete("", prefix=True)


async def test_a_watch_goes_on_over_restarts_without_loss_or_repetition(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        async with Etcd(server.access(timeout=30)) as etcd:
            watching = asyncio.create_task(collect(etcd.watch("w/", 0), "w/end"))
            written = []
            for number in range(60):
                if number % 20 == 10:
                    await asyncio.to_thread(server.kill)
                    await asyncio.to_thread(server.start)
                try:
                    await etcd.put(f"w/{number}", b"")
                except StoreUnavailable as error:
                    assert error.maybe_applied  # noqa: PT017 - it may also succeed
                    await etcd.put(f"w/{number}", b"")
                written.append(f"w/{number}")
            await etcd.put("w/end", b"")
            found = await watching
            revisions = [change.revision for change in found]
            assert revisions == sorted(set(revisions))
            assert list(dict.fromkeys(change.key for change in found)) == [*written, "w/end"]


async def test_a_watch_logs_in_again_where_a_restarted_member_has_forgotten_its_tokens(
    tmp_path: Path,
) -> None:
    """Nothing else uses the connection meanwhile, whose calls would fetch another token."""
    with running(tmp_path) as server:
        await authenticate(server.access())
        access = structs.replace(server.access(), user=USER, password=PASSWORD)
        async with Etcd(access) as etcd:
            batches = etcd.watch("w/", 0)
            async with aclosing(batches):
                await etcd.put("w/a", b"")
                assert (await anext(batches)).events[0].key == "w/a"
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)
                async with Etcd(access) as writer:
                    last = await writer.put("w/b", b"")
                async with asyncio.timeout(60):
                    assert (await anext(batches)).events == [WatchEvent("w/b", b"", last)]


async def test_a_watch_leaves_a_member_that_stands_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "PING_EVERY", 1.0)
    monkeypatch.setattr(connection, "PING_TIMEOUT", 3.0)  # not for any short delay
    options = ["--grpc-keepalive-min-time=0s"]

    with (
        running(tmp_path / "frozen", options) as frozen,
        running(tmp_path / "other", options) as other,
    ):
        # Two that know nothing of each other: what comes shows which of them is watched.
        access = Access((frozen.endpoint, other.endpoint), timeout=10)
        async with Etcd(access) as etcd, Etcd(other.access()) as writer:
            batches = etcd.watch("w/", 0)
            async with aclosing(batches):
                await etcd.put("w/a", b"")
                assert (await anext(batches)).events[0].key == "w/a"
                await writer.put("w/old", b"")
                last = await writer.put("w/b", b"")
                frozen.pause()
                async with asyncio.timeout(60):
                    assert (await anext(batches)).events[-1] == WatchEvent("w/b", b"", last)


async def test_a_watch_of_what_was_compacted_says_so(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        async with Etcd(server.access()) as etcd:
            first = await etcd.put("w/a", b"1")
            await etcd.put("w/a", b"2")
            last = await etcd.put("w/a", b"3")
            await etcd.maintenance.compact(last)
            with pytest.raises(Compacted):
                await collect(etcd.watch("w/", first), "w/a")
            await etcd.put("w/end", b"")
            page = await etcd.range("w/", revision=last)
            assert [c.key for c in await collect(etcd.watch("w/", page.revision), "w/end")] == [
                "w/end"
            ]


async def test_a_watch_that_is_compacted_while_it_is_cut_off_says_so(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        async with Etcd(server.access(timeout=30)) as etcd:
            await etcd.put("w/a", b"1")
            batches = etcd.watch("w/", 0)
            async with aclosing(batches):
                await anext(batches)
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)
                async with Etcd(server.access()) as other:
                    for number in range(3):
                        last = await other.put("w/a", str(number).encode())
                    await other.maintenance.compact(last)
                # The stream of before is dead; nothing of it was read meanwhile.
                with pytest.raises(Compacted):
                    async with asyncio.timeout(60):
                        await anext(batches)


async def test_a_watch_ends_with_the_task_that_reads_it(etcd_server: TestEtcd) -> None:
    async with Etcd(etcd_server.access()) as etcd:
        watching = asyncio.create_task(collect(etcd.watch("w/", 0), "never"))
        await etcd.put("w/a", b"")
        watching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await watching
