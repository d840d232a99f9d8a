"""Leadership on real etcd: one leader at a time, and no effect of what an earlier one writes."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from configurators.store.etcd.client import (
    Compare,
    Etcd,
    Op,
    Put,
    StoreUnavailable,
    TxnResult,
)
from configurators.store.keys import LEADER
from dzflow.errors import DzflowError
from monitor.leader import Leadership, NotLeading
from tests.etcd import TestEtcd
from tests.etcd import running as etcd_of_its_own
from tests.monitor.candidate import ACTED, candidate
from tests.support import WAIT, until

QUICK = 2  # seconds


@asynccontextmanager
async def competing(*candidates: Leadership) -> AsyncIterator[list["asyncio.Task[None]"]]:
    """Have candidates compete until the block ends."""
    tasks = [asyncio.create_task(each.run()) for each in candidates]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def gained(leadership: Leadership) -> None:
    async with asyncio.timeout(WAIT):
        await leadership.wait_gained()


async def lost(leadership: Leadership) -> None:
    async with asyncio.timeout(WAIT):
        await leadership.wait_lost()


async def write(etcd: Etcd, leadership: Leadership) -> bool:
    """Whether a fenced write succeeds."""
    return (await etcd.transact([leadership.fence()], [Put(ACTED, b"")])).succeeded


async def can_write(etcd: Etcd, leadership: Leadership) -> bool:
    """The same for a lease that is so short that it may end while the machine is busy."""
    try:
        return await write(etcd, leadership)
    except NotLeading:
        return False


async def test_the_first_candidate_leads_and_the_others_know_it(etcd_server: TestEtcd) -> None:
    async with Etcd(etcd_server.access()) as etcd:
        first, second = Leadership(etcd, "d1"), Leadership(etcd, "d2")
        async with competing(first):
            await gained(first)
            assert first.leader == "d1"
            assert await write(etcd, first)
            async with competing(second):
                await until(lambda: second.leader == "d1")
                assert first.leads
                assert not second.leads


async def test_a_process_that_does_not_lead_has_no_fence(etcd_server: TestEtcd) -> None:
    async with Etcd(etcd_server.access()) as etcd:
        first, second = Leadership(etcd, "d1"), Leadership(etcd, "d2")
        with pytest.raises(NotLeading, match="d2 does not lead"):
            second.fence()
        async with competing(first):
            await gained(first)
            async with competing(second):
                await until(lambda: second.leader)
                with pytest.raises(DzflowError, match="d1 does: ask there"):
                    second.fence()


async def test_of_many_candidates_exactly_one_leads(etcd_server: TestEtcd) -> None:
    async with Etcd(etcd_server.access()) as etcd:
        many = [Leadership(etcd, f"d{n}") for n in range(8)]
        async with competing(*many) as tasks:
            for left in range(8, 0, -1):
                await until(lambda: any(each.leads for each in many))
                [number] = [n for n, each in enumerate(many) if each.leads]
                name = f"d{number}"
                others = [n for n, task in enumerate(tasks) if not task.done()]
                await until(lambda: all(many[n].leader == name for n in others))  # noqa: B023
                assert len(others) == left
                tasks[number].cancel()
                await asyncio.gather(tasks[number], return_exceptions=True)
                assert not many[number].leads


async def test_a_process_that_ends_hands_over_at_once(etcd_server: TestEtcd) -> None:
    async with Etcd(etcd_server.access()) as etcd:
        # With such a lease, the test would fail if the second one had to wait for its end.
        first, second = Leadership(etcd, "d1", ttl=600), Leadership(etcd, "d2", ttl=600)
        async with competing(first):
            await gained(first)
            fence = first.fence()
        await lost(first)
        async with competing(second):
            await gained(second)
            assert not (await etcd.transact([fence], [])).succeeded
            assert await write(etcd, second)


async def test_a_leader_whose_lease_is_lost_leads_no_more_and_competes_again(
    etcd_server: TestEtcd,
) -> None:
    async with Etcd(etcd_server.access()) as etcd:
        leadership = Leadership(etcd, "d1")
        async with competing(leadership):
            await gained(leadership)
            fence = leadership.fence()
            stored = await etcd.get(LEADER)
            assert stored
            await etcd.revoke(stored.lease)
            await until(lambda: leadership.leads and leadership.fence() != fence)
            assert not (await etcd.transact([fence], [])).succeeded
            assert await write(etcd, leadership)


async def test_a_leader_whose_key_was_deleted_by_hand_starts_a_new_term(
    etcd_server: TestEtcd,
) -> None:
    async with Etcd(etcd_server.access()) as etcd:
        leadership = Leadership(etcd, "d1")
        async with competing(leadership):
            await gained(leadership)
            fence = leadership.fence()
            await etcd.delete(LEADER)
            await until(lambda: leadership.leads and leadership.fence() != fence)
            assert await write(etcd, leadership)


async def test_a_key_that_another_process_has_put_by_force_ends_the_term(
    etcd_server: TestEtcd,
) -> None:
    async with Etcd(etcd_server.access()) as etcd:
        leadership = Leadership(etcd, "d1")
        async with competing(leadership):
            await gained(leadership)
            await etcd.put(LEADER, b"d9")
            await lost(leadership)
            assert leadership.leader == "d9"
            await etcd.delete(LEADER)
            await gained(leadership)


class LosesAnswers(Etcd):
    """A client that does not hear of its first write."""

    lost = 0

    async def transact(
        self, compares: Sequence[Compare], then: Sequence[Op], otherwise: Sequence[Op] = ()
    ) -> TxnResult:
        result = await super().transact(compares, then, otherwise)
        if not self.lost:
            self.lost += 1
            raise StoreUnavailable("the answer was lost", maybe_applied=True)
        return result


async def test_a_process_leads_even_if_the_answer_to_its_write_is_lost(
    etcd_server: TestEtcd,
) -> None:
    async with LosesAnswers(etcd_server.access()) as etcd:
        leadership = Leadership(etcd, "d1", ttl=600)
        async with competing(leadership):
            await gained(leadership)
            assert etcd.lost
            assert await write(etcd, leadership)


async def test_the_writes_of_a_leader_that_was_paused_have_no_effect(etcd_server: TestEtcd) -> None:
    access = etcd_server.access()
    async with Etcd(access) as etcd, asyncio.timeout(2 * WAIT):
        with candidate(access, "d1", QUICK) as child:
            assert await child.read() == "leads"
            successor = Leadership(etcd, "d2", ttl=10)
            async with competing(successor):
                child.pause()
                child.tell_to_act()  # it does so as soon as it wakes up
                await gained(successor)
                assert await write(etcd, successor)
                child.resume()
                assert {await child.read(), await child.read()} == {"lost", "refused"}
                stored = await etcd.get(ACTED)
                assert stored
                assert stored.value == b""
                assert successor.leads


async def test_another_process_leads_after_the_leader_was_killed(etcd_server: TestEtcd) -> None:
    access = etcd_server.access()
    async with Etcd(access) as etcd, asyncio.timeout(2 * WAIT):
        with candidate(access, "d1", 6) as child:
            assert await child.read() == "leads"
            child.tell_to_act()
            assert await child.read() == "written"
            successor = Leadership(etcd, "d2", QUICK)
            async with competing(successor):
                await until(lambda: successor.leader == "d1")
                child.kill()
                await gained(successor)


async def test_a_leader_that_etcd_does_not_answer_leads_no_more_by_its_own_clock(
    tmp_path: Path,
) -> None:
    with etcd_of_its_own(tmp_path) as server:
        async with Etcd(server.access(timeout=10)) as etcd:
            leadership = Leadership(etcd, "d1", QUICK)
            async with competing(leadership):
                await gained(leadership)
                server.pause()
                await until(lambda: not leadership.leads)
                await lost(leadership)
                server.resume()
                await until(lambda: can_write(etcd, leadership))


async def test_one_of_two_leads_after_etcd_was_restarted(tmp_path: Path) -> None:
    with etcd_of_its_own(tmp_path) as server:
        access = server.access(timeout=5)
        async with Etcd(access) as one, Etcd(access) as two:
            both = [Leadership(one, "d1", QUICK), Leadership(two, "d2", QUICK)]
            async with competing(*both):
                await until(lambda: any(each.leads for each in both))
                await asyncio.to_thread(server.kill)
                await until(lambda: not any(each.leads for each in both))
                await asyncio.to_thread(server.start)

                async def one_leads() -> bool:
                    leaders = [each for each in both if each.leads]
                    assert len(leaders) <= 1
                    return bool(leaders) and await can_write(one, leaders[0])

                await until(one_leads)
