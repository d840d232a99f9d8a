"""Switches that vanish, and connections that break: afterwards both sides agree, without wiping."""

import asyncio

import pytest

from configurators.engine.partials import Request
from dzflow.region import Region
from sdn.emulator.network import EmulatedNetwork
from sdn.network.events import (
    SwitchDown,
    SwitchUp,
)
from sdn.openflow.driver import DriverOptions, OpenFlowDriver
from sdn.outcomes import Acknowledged, Undefined
from sdn.tables.flows import Change, FlowOp
from tests.sdn.lab.support import needs_lab
from tests.sdn.southbound.planes import EmulatedPlane, Round, lab_plane
from tests.sdn.southbound.support import (
    LINE,
    NAMES,
    WAIT,
    FlowModsReceived,
    adds,
    all_up,
    entry,
    next_event,
    reconcile,
    rig,
)


@pytest.mark.parametrize("returns", ["old", "empty", "changed"])
async def test_a_switch_that_vanishes_mid_batch_is_brought_in_line_when_it_returns(
    returns: str,
) -> None:
    async with rig() as r:
        assert await r.apply("s2", adds(1, 2)) == Acknowledged()
        switch, agent = r.network.switches["s2"], r.network.agents["s2"]
        switch.ignore_barriers()
        spy = FlowModsReceived(switch, 3)
        batch = asyncio.create_task(r.apply("s2", adds(3, 4, 5, 6)))
        await spy.seen.wait()
        if returns == "empty":
            switch.restart()
        agent.drop()
        assert isinstance(await batch, Undefined)
        switch.behave()
        if returns == "changed":
            switch.change(FlowOp(Change.DELETE, entry(1)))
            switch.change(FlowOp(Change.MODIFY, entry(2, port=7)))
            switch.change(FlowOp(Change.ADD, entry(9)))
        agent.come_back()
        await r.back("s2")
        await r.agrees("s2", entry(1), entry(2))
        # The partition tries again, and nothing of it is there twice or missing.
        assert await r.apply("s2", adds(3, 4, 5, 6)) == Acknowledged()
        await r.agrees("s2", *map(entry, range(1, 7)))


async def test_work_for_a_switch_that_is_away_is_undefined_and_others_go_on() -> None:
    async with rig() as r:
        r.network.agents["s2"].drop()
        await next_event(r.driver, SwitchDown)
        outcomes = await r.driver.apply("p", 1, {s: adds(1) for s in ("s1", "s2", "s3")})
        assert isinstance(outcomes.pop("s2"), Undefined)
        assert set(outcomes.values()) == {Acknowledged()}


async def test_a_flapping_connection_ends_in_agreement() -> None:
    async with rig() as r:
        done: set[int] = set()
        for number in range(1, 13):
            outcome = await r.apply("s2", adds(number))
            if outcome == Acknowledged():
                done.add(number)
            if number % 3 == 0:
                r.network.agents["s2"].drop(0)
                await r.back("s2")
        assert len(done) >= 8
        await r.driver.audit("s2")
        await r.agrees("s2", *map(entry, done))


async def test_events_on_untouched_paths_are_not_lost_while_a_switch_flaps() -> None:
    work = Round("legs", LINE, seed=3)
    settings = DriverOptions(port=0, timeout=WAIT)
    async with (
        OpenFlowDriver(LINE, work.plant.pipeline, work.partition_of, {}, settings) as driver,
        EmulatedNetwork(LINE, [("127.0.0.1", driver.port)]) as network,
    ):
        await all_up(driver, NAMES)
        plane = EmulatedPlane(LINE, driver, network)
        try:
            await plane.join()
            everything = (Region.parse("0"),)
            await work.add(plane, [Request(True, "p1", "h1", everything)])
            await work.add(plane, [Request(False, "s2", "h2", everything)])
            sent = set()
            for number in range(20):
                if number % 5 == 0:
                    network.agents["s3"].restart()
                payload = str(number).encode()
                plane.publish("h1", work.plant.scope.event(number << 80, 0), payload)
                sent.add(payload)
                await driver.read("s1")
            await plane.until_all_got({"h2": sent})
            assert all(set(a.values()) == {1} for a in plane.received["h2"])
        finally:
            plane.close()


async def test_a_barrier_without_an_answer_ends_the_connection_and_tables_agree_later() -> None:
    async with rig(timeout=5.0) as r:
        assert await r.apply("s2", adds(1)) == Acknowledged()
        switch = r.network.switches["s2"]
        switch.ignore_barriers()
        outcome = await r.apply("s2", adds(2))
        assert isinstance(outcome, Undefined)
        assert "barrier" in outcome.reason
        switch.behave()
        await r.back("s2")
        await r.agrees("s2", entry(1))


async def test_a_switch_that_answers_early_and_then_restarts_is_repaired() -> None:
    async with rig() as r:
        switch = r.network.switches["s2"]
        switch.lie()
        assert await r.apply("s2", adds(1, 2)) == Acknowledged()
        r.network.agents["s2"].restart(keep_tables=True)
        switch.behave()
        await r.back("s2")
        await r.agrees("s2", entry(1), entry(2))


async def test_what_was_declared_after_a_lost_batch_stays_declared() -> None:
    async with rig() as r:
        switch, agent = r.network.switches["s2"], r.network.agents["s2"]
        switch.ignore_barriers()
        spy = FlowModsReceived(switch, 2)
        old = asyncio.create_task(r.apply("s2", adds(1, 2)))
        await spy.seen.wait()
        await r.driver.raise_epoch("p", 2)
        new = asyncio.create_task(reconcile(r.driver, "p", 2, {"s2": [entry(1), entry(3)]}))
        await asyncio.wait([new], timeout=0)
        agent.drop(0)
        switch.behave()
        assert isinstance(await old, Undefined)
        await new
        await r.back("s2")
        await r.agrees("s2", entry(1), entry(3))


@needs_lab
@pytest.mark.parametrize("protocol", ["OpenFlow13", "OpenFlow14"])
async def test_a_real_switch_that_restarts_empty_is_filled_again(protocol: str) -> None:
    work = Round("legs", LINE, seed=5)
    plant = work.plant
    async with lab_plane(LINE, plant.pipeline, work.partition_of, protocol) as plane:
        driver = plane.southbound
        assert isinstance(driver, OpenFlowDriver)
        await work.add(plane, work.markers(advertised=True))
        await work.add(plane, work.markers(advertised=False))
        await work.add(plane, work.requests(True, 6))
        await work.add(plane, work.requests(False, 8))
        plane.lab.restart_switch("s2")
        await next_event(driver, SwitchUp)
        await work.check_tables(plane)
        await work.check_events(plane, 40)
        plane.lab.disconnect("s3")
        await next_event(driver, SwitchDown)
        await work.check_events(plane, 40)  # tables stay while no controller is connected
        plane.lab.reconnect("s3")
        await next_event(driver, SwitchUp)
        await work.check_tables(plane)
