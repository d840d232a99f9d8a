import asyncio
from pathlib import Path

import pytest

from configurators.store.etcd.client import Compacted, Etcd
from configurators.store.upkeep import SharedLeases, keep_compacted
from tests.etcd import TestEtcd, running
from tests.support import until


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def test_keys_of_the_same_while_share_a_lease(etcd_server: TestEtcd) -> None:
    clock = Clock()

    async with Etcd(etcd_server.access()) as etcd:
        leases = SharedLeases(etcd, retention=3600, rotation=60, clock=clock)
        first = await asyncio.gather(*(leases.current() for _ in range(50)))
        assert len(set(first)) == 1
        clock.now += 59
        assert await leases.current() == first[0]
        clock.now += 1
        assert await leases.current() != first[0]


async def test_a_lease_that_is_gone_is_replaced_when_told(etcd_server: TestEtcd) -> None:
    async with Etcd(etcd_server.access()) as etcd:
        leases = SharedLeases(etcd, retention=3600)
        first = await leases.current()
        await etcd.revoke(first)
        leases.forget()
        second = await leases.current()
        assert second != first
        await etcd.put("finished", b"", lease=second)


async def test_keys_with_a_shared_lease_expire(
    etcd_server: TestEtcd,
) -> None:
    async with Etcd(etcd_server.access()) as etcd:
        leases = SharedLeases(etcd, retention=0.5, rotation=0.5)
        revision = await etcd.put("finished", b"", lease=await leases.current())
        async with asyncio.timeout(60):
            async for batch in etcd.watch("finished", revision):
                assert [change.value for change in batch.events] == [None]
                break


async def compacted(etcd: Etcd, revision: int) -> bool:
    try:
        await etcd.range("a", revision=revision)
    except Compacted:
        return True
    return False


async def test_several_processes_may_compact_and_recent_history_stays(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        async with asyncio.timeout(60), Etcd(server.access()) as etcd:
            stop = asyncio.Event()
            loops = [
                asyncio.create_task(keep_compacted(etcd, every=0.05, keep=20, stop=stop))
                for _ in range(3)
            ]
            first = await etcd.put("a", b"0")
            for number in range(40):
                last = await etcd.put("a", str(number).encode())
            await until(lambda: compacted(etcd, first))
            assert (await etcd.range("a", revision=last - 10)).items
            stop.set()
            await asyncio.gather(*loops)


async def test_compaction_goes_on_after_etcd_was_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running(tmp_path) as server:
        async with (
            asyncio.timeout(60),
            Etcd(server.access()) as other,
            Etcd(server.access(timeout=0.2)) as hasty,
        ):
            first = await other.put("a", b"0")
            for _ in range(5):
                await other.put("a", b"1")
            await asyncio.to_thread(server.kill)
            stop = asyncio.Event()
            loop = asyncio.create_task(keep_compacted(hasty, every=0.05, keep=1, stop=stop))
            await until(lambda: "cannot compact etcd" in caplog.text)
            await asyncio.to_thread(server.start)
            await until(lambda: compacted(other, first))
            stop.set()
            await loop
