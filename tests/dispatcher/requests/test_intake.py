"""The intake: limits hold for the whole dispatcher."""

import asyncio

import pytest

from tests.dispatcher.support import TIMEOUT, problem, specs, world
from tests.etcd import TestEtcd
from tests.support import until


async def test_operations_beyond_the_queue_are_refused_before_anything_is_stored(
    etcd_server: TestEtcd,
) -> None:
    async with (
        world(etcd_server.access()) as w,
        w.dispatcher(window=10, window_per_host=5, queue=30, queue_per_host=20) as d,
    ):
        w.hold()
        flood = asyncio.create_task(d.begin("subscription", specs(100), wait=TIMEOUT))

        async def five() -> bool:
            return len((await d.records("subscription")).items) == 5

        await until(five)
        assert d.queue() == (15, 5)
        quiet = asyncio.create_task(d.begin("subscription", specs(2, "h2"), wait=TIMEOUT))

        async def begun() -> bool:
            return len((await d.records("subscription", host="h2")).items) == 2

        await until(begun)  # though the other host has many waiting
        await w.release()
        assert {answer.status for answer in await quiet} == {201}
        answers = await flood
        assert [answer.status for answer in answers] == [201] * 20 + [429] * 80
        assert problem(answers[-1]).retry_after
        assert d.queue() == (0, 0)
        assert len((await w.etcd.range("records/")).items) == 22


async def test_rates_are_limited_per_host(etcd_server: TestEtcd) -> None:
    async with (
        world(etcd_server.access()) as w,
        w.dispatcher(rate_per_host=0.01, burst_s=300) as d,
    ):
        answers = await d.begin("subscription", specs(5), wait=TIMEOUT)
        assert [answer.status for answer in answers] == [201] * 3 + [429] * 2
        assert problem(answers[-1]).retry_after == pytest.approx(100, abs=10)
        [other] = await d.begin("subscription", specs(1, "h2"), wait=TIMEOUT)
        assert other.status == 201
