"""Locks on real etcd: one owner at a time, in turn, and none without a sign of life."""

import asyncio
from contextlib import AsyncExitStack

from configurators.store.etcd.client import Etcd, Put
from configurators.store.keys import CLEAN, locks_of
from configurators.store.locks import Lock, Locks
from tests.etcd import TestEtcd
from tests.support import WAIT, until

NAME = "1.0/x"


async def _locks(stack: AsyncExitStack, etcd: Etcd, count: int) -> list[Locks]:
    return [await stack.enter_async_context(Locks(etcd, f"c{n + 1}", 10)) for n in range(count)]


def _always() -> bool:
    return True


async def _waits(etcd: Etcd, count: int) -> None:
    """Wait until so many processes have the lock or queue for it."""

    async def queued() -> bool:
        return len((await etcd.range(locks_of(NAME))).items) == count

    await until(queued)


async def _known(locks: Locks, count: int) -> None:
    """Wait until a table has so many claims."""
    await until(lambda: len(locks.table.claims(NAME)) == count)


async def test_only_one_of_many_has_a_lock(etcd_server: TestEtcd) -> None:
    async with Etcd(etcd_server.access()) as etcd, AsyncExitStack() as stack:
        all_locks = await _locks(stack, etcd, 5)
        inside: set[int] = set()
        epochs: list[int] = []

        async def work(number: int, locks: Locks) -> None:
            for turn in range(6):
                lock = await locks.try_lock(NAME) if turn % 2 else None
                lock = lock or await locks.wait(NAME, _always)
                assert lock
                inside.add(number)
                assert inside == {number}
                await etcd.transact([lock.holds], [Put("owner", str(number).encode())])
                assert inside == {number}
                stored = await etcd.get("owner")
                assert stored
                assert stored.value == str(number).encode()
                inside.discard(number)
                epochs.append(lock.epoch)
                await locks.release(lock, b"")

        async with asyncio.timeout(WAIT):
            await asyncio.gather(*(work(n, locks) for n, locks in enumerate(all_locks)))
        assert epochs == sorted(set(epochs))
        assert not (await etcd.range(locks_of(NAME))).items


async def test_a_try_that_fails_leaves_nothing_behind(etcd_server: TestEtcd) -> None:
    async with Etcd(etcd_server.access()) as etcd, AsyncExitStack() as stack:
        first, second = await _locks(stack, etcd, 2)
        lock = await first.try_lock(NAME)
        assert lock
        assert await second.try_lock(NAME) is None
        [key] = (await etcd.range(locks_of(NAME))).items
        assert (key.key, key.created) == (lock.key, lock.epoch)
        other = await second.try_lock("1.0/y")
        assert other
        assert other.epoch > lock.epoch


async def test_locks_are_given_in_the_order_of_the_queue(etcd_server: TestEtcd) -> None:
    async with Etcd(etcd_server.access()) as etcd, AsyncExitStack() as stack:
        first, *others, hasty = await _locks(stack, etcd, 5)
        lock = await first.try_lock(NAME)
        assert lock
        order: list[Locks] = []

        async def wait(locks: Locks) -> None:
            mine = await locks.wait(NAME, _always)
            assert mine
            order.append(locks)
            await locks.release(mine, None)

        tasks = []
        for count, locks in enumerate(others, 2):
            tasks.append(asyncio.create_task(wait(locks)))
            await _waits(etcd, count)
        await _known(first, 4)
        assert [claim.who for claim in first.table.claims(NAME)] == ["c1", "c2", "c3", "c4"]
        await first.release(lock, None)
        # Somebody who only tries does not get in between.
        assert order or await hasty.try_lock(NAME) is None
        async with asyncio.timeout(WAIT):
            await asyncio.gather(*tasks)
        assert order == others


async def test_a_process_that_no_longer_wants_the_lock_leaves_the_queue(
    etcd_server: TestEtcd,
) -> None:
    async with Etcd(etcd_server.access()) as etcd, AsyncExitStack() as stack:
        first, second, third = await _locks(stack, etcd, 3)
        lock = await first.try_lock(NAME)
        assert lock
        wanted = [True]
        unsure = asyncio.create_task(second.wait(NAME, lambda: bool(wanted)))
        await _waits(etcd, 2)
        cancelled = asyncio.create_task(third.wait(NAME, _always))
        await _waits(etcd, 3)
        wanted.clear()
        second.look_again()
        async with asyncio.timeout(WAIT):
            assert await unsure is None
            cancelled.cancel()
            await asyncio.gather(cancelled, return_exceptions=True)
        [key] = (await etcd.range(locks_of(NAME))).items
        assert key.key == lock.key


