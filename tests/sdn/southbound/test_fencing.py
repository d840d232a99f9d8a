"""The fence: work of an owner that was replaced is refused, even when it is queued already."""

import asyncio

import pytest

from sdn.emulator.model import SwitchModel
from sdn.fence import StaleEpoch
from sdn.openflow.driver import DriverOptions, OpenFlowDriver
from sdn.outcomes import Acknowledged, Undefined
from sdn.tables.pipeline import Pipeline
from tests.sdn.southbound.support import (
    LINE,
    FlowModsReceived,
    adds,
    entry,
    reconcile,
    rig,
)


async def test_work_from_an_older_epoch_is_refused() -> None:
    async with rig() as r:
        await r.driver.raise_epoch("p", 5)
        with pytest.raises(StaleEpoch):
            await r.apply("s2", adds(1), epoch=4)
        with pytest.raises(StaleEpoch):
            await r.driver.raise_epoch("p", 4)
        with pytest.raises(StaleEpoch):
            await reconcile(r.driver, "p", 4, {})
        assert await r.apply("s2", adds(2), epoch=5) == Acknowledged()
        await r.agrees("s2", entry(2))


async def test_work_that_was_queued_before_the_fence_rose_is_refused_too() -> None:
    async with rig(window=1) as r:
        switch = r.network.switches["s2"]
        switch.ignore_barriers()
        spy = FlowModsReceived(switch, 1)
        first = asyncio.create_task(r.apply("s2", adds(1), epoch=1))
        await spy.seen.wait()
        second = asyncio.create_task(r.apply("s2", adds(2), epoch=1))
        other = asyncio.create_task(r.driver.apply("other", 1, {"s2": adds(3)}))
        await asyncio.wait([second], timeout=0)
        await r.driver.raise_epoch("p", 2)
        with pytest.raises(StaleEpoch):
            await second
        switch.behave()
        r.network.agents["s2"].drop(0)
        assert isinstance(await first, Undefined)
        assert isinstance((await other)["s2"], Undefined)
        await r.back("s2")
        await r.agrees("s2")


async def test_epochs_in_force_are_known_before_any_work_is_accepted() -> None:
    pipeline = Pipeline().extended(LINE)
    async with OpenFlowDriver(
        LINE, pipeline, lambda _: "p", {"p": 9}, DriverOptions(port=0)
    ) as driver:
        with pytest.raises(StaleEpoch):
            await driver.apply("p", 8, {"s1": adds(1)})


async def test_an_old_batch_stops_in_the_middle_when_the_fence_rises() -> None:
    async with rig(models={"s2": SwitchModel(rate=2_000.0)}, window=100) as r:
        switch = r.network.switches["s2"]
        spy = FlowModsReceived(switch, 150)
        old = asyncio.create_task(r.apply("s2", adds(*range(1, 1_001))))
        await spy.seen.wait()
        await r.driver.raise_epoch("p", 2)
        with pytest.raises(StaleEpoch):
            await old
        outcomes = await reconcile(r.driver, "p", 2, {"s2": [entry(7)]})
        assert outcomes["s2"] == Acknowledged()
        await r.agrees("s2", entry(7))


async def test_a_batch_of_an_older_epoch_is_left_out_of_a_shared_run() -> None:
    async with rig() as r:
        old = asyncio.create_task(r.apply("s2", adds(1), epoch=1))
        other = asyncio.create_task(r.driver.apply("other", 1, {"s2": adds(2)}))
        await asyncio.sleep(0)
        await r.driver.raise_epoch("p", 2)
        with pytest.raises(StaleEpoch):
            await old
        assert (await other)["s2"] == Acknowledged()
        await r.agrees("s2", entry(2))
