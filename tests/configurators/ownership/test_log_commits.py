"""Writes of several logs share transactions, and the loss of one lock concerns no other."""

import asyncio

from configurators.ownership.log_commits import LogCommits
from configurators.store.etcd.client import Etcd, Put
from configurators.store.locks import Lock, Locks
from tests.etcd import TestEtcd

NAMES = [f"1.0/{n}" for n in range(3)]


async def lock_all(locks: Locks, names: list[str]) -> list[Lock]:
    found = [await locks.try_lock(name) for name in names]
    assert all(found)
    return [lock for lock in found if lock]


async def test_concurrent_writes_share_a_transaction(etcd_server: TestEtcd) -> None:
    async with Etcd(etcd_server.access()) as etcd, Locks(etcd, "c1", 10) as locks:
        held = await lock_all(locks, NAMES)
        commits = LogCommits(etcd)
        writes = (commits.commit(lock, [Put(f"log/{lock.partition}", b"x")]) for lock in held)
        assert await asyncio.gather(*writes) == [True, True, True]
        items = (await etcd.range("log/")).items
        assert len(items) == 3
        assert len({item.revision for item in items}) == 1


async def test_a_lost_lock_holds_no_other_partition_back(etcd_server: TestEtcd) -> None:
    async with Etcd(etcd_server.access()) as etcd, Locks(etcd, "c1", 10) as locks:
        held = await lock_all(locks, NAMES)
        await etcd.delete(held[1].key)
        commits = LogCommits(etcd)
        writes = (commits.commit(lock, [Put(f"log/{lock.partition}", b"x")]) for lock in held)
        assert await asyncio.gather(*writes) == [True, False, True]
        assert [item.key for item in (await etcd.range("log/")).items] == [
            f"log/{NAMES[0]}",
            f"log/{NAMES[2]}",
        ]


async def test_writes_are_divided_into_transactions_that_etcd_takes(etcd_server: TestEtcd) -> None:
    async with Etcd(etcd_server.access()) as etcd, Locks(etcd, "c1", 10) as locks:
        names = [f"1.0/{n:03}" for n in range(8)]
        held = await lock_all(locks, names)
        commits = LogCommits(etcd)
        sizes = [400_000] * 4 + [1_000] * 4
        writes = (
            commits.commit(
                lock, [Put(f"log/{lock.partition}/{n}", bytes(size // 30)) for n in range(30)]
            )
            for lock, size in zip(held, sizes, strict=True)
        )
        assert all(await asyncio.gather(*writes))
        assert await etcd.count("log/") == 8 * 30
