"""The time that filters take: each host has its share of it, and no more.

How long a filter takes is made up: on a busy machine, it could be any time.
"""

import asyncio
from typing import Any

import pytest

from configurators.environment import Clock, Environment
from dispatcher.calls import RecordSpec
from dispatcher.errors import TooLarge, TooManyRequests
from tests.dispatcher.requests.test_routing import ticking
from tests.dispatcher.support import TIMEOUT, problem, specs, world
from tests.etcd import TestEtcd

ONCE = 1e-6  # ms per second: what was used up does not come back
BURST = 15e6  # seconds: there are 15 ms at first
PER_HOST: dict[str, Any] = {"work_per_host": ONCE, "work": None, "burst_s": BURST}


def taking(seconds: float) -> Environment:
    """An environment in which each filter takes so long, or twice that if it is refused."""
    return Environment(clock=Clock(cpu=ticking(seconds)))


def dear(count: int, host: str = "h1") -> list[RecordSpec]:
    """Subscriptions whose filters are refused, for the work that they take, each another one."""
    return [
        RecordSpec(host, "stocks", [{"price": i + n, "volume": i} for i in range(180)])
        for n in range(count)
    ]


@pytest.mark.parametrize("key", [None, "a-key"])
async def test_a_host_that_has_used_up_its_time_is_refused_before_any_work(
    etcd_server: TestEtcd, key: str | None
) -> None:
    async with world(etcd_server.access()) as w, w.dispatcher(taking(0.01), **PER_HOST) as d:
        [first] = await d.begin("subscription", dear(1), wait=TIMEOUT)
        assert first.status == 422
        if key is None:
            answers = await d.begin("subscription", dear(20), wait=TIMEOUT)
            assert {answer.status for answer in answers} == {429}
            assert problem(answers[0]).retry_after
        else:
            with pytest.raises(TooManyRequests):
                await d.begin("subscription", dear(20), wait=TIMEOUT, key=key)
        # Its own simple filters wait, too; those of others do not, and ending is always possible.
        [mine] = await d.begin("subscription", specs(1), wait=TIMEOUT)
        assert mine.status == 429
        [other] = await d.begin("subscription", specs(1, "h2"), wait=TIMEOUT)
        assert other.status == 201
        assert other.record
        with pytest.raises(TooManyRequests):
            await d.explain("stocks", "price < 5", "h1")
        await d.explain("stocks", "price < 5", "h2")
        [ended] = await d.end("subscription", [other.record.id], wait=TIMEOUT)
        assert ended.status == 200
        assert (await w.etcd.range("keys/")).items == []


async def test_a_large_call_with_a_key_may_take_more_time_than_is_left(
    etcd_server: TestEtcd,
) -> None:
    async with world(etcd_server.access()) as w, w.dispatcher(taking(0.01), **PER_HOST) as d:
        costly = [
            RecordSpec("h1", "stocks", {"volume": {"in": list(range(n, 4000, 3))}})
            for n in range(8)
        ]
        answers = await d.begin("subscription", costly, wait=TIMEOUT, key="a-key")
        assert {answer.status for answer in answers} == {201}
        again = await d.begin("subscription", costly, wait=TIMEOUT, key="a-key")
        assert {answer.status for answer in again} <= {200, 201}
        with pytest.raises(TooManyRequests):
            await d.begin("subscription", specs(1), wait=TIMEOUT, key="another-key")


async def test_only_one_call_with_a_key_runs_into_debt_at_a_time(etcd_server: TestEtcd) -> None:
    async with world(etcd_server.access()) as w, w.dispatcher(taking(0.01), **PER_HOST) as d:
        found = await asyncio.gather(
            *(
                d.begin("subscription", dear(20 + n)[n:], wait=TIMEOUT, key=f"key-{n}")
                for n in range(4)
            ),
            return_exceptions=True,
        )
        assert sum(isinstance(each, TooManyRequests) for each in found) == 3


async def test_all_hosts_together_have_a_limit_of_time(etcd_server: TestEtcd) -> None:
    together: dict[str, Any] = {"work_per_host": None, "work": ONCE, "burst_s": BURST}
    async with world(etcd_server.access()) as w, w.dispatcher(taking(0.01), **together) as d:
        await d.begin("subscription", dear(1), wait=TIMEOUT)
        await d.begin("subscription", dear(2, "h2")[1:], wait=TIMEOUT)
        for host in ("h1", "h2"):
            [answer] = await d.begin("subscription", specs(1, host), wait=TIMEOUT)
            assert answer.status == 429
            assert "limits.work" in problem(answer).detail
        # A host that has not used any of it is not refused for what others use.
        [other] = await d.begin("subscription", specs(1, "h3"), wait=TIMEOUT)
        assert other.status == 201


async def test_simple_filters_do_not_count_as_work(etcd_server: TestEtcd) -> None:
    both: dict[str, Any] = {"work_per_host": ONCE, "work": ONCE, "burst_s": BURST}
    async with world(etcd_server.access()) as w, w.dispatcher(taking(0.0015), **both) as d:
        answers = await d.begin("subscription", specs(150), wait=TIMEOUT)
        assert {answer.status for answer in answers} == {201}


async def test_other_work_runs_while_a_batch_is_taken_in(etcd_server: TestEtcd) -> None:
    async with world(etcd_server.access()) as w, w.dispatcher(work_per_host=None, work=None) as d:
        turns = 0

        async def count_turns() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        counting = asyncio.create_task(count_turns())
        for key in (None, "a-key"):
            turns = 0
            answers = await d.begin("subscription", dear(20), wait=TIMEOUT, key=key)
            assert {answer.status for answer in answers} == {422}
            assert turns >= (5 if key is None else 1)  # the second time, refusals are remembered
        counting.cancel()


async def test_explaining_is_limited_as_subscribing_is(etcd_server: TestEtcd) -> None:
    async with (
        world(etcd_server.access()) as w,
        w.dispatcher(rate_per_host=0.01, burst_s=300, max_filter=2_000) as d,
    ):
        with pytest.raises(TooLarge):
            await d.explain("stocks", {"volume": {"in": list(range(2_000))}}, who="h1")
        for _ in range(2):
            await d.explain("stocks", "price < 5", who="h1")
        with pytest.raises(TooManyRequests):
            await d.explain("stocks", "price < 5", who="h1")
        await d.explain("stocks", "price < 5", "h2", who="operator")


async def test_only_some_computations_of_flows_wait(etcd_server: TestEtcd) -> None:
    async with world(etcd_server.access()) as w, w.dispatcher() as d:
        found = await asyncio.gather(
            *(d.explain("stocks", "price < 5", "h1") for _ in range(20)), return_exceptions=True
        )
        refused = [each for each in found if isinstance(each, BaseException)]
        assert len(refused) == 12
        assert all(isinstance(each, TooManyRequests) for each in refused)
        await d.explain("stocks", "price < 5", "h1")
