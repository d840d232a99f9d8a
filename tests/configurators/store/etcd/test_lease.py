import asyncio
from pathlib import Path

from configurators.store.etcd.client import Etcd
from tests.etcd import TestEtcd, running


async def gone(etcd: Etcd, key: str, after: int) -> None:
    """Return when the key is deleted."""
    async with asyncio.timeout(60):
        async for batch in etcd.watch(key, after):
            if any(change.value is None for change in batch.events):
                return


async def test_keys_of_a_lease_live_as_long_as_its_block_even_beyond_its_ttl(
    etcd_server: TestEtcd,
) -> None:
    async with Etcd(etcd_server.access()) as etcd:
        async with etcd.lease(6) as lease:
            revision = await etcd.put("p", b"", lease=lease.id)
            # Another one, which nobody keeps alive, measures the time.
            await etcd.put("q", b"", lease=await etcd.grant(8))
            await gone(etcd, "q", revision)
            found = await etcd.get("p")
            assert found is not None
            assert found.lease == lease.id
            assert lease.alive
            assert not lease.lost.is_set()
        assert await etcd.get("p") is None
        assert not lease.alive


async def test_a_lease_that_somebody_revoked_is_lost(etcd_server: TestEtcd) -> None:
    async with Etcd(etcd_server.access()) as etcd, etcd.lease(3) as lease:
        await etcd.revoke(lease.id)
        await etcd.revoke(lease.id)
        await asyncio.wait_for(lease.lost.wait(), 60)
        assert not lease.alive


async def test_a_lease_that_cannot_be_renewed_is_lost_by_our_own_clock(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        async with Etcd(server.access(timeout=10)) as etcd, etcd.lease(2) as lease:
            assert lease.alive
            server.pause()
            await asyncio.wait_for(lease.lost.wait(), 60)
            assert not lease.alive
            server.resume()


async def test_a_lease_survives_a_restart_of_etcd(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        async with Etcd(server.access(timeout=30)) as etcd, etcd.lease(20) as lease:
            await etcd.put("p", b"", lease=lease.id)
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
            assert await etcd.get("p") is not None
            assert lease.alive
