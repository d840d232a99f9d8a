"""Journals of partitions on real etcd: what was done is found by the next owner, and no more."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from configurators.ownership.partition_log import DROPPED_AT_ONCE, KEPT, Journal, Mark
from configurators.store.documents import encode
from configurators.store.etcd.client import Etcd
from configurators.store.keys import journal_of, record_key
from configurators.store.locks import Lock, Locks
from configurators.store.model import Record
from configurators.streams.messages import Task
from sdn.fence import StaleEpoch
from tests.etcd import TestEtcd

NAME = "1.0/x"


def task(number: int, seq: int = 4, regions: bytes = b"r" * 24) -> Task:
    return Task(f"s1-{number}", seq, "h1", False, regions)


async def store(etcd: Etcd, number: int, state: str) -> None:
    record = Record(f"s1-{number}", "subscription", "h1", "s", "", {0: b""}, state, 1, 0.0)  # type: ignore[arg-type]
    await etcd.put(record_key(record.id), encode(record))


@asynccontextmanager
async def owners(etcd_server: TestEtcd) -> AsyncIterator[tuple[Etcd, Locks, Locks]]:
    async with (
        Etcd(etcd_server.access()) as etcd,
        Locks(etcd, "c1", 10) as first,
        Locks(etcd, "c2", 10) as second,
    ):
        yield etcd, first, second


async def locked(locks: Locks) -> Lock:
    lock = await locks.try_lock(NAME)
    assert lock
    return lock


async def test_the_next_owner_finds_what_was_done_since_it_last_looked(
    etcd_server: TestEtcd,
) -> None:
    async with owners(etcd_server) as (etcd, first, second):
        lock = await locked(first)
        journal = Journal(etcd, lock)
        await journal.write([task(1), task(2)])
        await first.release(lock, Mark(lock.epoch, 7).encode())
        other = await locked(second)
        assert other.mark
        assert Mark.decode(other.mark) == Mark(lock.epoch, 7)
        replica = Journal(etcd, other)
        found = await replica.read()
        assert (found.tasks, found.gap) == ([task(1), task(2)], False)
        await replica.write([task(1, 8, b""), task(3)])
        await second.release(other, None)
        again = Journal(etcd, await locked(first), journal.place)
        found = await again.read()
        assert (found.tasks, found.gap) == ([task(1, 8, b""), task(3)], False)
        assert not (await again.read()).tasks


async def test_of_each_id_the_last_task_counts(etcd_server: TestEtcd) -> None:
    async with owners(etcd_server) as (etcd, first, _):
        journal = Journal(etcd, await locked(first))
        for seq in (4, 5, 8):
            await journal.write([task(1, seq), task(seq)])
        found = await Journal(etcd, journal._lock).read()
        assert found.tasks == [task(4), task(5), task(1, 8), task(8)]


async def test_who_has_lost_the_lock_writes_nothing(etcd_server: TestEtcd) -> None:
    async with owners(etcd_server) as (etcd, first, second):
        lock = await locked(first)
        journal = Journal(etcd, lock)
        await journal.write([task(1)])
        await first.release(lock, None)
        await locked(second)
        with pytest.raises(StaleEpoch):
            await journal.write([task(2)])
        assert len((await etcd.range(journal_of(NAME))).items) == 1


async def test_large_slices_are_written_in_parts(etcd_server: TestEtcd) -> None:
    async with owners(etcd_server) as (etcd, first, _):
        journal = Journal(etcd, await locked(first))
        large = [task(n, regions=b"r" * 24 * 3000) for n in range(20)]
        await journal.write(large)
        assert len((await etcd.range(journal_of(NAME))).items) > 1
        assert (await Journal(etcd, journal._lock).read()).tasks == large


async def test_what_records_say_themselves_is_dropped(etcd_server: TestEtcd) -> None:
    """All but what is open, or said by entries that stay; who was away has to begin anew."""

    async with owners(etcd_server) as (etcd, first, _):
        lock = await locked(first)
        journal = Journal(etcd, lock)
        away = journal.place
        await journal.write([task(1), task(2), task(3), task(4)])
        await store(etcd, 1, "active")
        await store(etcd, 2, "pending")  # still open
        await store(etcd, 4, "removing")  # open, but named again by an entry that stays
        early = journal.place
        count = 1
        while not journal.long:
            await journal.write([task(1000 + count)])
            count += 1
        await journal.write([task(4, 8, b"")])
        assert count == KEPT + DROPPED_AT_ONCE
        at = journal.place
        await journal.cut()
        assert not journal.long
        items = (await etcd.range(journal_of(NAME))).items
        assert len(items) == count + 1 - DROPPED_AT_ONCE + 1  # and what is said once more
        found = {one.id: one for one in (await Journal(etcd, lock).read()).tasks}
        assert found["s1-2"] == task(2)
        assert found["s1-4"] == task(4, 8, b"")
        assert not found.keys() & {"s1-1", "s1-3", "s1-1001"}
        assert (await Journal(etcd, lock, away).read()).gap
        assert (await Journal(etcd, lock, early).read()).gap
        later = await Journal(etcd, lock, at).read()
        assert (later.tasks, later.gap) == ([task(2)], False)
