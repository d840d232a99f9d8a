"""Logs of partitions on real etcd: the next owner finds what was done, and no more."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from configurators.ownership.log_commits import LogCommits
from configurators.ownership.partition_log import CleanMark, LogOptions, PartitionLog
from configurators.store.documents import encode
from configurators.store.etcd.client import Etcd
from configurators.store.keys import journal_of, record_key
from configurators.store.locks import Lock, Locks
from configurators.store.model import Record
from configurators.streams.messages import Task
from sdn.fence import StaleEpoch
from tests.etcd import TestEtcd

NAME = "1.0/x"
OPTIONS = LogOptions(kept=5, dropped_at_once=8)


def opened(etcd: Etcd, lock: Lock, position: str = "") -> PartitionLog:
    return PartitionLog(etcd, LogCommits(etcd), lock, OPTIONS, position)


def task(number: int, seq: int = 4, regions: bytes = b"r" * 24) -> Task:
    return Task(f"s1-{number:016x}", seq, "h1", False, regions)


async def store(etcd: Etcd, number: int, state: str) -> None:
    record = Record(f"s1-{number:016x}", "subscription", "h1", "s", "", {0: b""}, state, 1, 0.0)  # type: ignore[arg-type]
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


async def test_the_next_owner_reads_what_was_done_since_its_position(
    etcd_server: TestEtcd,
) -> None:
    async with owners(etcd_server) as (etcd, first, second):
        lock = await locked(first)
        written = opened(etcd, lock)
        await written.write([task(1), task(2)])
        await first.release(lock, CleanMark(lock.epoch, 7).encode())
        other = await locked(second)
        assert other.mark
        assert CleanMark.decode(other.mark) == CleanMark(lock.epoch, 7)
        replica = opened(etcd, other)
        found = await replica.read()
        assert (found.tasks, found.gap) == ([task(1), task(2)], False)
        await replica.write([task(1, 8, b""), task(3)])
        await second.release(other, None)
        again = opened(etcd, await locked(first), written.position)
        found = await again.read()
        assert (found.tasks, found.gap) == ([task(1, 8, b""), task(3)], False)
        assert not (await again.read()).tasks


async def test_the_log_does_not_keep_the_traces_of_requests(etcd_server: TestEtcd) -> None:
    async with owners(etcd_server) as (etcd, first, _):
        written = opened(etcd, await locked(first))
        await written.write([replace(task(1), trace=b"t" * 25), task(2)])
        assert (await opened(etcd, await locked(first)).read()).tasks == [task(1), task(2)]


async def test_only_the_last_task_of_each_id_is_read(etcd_server: TestEtcd) -> None:
    async with owners(etcd_server) as (etcd, first, _):
        lock = await locked(first)
        written = opened(etcd, lock)
        for seq in (4, 5, 8):
            await written.write([task(1, seq), task(seq)])
        found = await opened(etcd, lock).read()
        assert found.tasks == [task(4), task(5), task(1, 8), task(8)]


async def test_a_former_holder_of_the_lock_cannot_write(etcd_server: TestEtcd) -> None:
    async with owners(etcd_server) as (etcd, first, second):
        lock = await locked(first)
        written = opened(etcd, lock)
        await written.write([task(1)])
        await first.release(lock, None)
        await locked(second)
        with pytest.raises(StaleEpoch):
            await written.write([task(2)])
        assert len((await etcd.range(journal_of(NAME))).items) == 1


async def test_large_slices_are_written_in_parts(etcd_server: TestEtcd) -> None:
    async with owners(etcd_server) as (etcd, first, _):
        lock = await locked(first)
        written = opened(etcd, lock)
        large = [task(n, regions=b"r" * 24 * 3000) for n in range(20)]
        await written.write(large)
        assert len((await etcd.range(journal_of(NAME))).items) > 1
        assert (await opened(etcd, lock).read()).tasks == large


async def test_a_cut_drops_tasks_of_settled_records_only(etcd_server: TestEtcd) -> None:
    """Open records keep their last task; a replica older than the cut finds a gap."""

    async with owners(etcd_server) as (etcd, first, _):
        lock = await locked(first)
        written = opened(etcd, lock)
        away = written.position
        await written.write([task(1), task(2), task(3), task(4)])
        await store(etcd, 1, "active")
        await store(etcd, 2, "pending")  # still open
        await store(etcd, 4, "removing")  # open, but named again by an entry that stays
        early = written.position
        count = 1
        while not written.needs_cut:
            await written.write([task(1000 + count)])
            count += 1
        await written.write([task(4, 8, b"")])
        assert count == OPTIONS.kept + OPTIONS.dropped_at_once
        at = written.position
        await written.cut()
        assert not written.needs_cut
        items = (await etcd.range(journal_of(NAME))).items
        assert len(items) == count + 1 - OPTIONS.dropped_at_once + 1  # and what is said once more
        found = {one.id: one for one in (await opened(etcd, lock).read()).tasks}
        assert found[task(2).id] == task(2)
        assert found[task(4).id] == task(4, 8, b"")
        assert not found.keys() & {task(n).id for n in (1, 3, 1001)}
        assert (await opened(etcd, lock, away).read()).gap
        assert (await opened(etcd, lock, early).read()).gap
        later = await opened(etcd, lock, at).read()
        assert (later.tasks, later.gap) == ([task(2)], False)
