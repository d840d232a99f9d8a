"""When partitions begin their slices."""

import asyncio

from configurators.partition.slices.rounds import Rounds

TIMEOUT = 30


async def begin(rounds: Rounds, *names: str, log: list[str]) -> list["asyncio.Task[None]"]:
    """Have partitions wait for a round, and note when they begin."""

    async def wait(name: str) -> None:
        await rounds.wait()
        log.append(name)

    tasks = [asyncio.create_task(wait(name)) for name in names]
    for _ in range(4):
        await asyncio.sleep(0)
    return tasks


async def test_a_lone_partition_begins_at_once() -> None:
    log: list[str] = []
    await begin(Rounds(TIMEOUT), "p", log=log)
    assert log == ["p"]


async def test_partitions_wait_until_all_slices_in_progress_have_ended() -> None:
    rounds = Rounds(TIMEOUT)
    log: list[str] = []
    with rounds.working():
        with rounds.working():
            tasks = await begin(rounds, "p", "q", log=log)
        await asyncio.sleep(0)
        assert not log
    async with asyncio.timeout(TIMEOUT):
        await asyncio.gather(*tasks)
    assert log == ["p", "q"]
    await begin(rounds, "r", log=log)  # none is in progress any more
    assert log == ["p", "q", "r"]


async def test_a_slice_that_takes_long_does_not_stop_others() -> None:
    rounds = Rounds(0.001)
    with rounds.working():
        async with asyncio.timeout(TIMEOUT):
            await rounds.wait()
            await rounds.wait()


async def test_without_a_time_nothing_waits() -> None:
    rounds = Rounds(0)
    with rounds.working():
        async with asyncio.timeout(TIMEOUT):
            await rounds.wait()
