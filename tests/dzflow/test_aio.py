import asyncio
import logging

import pytest

from dzflow.aio import (
    BackgroundTasks,
    CriticalTasks,
    OncePerTurn,
    pause_until,
    wait_for_any,
    wait_until_set,
)


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


async def test_the_first_critical_task_that_fails_ends_the_others_with_its_error() -> None:
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("broken")

    async with CriticalTasks() as tasks:
        tasks.spawn(work())
        tasks.spawn(fail())
        with pytest.raises(ValueError, match="broken"):
            await tasks.until(asyncio.Event())
    assert ended.is_set()


async def test_critical_tasks_run_until_told_to_stop() -> None:
    stop = asyncio.Event()
    async with CriticalTasks() as tasks:
        working = tasks.spawn(asyncio.Event().wait())
        stop.set()
        await tasks.until(stop)
        assert not working.done()
    assert working.cancelled()


async def test_a_watched_task_that_fails_counts_but_is_not_cancelled_at_the_end() -> None:
    async def fail() -> None:
        raise ValueError("broken")

    other = asyncio.create_task(asyncio.Event().wait())
    async with CriticalTasks() as tasks:
        tasks.watch(other)
        tasks.watch(asyncio.create_task(fail()))
        with pytest.raises(ValueError, match="broken"):
            await tasks.until(asyncio.Event())
    assert not other.done()
    other.cancel()


@pytest.mark.parametrize(
    ("now", "offset", "pause"),
    [
        (100.0, 0.0, 2.0),
        (100.5, 0.0, 1.5),
        (101.0, 0.0, 1.0),
        (101.75, 0.0, 2.25),  # too early: the work for 102 is done
        (102.25, 0.0, 1.75),
        (100.0, 1.0, 1.0),
        (101.25, 1.0, 1.75),
    ],
)
def test_a_pause_ends_at_the_next_moment_that_is_due(
    now: float, offset: float, pause: float
) -> None:
    assert pause_until(now, 2.0, offset) == pause


async def test_waiting_for_events_ends_with_the_first_of_them_or_in_time() -> None:
    first, second = asyncio.Event(), asyncio.Event()
    before = asyncio.all_tasks()
    waiting = asyncio.create_task(wait_for_any(first, second))
    await asyncio.sleep(0)
    assert not waiting.done()
    second.set()
    await waiting
    await wait_for_any(first, timeout=0.001)
    for _ in range(2):  # turns of the loop, in which the cancelled waits end
        await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


async def test_waiting_for_an_event_tells_whether_it_came_in_time() -> None:
    event = asyncio.Event()
    assert not await wait_until_set(event, 0.001)
    event.set()
    assert await wait_until_set(event, 0.0)
    assert await wait_until_set(event, None)
