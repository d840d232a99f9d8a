"""A host that has filled its queue does not keep another one's request from being begun."""

import asyncio

import pytest

from dispatcher.calls import Answer, RecordSpec
from tests.dispatcher.support import SCHEMA, TIMEOUT, problem
from tests.dispatcher.whole import Mode, whole
from tests.etcd import TestEtcd

WINDOW, QUEUE, FLOOD = 128, 1_000, 1_500
TURN = 16  # operations of one host, then it is another one's turn


def begun(answers: list[Answer]) -> list[float]:
    """When each of those that were not refused was begun."""
    return [answer.record.created for answer in answers if answer.record]


@pytest.mark.parametrize("mode", ["sna", "sea"])
async def test_a_flood_is_begun_between_another_hosts_requests(
    etcd_server: TestEtcd, mode: Mode
) -> None:
    async with (
        whole(etcd_server.access(), mode=mode) as w,
        w.dispatcher(window=WINDOW, window_per_host=QUEUE, queue_per_host=QUEUE) as d,
    ):
        await d.put_space("stocks", SCHEMA)
        await d.begin("advertisement", [RecordSpec("h2", "stocks", {})], wait=TIMEOUT)
        asks = [RecordSpec("h1", "stocks", f"price > {n % 900}") for n in range(FLOOD)]
        flood = asyncio.create_task(d.begin("subscription", asks, wait=TIMEOUT))
        while d.queue()[1] < WINDOW:
            await asyncio.sleep(0)
        seen: list[tuple[int, float]] = []  # begun of the flood before asking, and when
        while d.queue()[0]:
            before = QUEUE - d.queue()[0]
            (answer,) = await d.begin(
                "subscription", [RecordSpec("h3", "stocks", "price < 500")], wait=TIMEOUT
            )
            assert answer.status == 201
            seen += [(before, at) for at in begun([answer])]
        answers = await flood
        refused = [answer for answer in answers if answer.status == 429]
        assert len(refused) == FLOOD - QUEUE
        assert all(problem(answer).retry_after for answer in refused)
        times = begun(answers)
        assert len(times) == QUEUE
        assert seen, "the flood was over before anybody else asked"
        for before, at in seen:
            assert sum(time < at for time in times) - before <= TURN
