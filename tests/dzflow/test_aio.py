import asyncio
import logging

import pytest

from dzflow.aio import BackgroundTasks, OncePerTurn


async def test_scheduled_work_runs_once_for_all_calls_of_a_turn() -> None:
    runs: list[int] = []
    work = OncePerTurn(lambda: runs.append(len(runs)))
    work.schedule()
    work.schedule()
    assert runs == []
    await asyncio.sleep(0)
    assert runs == [0]
    work.schedule()
    await asyncio.sleep(0)
    assert runs == [0, 1]


async def test_a_background_task_that_fails_is_logged_by_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail() -> None:
        raise ValueError("broken")

    tasks = BackgroundTasks()
    with caplog.at_level(logging.ERROR):
        task = tasks.spawn(fail(), "a duty")
        await asyncio.wait([task])
        await asyncio.sleep(0)
    assert "'a duty' failed" in caplog.text
    assert "broken" in caplog.text


async def test_cancelling_background_tasks_waits_for_their_end() -> None:
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    tasks = BackgroundTasks()
    tasks.spawn(work())
    await asyncio.sleep(0)
    await tasks.cancel()
    assert ended.is_set()
