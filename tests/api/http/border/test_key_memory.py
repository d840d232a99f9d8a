"""A request with an idempotency key is carried out once."""

import asyncio

import pytest

from api.http.border.key_memory import KeyMemory
from api.http.problems import ApiProblem

KEY = ("operator", "k")


async def test_a_repeated_request_gets_the_first_result() -> None:
    memory = KeyMemory()
    results = iter([1, 2])

    async def action() -> int:
        return next(results)

    assert await memory.once(KEY, b"a", action) == 1
    assert await memory.once(KEY, b"a", action) == 1
    assert await memory.once(("host h1", "k"), b"a", action) == 2


async def test_the_same_key_for_another_request_is_a_conflict() -> None:
    memory = KeyMemory()

    async def action() -> int:
        return 0

    await memory.once(KEY, b"a", action)
    with pytest.raises(ApiProblem) as caught:
        await memory.once(KEY, b"b", action)
    assert caught.value.problem.status == 409


async def test_a_result_that_is_not_kept_is_made_again_for_the_same_request_only() -> None:
    memory = KeyMemory()
    results = iter([1, 2])

    async def action() -> int:
        return next(results)

    for number in (1, 2):
        assert await memory.once(KEY, b"a", action, keep=False) == number
    with pytest.raises(ApiProblem):
        await memory.once(KEY, b"b", action, keep=False)


async def test_concurrent_requests_are_carried_out_once() -> None:
    memory = KeyMemory()
    go = asyncio.Event()
    calls = 0

    async def action() -> int:
        nonlocal calls
        calls += 1
        await go.wait()
        return calls

    both = [asyncio.create_task(memory.once(KEY, b"a", action)) for _ in range(2)]
    await asyncio.sleep(0)
    go.set()
    assert await asyncio.gather(*both) == [1, 1]


async def test_a_failed_request_may_be_tried_again() -> None:
    memory = KeyMemory()

    async def fail() -> int:
        raise ApiProblem("invalid", "no")

    async def succeed() -> int:
        return 5

    with pytest.raises(ApiProblem):
        await memory.once(KEY, b"a", fail)
    assert await memory.once(KEY, b"a", succeed) == 5


async def test_the_oldest_keys_are_forgotten() -> None:
    memory = KeyMemory(size=2)
    done: list[str] = []

    async def run(key: str) -> None:
        async def action() -> int:
            done.append(key)
            return 0

        await memory.once(("", key), b"", action)

    for key in "abcbca":
        await run(key)
    assert "".join(done) == "abca"
