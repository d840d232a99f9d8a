import asyncio
from pathlib import Path

import pytest

from configurators.store.etcd.client import (
    Access,
    Compacted,
    Delete,
    Etcd,
    Get,
    LeaseGone,
    Put,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
    absent,
    none_newer,
    unchanged,
)
from configurators.store.server.server import free_ports
from configurators.store.upkeep import read_room
from tests.etcd import TestEtcd, running


def test_the_password_is_not_shown() -> None:
    shown = repr(Access(("a:1",), user="me", password="geheim"))  # noqa: S106
    assert "me" in shown
    assert "geheim" not in shown


async def test_what_was_put_is_there_with_its_revisions_until_it_is_deleted(
    etcd_server: TestEtcd,
) -> None:
    async with Etcd(etcd_server.access()) as etcd:
        assert await etcd.get("a") is None
        first = await etcd.put("a", b"1")
        second = await etcd.put("a", b"\x00\xff")
        found = await etcd.get("a")
        assert found is not None
        assert (found.key, found.value, found.lease) == ("a", b"\x00\xff", 0)
        assert (found.created, found.revision) == (first, second)
        assert await etcd.delete("a") == 1
        assert await etcd.delete("a") == 0
        assert await etcd.get("a") is None


async def test_installations_with_different_prefixes_do_not_see_each_other(
    etcd_server: TestEtcd,
) -> None:
    one, other = etcd_server.access(), etcd_server.access()

    async with Etcd(one) as first, Etcd(other) as second:
        await first.put("a", b"1")
        assert await second.get("a") is None
        assert (await second.range("")).items == []
        await second.delete("", prefix=True)
        assert [item.key for item in (await first.range("")).items] == ["a"]


async def test_a_range_gives_all_keys_of_a_prefix_in_order_and_in_pages(
    etcd_server: TestEtcd,
) -> None:
    async with Etcd(etcd_server.access()) as etcd:
        names = [f"r/{number:04}" for number in range(4500)]
        for at in range(0, len(names), 1000):
            await etcd.transact([], [Put(name, name.encode()) for name in names[at : at + 1000]])
        await etcd.put("s", b"not of this prefix")

        assert await etcd.count("r/") == len(names)
        everything = await etcd.range("r/")
        assert [item.key for item in everything.items] == names
        assert not everything.more

        paged: list[str] = []
        while True:
            page = await etcd.range("r/", after=paged[-1] if paged else None, limit=1300)
            paged += [item.key for item in page.items]
            if not page.more:
                break
            assert len(page.items) == 1300
        assert paged == names

        assert [item.key for item in (await etcd.range("r/", after="r/4498")).items] == ["r/4499"]
        assert (await etcd.range("r/", after="r/4499")).items == []


async def test_a_range_at_a_revision_shows_what_was_then(etcd_server: TestEtcd) -> None:
    async with Etcd(etcd_server.access()) as etcd:
        await etcd.put("a", b"old")
        then = (await etcd.range("a")).revision
        await etcd.put("a", b"new")
        page = await etcd.range("a", revision=then)
        assert [item.value for item in page.items] == [b"old"]
        assert page.revision == then


async def test_values_larger_than_one_answer_are_read_in_smaller_pages(
    etcd_server: TestEtcd,
) -> None:
    async with Etcd(etcd_server.access()) as etcd:
        for number in range(10):
            await etcd.put(f"big/{number}", bytes(7 << 20))
        page = await etcd.range("big/")
        assert [len(item.value) for item in page.items] == [7 << 20] * 10
        await etcd.delete("big/", prefix=True)


async def test_keys_are_read_without_their_values(etcd_server: TestEtcd) -> None:
    async with Etcd(etcd_server.access()) as etcd:
        for number in range(10):
            await etcd.put(f"large/{number}", bytes(7 << 20))
        page = await etcd.range("large/", values=False)  # all values exceed one answer
        assert [item.key for item in page.items] == [f"large/{number}" for number in range(10)]
        assert not any(item.value for item in page.items)
        await etcd.delete("large/", prefix=True)


