"""Nothing of an epoch that is over is sent, wherever it waits."""

import asyncio

import pytest
from msgspec.structs import replace

from sdn.fence import StaleEpoch
from sdn.onos.driver import OnosDriver
from sdn.outcomes import Acknowledged, Outcome
from sdn.tables.flows import FlowOp
from tests.onos_standin import Behaviour
from tests.sdn.onos.support import (
    LINE,
    PIPELINE,
    QUICK,
    Stage,
    access,
    add,
    delete,
    forward,
    modify,
    out,
    partition_of,
    reconcile,
    stage,
)

ENTRY = forward(PIPELINE, "0", *out(1))
OTHER = forward(PIPELINE, "1", *out(1))


def put(
    on: Stage, epoch: int, *ops: FlowOp, switch: str = "s1"
) -> "asyncio.Task[dict[str, Outcome]]":
    return asyncio.create_task(on.driver.apply("p7", epoch, {switch: list(ops)}))


async def test_older_epochs_are_refused_and_the_same_and_newer_are_not() -> None:
    async with stage(LINE) as on:
        await on.driver.raise_epoch("p7", 5)
        with pytest.raises(StaleEpoch, match="5 owns it now"):
            await on.driver.apply("p7", 4, {"s1": add(ENTRY)})
        with pytest.raises(StaleEpoch):
            await reconcile(on.driver, "p7", 4, {"s1": [ENTRY]})
        with pytest.raises(StaleEpoch):
            await on.driver.raise_epoch("p7", 4)
        assert on.writes() == {"POST": 0, "DELETE": 0}
        assert await put(on, 5, *add(ENTRY)) == {"s1": Acknowledged()}
        assert await put(on, 6, *add(OTHER)) == {"s1": Acknowledged()}
        assert await on.driver.apply("p8", 1, {}) == {}


async def test_epochs_in_force_at_the_start_hold() -> None:
    async with stage(LINE) as on:
        loaded = OnosDriver(LINE, PIPELINE, partition_of, {"p7": 9}, access(on.onos), QUICK)
        async with loaded:
            with pytest.raises(StaleEpoch):
                await loaded.apply("p7", 8, {"s1": add(ENTRY)})


async def test_a_batch_that_waits_for_its_turn_when_the_fence_rises_is_not_sent() -> None:
    async with stage(LINE) as on:
        on.onos.set_behaviour("s1", Behaviour.STUCK)
        first = put(on, 1, *add(ENTRY))
        await on.until_asked("POST")
        queued = put(on, 1, *modify(forward(PIPELINE, "0", *out(2))))
        await on.until_asked("GET", 5)
        await on.driver.raise_epoch("p7", 2)
        on.onos.set_behaviour("s1", Behaviour.NORMAL)
        assert await first == {"s1": Acknowledged()}  # it had been sent before
        with pytest.raises(StaleEpoch):
            await queued
        assert on.writes() == {"POST": 1, "DELETE": 0}
        assert set(await on.driver.read("s1")) == on.expected("s1", ENTRY)


async def test_a_reconciliation_that_waits_when_the_fence_rises_changes_nothing() -> None:
    async with stage(LINE) as on:
        on.onos.set_behaviour("s1", Behaviour.STUCK)
        first = put(on, 1, *add(ENTRY))
        await on.until_asked("POST")
        queued = asyncio.create_task(reconcile(on.driver, "p7", 1, {}))
        await on.until_asked("GET", 5)
        await on.driver.raise_epoch("p7", 2)
        on.onos.set_behaviour("s1", Behaviour.NORMAL)
        assert await first == {"s1": Acknowledged()}
        with pytest.raises(StaleEpoch):
            await queued
        assert await on.driver.audit("s1") == {"s1": Acknowledged()}
        assert set(await on.driver.read("s1")) == on.expected("s1", ENTRY)


async def test_a_batch_stops_between_its_rounds_when_the_fence_rises() -> None:
    async with stage(LINE) as on:
        assert await put(on, 1, *add(OTHER)) == {"s1": Acknowledged()}
        on.onos.requests.clear()
        on.onos.set_behaviour("s1", Behaviour.STUCK)
        under_way = put(on, 1, *add(ENTRY), *delete(OTHER))
        await on.until_asked("POST")
        await on.driver.raise_epoch("p7", 2)
        on.onos.set_behaviour("s1", Behaviour.NORMAL)
        with pytest.raises(StaleEpoch):
            await under_way
        assert on.writes() == {"POST": 1, "DELETE": 0}
        # Those that were confirmed count, the others do not.
        assert await on.driver.audit("s1") == {"s1": Acknowledged()}
        assert set(await on.driver.read("s1")) == on.expected("s1", ENTRY, OTHER)


async def test_a_call_that_waits_for_a_free_connection_when_the_fence_rises_is_not_sent() -> None:
    async with stage(LINE, calls=1) as on:
        on.onos.hold()
        other = asyncio.create_task(on.driver.apply("p8", 1, {"s2": add(OTHER)}))
        await on.until_asked("POST")
        queued = put(on, 1, *add(ENTRY))
        await asyncio.sleep(0)
        await on.driver.raise_epoch("p7", 2)
        on.onos.release()
        with pytest.raises(StaleEpoch):
            await queued
        assert await other == {"s2": Acknowledged()}
        assert on.writes() == {"POST": 1, "DELETE": 0}
        assert set(await on.driver.read("s1")) == on.expected("s1")


async def test_raising_the_fence_waits_for_what_is_being_sent() -> None:
    async with stage(LINE) as on:
        on.onos.hold()
        under_way = put(on, 1, *add(ENTRY))
        await on.until_asked("POST")
        rising = asyncio.create_task(on.driver.raise_epoch("p7", 2))
        unconcerned = asyncio.create_task(on.driver.raise_epoch("p8", 2))
        await unconcerned
        assert not rising.done()
        on.onos.release()
        await rising
        assert await under_way == {"s1": Acknowledged()}


async def test_who_gives_up_raising_the_fence_does_not_disturb_what_is_sent() -> None:
    async with stage(LINE, replace(QUICK, chunk=1)) as on:
        on.onos.hold()
        under_way = put(on, 2, *add(ENTRY))
        await on.until_asked("POST")
        rising = asyncio.create_task(on.driver.raise_epoch("p7", 2))
        await asyncio.sleep(0)
        rising.cancel()
        with pytest.raises(asyncio.CancelledError):
            await rising
        on.onos.release()
        assert await under_way == {"s1": Acknowledged()}
