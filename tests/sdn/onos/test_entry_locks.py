"""Work that touches the same entry goes in the order it came; other work does not wait."""

import asyncio

import pytest

from sdn.onos.entry_locks import EntryLocks, TooManyWaiting


class Worker:
    """Takes a turn, and keeps it until it is told to go."""

    def __init__(self, locks: EntryLocks, keys: set[str] | None) -> None:
        self.works = asyncio.Event()
        self.go = asyncio.Event()
        self.task = asyncio.create_task(self._work(locks, keys))

    async def _work(self, locks: EntryLocks, keys: set[str] | None) -> None:
        async with locks.hold(keys):
            self.works.set()
            await self.go.wait()

    async def finish(self) -> None:
        self.go.set()
        await self.task


async def settle() -> None:
    """Let everything happen that can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_the_same_entry_is_worked_on_in_order_and_others_at_once() -> None:
    locks = EntryLocks(10)
    one, two, other = Worker(locks, {"a"}), Worker(locks, {"a", "b"}), Worker(locks, {"c"})
    three = Worker(locks, {"b"})
    await settle()
    assert [w.works.is_set() for w in (one, two, other, three)] == [True, False, True, False]
    await one.finish()
    await settle()
    assert [w.works.is_set() for w in (two, three)] == [True, False]
    for worker in (two, three, other):
        await worker.finish()


async def test_work_on_everything_waits_for_all_and_all_wait_for_it() -> None:
    locks = EntryLocks(10)
    one, everything, late = Worker(locks, {"a"}), Worker(locks, None), Worker(locks, {"b"})
    await settle()
    assert [w.works.is_set() for w in (one, everything, late)] == [True, False, False]
    await one.finish()
    await settle()
    assert [w.works.is_set() for w in (everything, late)] == [True, False]
    await everything.finish()
    await late.finish()


async def test_who_gives_up_waiting_lets_nobody_overtake() -> None:
    locks = EntryLocks(10)
    one, two, three = (Worker(locks, {"a"}) for _ in range(3))
    await settle()
    two.task.cancel()
    await settle()
    assert not three.works.is_set()
    await one.finish()
    await three.finish()
    with pytest.raises(asyncio.CancelledError):
        await two.task


async def test_no_more_than_so_many_may_wait() -> None:
    locks = EntryLocks(2)
    workers = [Worker(locks, {"a"}), Worker(locks, {"a"})]
    await settle()
    with pytest.raises(TooManyWaiting):
        async with locks.hold({"z"}):
            pass
    for worker in workers:
        await worker.finish()
    async with locks.hold({"z"}):
        pass