async def test_a_transaction_is_done_as_a_whole_or_not_at_all(etcd_server: TestEtcd) -> None:
    async with Etcd(etcd_server.access()) as etcd:
        first = await etcd.transact([absent("a"), absent("b")], [Put("a", b"1"), Put("b", b"1")])
        assert first.succeeded
        again = await etcd.transact(
            [absent("a"), absent("c")], [Put("c", b"2")], [Get("a"), Get("c"), Get("", prefix=True)]
        )
        assert not again.succeeded
        assert [[item.key for item in found] for found in again.gets] == [["a"], [], ["a", "b"]]
        assert again.gets[0][0].revision == first.revision
        assert await etcd.get("c") is None

        changed = await etcd.transact(
            [unchanged("a", first.revision), unchanged("c", 0)],
            [Put("a", b"3"), Delete("b"), Get("a"), Get("b")],
        )
        assert changed.succeeded
        assert [[item.value for item in found] for found in changed.gets] == [[b"3"], []]
        assert changed.gets[0][0].revision == changed.revision
        assert not (await etcd.transact([unchanged("a", first.revision)], [])).succeeded

        await etcd.transact([], [Delete("", prefix=True)])
        assert (await etcd.range("")).items == []


async def test_a_range_compare_notices_one_newer_key_of_many(etcd_server: TestEtcd) -> None:
    async with Etcd(etcd_server.access()) as etcd:
        assert (await etcd.transact([none_newer("owners/7.", 0)], [])).succeeded  # none there
        await etcd.put("owners/7.0/a", b"x")
        known = await etcd.put("owners/7.0/b", b"x")
        await etcd.put("owners/71.0/a", b"of another space")
        holds = none_newer("owners/7.", known)
        assert (await etcd.transact([holds], [Put("record", b"1")])).succeeded
        assert not (await etcd.transact([none_newer("owners/7.", known - 1)], [])).succeeded
        await etcd.put("owners/7.0/a", b"y")
        refused = await etcd.transact([holds], [Put("record", b"2")], [Get("record")])
        assert not refused.succeeded
        assert refused.gets[0][0].value == b"1"


async def test_a_full_transaction_of_the_hot_path_fits(etcd_server: TestEtcd) -> None:
    async with Etcd(etcd_server.access()) as etcd:
        names = [f"r/{number}" for number in range(1000)]
        done = await etcd.transact(
            [absent(name) for name in names], [Put(name, bytes(1000)) for name in names]
        )
        assert done.succeeded
        reread = await etcd.transact([], [Get(name) for name in names])
        assert {found[0].revision for found in reread.gets} == {done.revision}


async def test_what_etcd_does_not_accept_is_refused_and_says_why(etcd_server: TestEtcd) -> None:
    async with Etcd(etcd_server.access()) as etcd:
        with pytest.raises(StoreRefused, match="duplicate key"):
            await etcd.transact([], [Put("a", b"1"), Put("a", b"2")])
        with pytest.raises(StoreRefused, match="too many operations"):
            await etcd.transact([], [Put(f"a{number}", b"1") for number in range(1025)])
        with pytest.raises(StoreRefused, match="too large"):
            await etcd.put("a", bytes(9 << 20))
        with pytest.raises(LeaseGone):
            await etcd.put("a", b"1", lease=12345)
        with pytest.raises(LeaseGone):
            await etcd.transact([], [Put("a", b"1", lease=12345)])
        assert await etcd.get("a") is None


