"""Several southbound processes share the switches: one of them is the master of each."""

import pytest

from sdn.emulator.network import EmulatedNetwork
from sdn.network.events import (
    MastershipLost,
    SwitchUp,
)
from sdn.openflow.driver import DriverOptions, OpenFlowDriver
from sdn.openflow.protocol.constants import V1_3, V1_4
from sdn.outcomes import Acknowledged, Undefined
from sdn.tables.pipeline import Pipeline
from tests.sdn.southbound.support import (
    LINE,
    NAMES,
    WAIT,
    adds,
    all_up,
    entry,
    next_event,
    reconcile,
    two_drivers,
)
from tests.support import until


@pytest.mark.parametrize("version", [V1_3, V1_4])
async def test_a_second_southbound_process_takes_a_switch_over(version: int) -> None:
    pipeline = Pipeline().extended(LINE)
    first = DriverOptions(port=0, timeout=WAIT, generation=1)
    second = DriverOptions(port=0, timeout=WAIT, generation=2)
    async with (
        OpenFlowDriver(LINE, pipeline, lambda _: "p", {}, first) as old,
        OpenFlowDriver(LINE, pipeline, lambda _: "p", {}, second) as new,
    ):
        both = [("127.0.0.1", old.port), ("127.0.0.1", new.port)]
        async with EmulatedNetwork(LINE, both, versions=(version,)) as network:
            await all_up(new, NAMES)
            outcome = (await old.apply("p", 1, {"s2": adds(1)}))["s2"]
            assert isinstance(outcome, Undefined)
            await next_event(old, MastershipLost)
            assert (await new.apply("p", 1, {"s2": adds(2)}))["s2"] == Acknowledged()
            held = set(network.switches["s2"].entries())
            assert held & {entry(1), entry(2)} == {entry(2)}


async def test_a_superseded_driver_stays_so_until_it_is_assigned_with_a_new_generation() -> None:
    pipeline = Pipeline().extended(LINE)
    first = DriverOptions(port=0, timeout=WAIT, generation=1)
    second = DriverOptions(port=0, timeout=WAIT, generation=2)
    async with (
        OpenFlowDriver(LINE, pipeline, lambda _: "p", {}, first) as old,
        OpenFlowDriver(LINE, pipeline, lambda _: "p", {}, second) as new,
    ):
        both = [("127.0.0.1", old.port), ("127.0.0.1", new.port)]
        async with EmulatedNetwork(LINE, both) as network:
            await all_up(new, NAMES)
            given_way: set[str] = set()
            while len(given_way) < 3:
                event = await next_event(old, MastershipLost)
                given_way.add(event.switch)
            network.agents["s2"].restart()  # the switch forgets whose generation was higher
            await next_event(new, SwitchUp)
            assert (await new.apply("p", 1, {"s2": adds(1)}))["s2"] == Acknowledged()
            assert isinstance((await old.apply("p", 1, {"s2": adds(2)}))["s2"], Undefined)
            old.assign(["s1", "s2", "s3"], 3)
            await all_up(old, NAMES)
            assert (await old.apply("p", 2, {"s2": adds(2)}))["s2"] == Acknowledged()


@pytest.mark.parametrize("version", [V1_3, V1_4])
async def test_each_driver_uses_its_own_switches_only(version: int) -> None:
    async with two_drivers(version) as (one, other, network):
        assert one.up() == {"s1", "s2"}
        assert other.up() == {"s3"}
        assert not one.down()
        assert not other.down()
        outcomes = await one.apply("p", 1, {"s1": adds(1), "s3": adds(1)})
        assert outcomes["s1"] == Acknowledged()
        assert isinstance(outcomes["s3"], Undefined)
        assert (await other.apply("p", 1, {"s3": adds(2)}))["s3"] == Acknowledged()
        assert entry(2) in network.switches["s3"].entries()
        assert one.events.empty()


@pytest.mark.parametrize("version", [V1_3, V1_4])
async def test_a_switch_changes_hands_and_keeps_what_it_holds(version: int) -> None:
    async with two_drivers(version) as (one, other, network):
        await one.apply("p", 1, {"s2": adds(1, 2)})
        one.assign(["s1"], 1)
        other.assign(["s2", "s3"], 3)
        await all_up(other, ["s2"])
        assert one.up() == {"s1"}
        assert other.up() == {"s2", "s3"}
        # What it should hold is not known there yet: nothing was removed.
        assert {entry(1), entry(2)} <= set(network.switches["s2"].entries())
        await reconcile(other, "p", 1, {"s2": [entry(2), entry(3)]})
        held = set(network.switches["s2"].entries())
        assert held & {entry(1), entry(2), entry(3)} == {entry(2), entry(3)}
        # And back again: of what it had there before, the first one has kept nothing.
        other.assign(["s3"], 3)
        one.assign(["s1", "s2"], 4)
        await all_up(one, ["s2"])
        assert "p" not in one.declared("s2")
        await one.audit("s2")
        assert set(network.switches["s2"].entries()) == held


@pytest.mark.parametrize("version", [V1_3, V1_4])
async def test_a_driver_that_lost_a_switch_without_notice_changes_nothing(
    version: int,
) -> None:
    async with two_drivers(version) as (one, other, network):
        other.assign(["s2", "s3"], 3)  # the first one still believes that it has it
        await all_up(other, ["s2"])
        outcome = (await one.apply("p", 1, {"s2": adds(1)}))["s2"]
        assert isinstance(outcome, Undefined)
        await next_event(one, MastershipLost)
        assert one.up() == {"s1"}
        assert not one.down()
        assert entry(1) not in network.switches["s2"].entries()
        one.assign(["s1", "s2"], 4)
        await all_up(one, ["s2"])
        assert (await one.apply("p", 1, {"s2": adds(1)}))["s2"] == Acknowledged()


async def test_a_switch_that_connects_later_is_taken_over_by_its_driver() -> None:
    async with two_drivers(V1_4) as (one, other, network):
        network.agents["s2"].drop()
        await until(lambda: "s2" not in one.up())
        assert one.down().keys() == {"s2"}
        one.assign(["s1"], 1)
        other.assign(["s2", "s3"], 3)
        assert not one.down()
        assert other.down().keys() == {"s2"}
        network.agents["s2"].come_back()
        await all_up(other, ["s2"])
        assert other.up() == {"s2", "s3"}