async def test_a_mark_tells_only_the_next_owner_of_a_clean_release(etcd_server: TestEtcd) -> None:
    async with Etcd(etcd_server.access()) as etcd, AsyncExitStack() as stack:
        first, second = await _locks(stack, etcd, 2)
        lock = await first.try_lock(NAME)
        assert lock
        assert lock.mark is None
        await first.release(lock, b"tidy")
        lock = await second.try_lock(NAME)
        assert lock
        assert lock.mark == b"tidy"
        assert await etcd.get(CLEAN + NAME) is None
        waiting = asyncio.create_task(first.wait(NAME, _always))
        await _waits(etcd, 2)
        await second.release(lock, b"again")
        async with asyncio.timeout(WAIT):
            found = await waiting
        assert found
        assert found.mark == b"again"
        await first.release(found, None)
        lock = await second.try_lock(NAME)
        assert lock
        assert lock.mark is None


async def test_a_stopped_process_loses_its_lock(etcd_server: TestEtcd) -> None:
    """As if its process were paused: nobody renews its lease, and it does not know."""

    async with Etcd(etcd_server.access()) as etcd, AsyncExitStack() as stack:
        paused = await stack.enter_async_context(Locks(etcd, "c1", 2))
        awake = await stack.enter_async_context(Locks(etcd, "c2", 20))
        lock = await paused.try_lock(NAME)
        assert lock
        [stored] = (await etcd.range(locks_of(NAME))).items
        [keeping] = [t for t in asyncio.all_tasks() if t.get_name() == f"lease-{stored.lease:x}"]
        keeping.cancel()  # no sign of life from now on
        async with asyncio.timeout(WAIT):
            taken = await awake.wait(NAME, _always)
        assert taken
        assert taken.epoch > lock.epoch
        assert taken.mark is None
        assert not lock.alive
        stale = await etcd.transact([lock.holds], [Put("owner", b"the paused one")])
        assert not stale.succeeded
        await paused.release(lock, b"all in order")
        assert await etcd.get(CLEAN + NAME) is None
        assert (await etcd.transact([taken.holds], [Put("owner", b"awake")])).succeeded


async def test_a_process_without_a_lease_does_not_retry_at_once(etcd_server: TestEtcd) -> None:
    async with Etcd(etcd_server.access()) as etcd, AsyncExitStack() as stack:
        first, second = await _locks(stack, etcd, 2)
        assert await first.try_lock(NAME)
        assert await second.try_lock("1.0/y")
        [claim] = (await etcd.range(locks_of("1.0/y"))).items
        await etcd.revoke(claim.lease)
        began = asyncio.get_running_loop().time()
        async with asyncio.timeout(WAIT):
            assert await second.wait(NAME, _always) is None
        assert asyncio.get_running_loop().time() - began > 0.15


async def test_a_restarted_process_deletes_the_claims_of_the_one_before(
    etcd_server: TestEtcd,
) -> None:
    async with Etcd(etcd_server.access()) as etcd, AsyncExitStack() as stack:
        (before, other) = await _locks(stack, etcd, 2)
        lock = await before.try_lock(NAME)
        kept = await other.try_lock("1.0/y")
        assert lock
        assert kept
        restarted = await stack.enter_async_context(Locks(etcd, "c1", 10))
        async with asyncio.timeout(WAIT):
            again = await other.wait(NAME, _always)
        assert again
        assert again.mark is None  # it was not left in order
        assert again.epoch > lock.epoch
        assert not (await etcd.transact([lock.holds], [Put("owner", b"c1")])).succeeded
        assert (await etcd.transact([kept.holds], [Put("owner", b"c2")])).succeeded
        assert await restarted.try_lock("1.0/y") is None


async def test_all_locks_are_lost_with_the_lease_and_another_lease_follows(
    etcd_server: TestEtcd,
) -> None:
    async with Etcd(etcd_server.access()) as etcd:
        told = asyncio.Event()
        async with Locks(etcd, "c1", 4, on_lost=told.set) as locks:
            lock = await locks.try_lock(NAME)
            assert lock
            [key] = (await etcd.range(locks_of(NAME))).items
            await etcd.revoke(key.lease)
            async with asyncio.timeout(WAIT):
                await told.wait()
                assert not lock.alive
                again: Lock | None = None
                while again is None:
                    again = await locks.try_lock(NAME)
            assert again.epoch > lock.epoch
            assert again.key != lock.key