async def test_a_compacted_revision_cannot_be_read(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        async with Etcd(server.access()) as etcd:
            first = await etcd.put("a", b"1")
            last = await etcd.put("a", b"2")
            await etcd.maintenance.compact(last)
            await etcd.maintenance.compact(last)  # again, as if somebody else had
            with pytest.raises(Compacted):
                await etcd.range("a", revision=first)
            assert (await etcd.range("a", revision=last)).items[0].value == b"2"


async def test_a_full_store_says_what_to_do_and_takes_writes_after_room_was_made(
    tmp_path: Path,
) -> None:
    with running(tmp_path, options=["--quota-backend-bytes=16777216"]) as server:
        async with Etcd(server.access()) as etcd:

            async def fill() -> None:
                for _ in range(100):
                    await etcd.put("a", bytes(1 << 20))

            assert not (await read_room(etcd)).full
            with pytest.raises(StoreFull, match="quota"):
                await fill()
            with pytest.raises(StoreFull):
                await etcd.transact([], [Put("b", b"1")])
            assert (await etcd.get("a")) is not None
            before = await read_room(etcd)
            assert before.full
            await etcd.maintenance.compact(await etcd.maintenance.revision(), physical=True)
            await etcd.maintenance.defragment()
            await etcd.maintenance.disarm()
            after = await read_room(etcd)
            assert not after.full
            assert after.size < before.size
            await etcd.put("a", b"1")


async def test_without_etcd_every_call_ends_in_time_and_nothing_was_applied() -> None:
    endpoints = tuple(f"127.0.0.1:{port}" for port in free_ports(2))

    with pytest.raises(StoreUnavailable, match="check that it runs") as caught:
        async with Etcd(Access(endpoints, timeout=3)):  # enough to try each of them
            pass
    assert all(endpoint in str(caught.value) for endpoint in endpoints)


async def test_a_write_that_was_surely_not_sent_is_sent_when_etcd_is_back(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        async with Etcd(server.access(timeout=30)) as etcd:
            await etcd.put("a", b"1")
            server.kill()
            with pytest.raises(StoreUnavailable):
                # The connection is known to be lost once a call has failed on it.
                async with asyncio.timeout(60), Etcd(server.access(timeout=0.5)):
                    pass
            writing = asyncio.create_task(etcd.put("b", b"2"))
            await asyncio.to_thread(server.start)
            await writing
            found = await etcd.range("")
            assert [(item.key, item.value) for item in found.items] == [("a", b"1"), ("b", b"2")]


async def test_a_write_without_an_answer_may_have_been_applied(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        async with Etcd(server.access(timeout=5)) as etcd:
            await etcd.put("a", b"1")
            server.pause()
            with pytest.raises(StoreUnavailable, match="may have been") as caught:
                await etcd.put("a", b"2")
            assert caught.value.maybe_applied
            with pytest.raises(StoreUnavailable) as reading:
                await etcd.get("a")
            assert not reading.value.maybe_applied
            server.resume()

            async with Etcd(server.access()) as other:
                found = await other.get("a")
            assert found is not None
            assert found.value in (b"1", b"2")


async def test_a_frozen_member_is_left_within_the_time_of_a_read(
    etcd_server: TestEtcd, tmp_path: Path
) -> None:
    with running(tmp_path) as frozen:
        access = etcd_server.access()
        both = Access((frozen.endpoint, *access.endpoints), access.prefix, timeout=8)

        async with Etcd(both) as etcd:
            frozen.pause()
            assert await etcd.get("a") is None
            await etcd.put("a", b"1")
            frozen.resume()


async def test_closing_ends_calls_and_watches_that_are_under_way(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        async with asyncio.timeout(60):

            async def watch() -> None:
                async for _ in etcd.watch("", 0):
                    watching.set()

            watching = asyncio.Event()
            async with Etcd(server.access(timeout=20)) as etcd:
                await etcd.put("a", b"1")
                watcher = asyncio.create_task(watch())
                await watching.wait()
                server.pause()
                reading = asyncio.create_task(etcd.get("a"))
                await asyncio.sleep(0)
            with pytest.raises(StoreUnavailable, match="closed"):
                await reading
            with pytest.raises(StoreUnavailable, match="closed"):
                await watcher
            with pytest.raises(StoreUnavailable, match="closed"):
                await etcd.get("a")
            server.resume()


async def test_a_client_that_was_not_entered_says_so() -> None:
    with pytest.raises(StoreUnavailable, match="async with"):
        await Etcd(Access(("127.0.0.1:1",))).get("a")
