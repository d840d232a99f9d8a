"""Switches with limits of their own, as their topology file says."""

import asyncio
from functools import partial
from typing import Any

import pytest

from sdn.network.events import SwitchDown
from sdn.network.switch_limits import SwitchLimits
from sdn.network.topology import Topology
from sdn.openflow.options import DriverOptions
from sdn.openflow.switches.limits import Limits, limits_of
from sdn.outcomes import Acknowledged, Failed, Undefined
from sdn.tables.flows import Change, FlowEntry, FlowOp
from tests.sdn.lab.support import needs_lab
from tests.sdn.southbound.planes import EmulatedPlane, LabPlane, Round, emulated_plane, lab_plane
from tests.sdn.southbound.support import LINE, adds, deletes, entry, next_event, rig
from tests.sdn.tables.test_pipeline import limited


def test_what_is_not_said_is_as_for_all_switches() -> None:
    options = DriverOptions(rate=100.0, window=50, queue=7, timeout=3.0, echo_every=4.0)
    as_all = Limits(window=50, queue=7, rate=100.0, timeout=3.0, echo_every=4.0, capacity=None)
    assert limits_of(options, SwitchLimits()) == as_all
    own = SwitchLimits(rate=2, window=1, timeout=60, echo_every=1, capacity=9)
    assert limits_of(options, own) == Limits(1, 7, 2.0, 60.0, 1.0, 9)
    assert limits_of(options, SwitchLimits(rate=0)).rate is None


async def test_each_switch_has_its_own_limits_and_they_follow_the_network() -> None:
    async with rig(limited(LINE, "s2", window=3, rate=1e6, timeout=7.5)) as it:
        reconcilers = it.driver._switches.reconcilers
        connection = it.driver.connection("s2")
        assert (reconcilers["s2"].queue.limits.window, connection.timeout) == (3, 7.5)
        assert reconcilers["s1"].queue.limits.window == it.driver.options.window
        assert await it.apply("s2", adds(*range(20))) == Acknowledged()
        await it.agrees("s2", *(entry(n) for n in range(20)))
        await it.driver.set_network(LINE, it.pipeline)
        assert reconcilers["s2"].queue.limits.window == it.driver.options.window


async def test_a_switch_gets_no_more_entries_than_its_capacity() -> None:
    async with rig(limited(LINE, "s2", capacity=5)) as it:
        base = sum(e.table == 1 for e in it.pipeline.base_entries(it.topology, "s2"))
        fits = range(1, 6 - base)
        assert it.driver.table_use()["s2"].capacity == 5
        assert await it.apply("s2", adds(*fits)) == Acknowledged()
        sent = it.network.switches["s2"].counters.flow_mods
        refused = await it.apply("s2", adds(8, 9))
        assert isinstance(refused, Failed)
        assert refused.table_full
        assert set(refused.refused) == {0, 1}
        assert "table 1 may have 5 entries (capacity)" in refused.refused[0]
        assert it.network.switches["s2"].counters.flow_mods == sent
        assert await it.apply("s2", [*deletes(1), *adds(8)]) == Acknowledged()
        assert await it.apply("s2", [FlowOp(Change.MODIFY, entry(8, port=2))]) == Acknowledged()
        await it.agrees("s2", entry(8, port=2), *(entry(n) for n in fits if n > 1))
        assert await it.apply("s1", adds(*range(30))) == Acknowledged()


async def test_a_switch_that_has_to_answer_soon_is_given_up_sooner_than_the_others() -> None:
    async with rig(limited(LINE, "s2", timeout=0.2, echo_every=0.1)) as it:
        ready = {name: peer.ready for name, peer in it.driver._switches._peers.items()}
        every = {name: it.driver._switches.echo_every(one) for name, one in ready.items() if one}
        assert (every["s1"], every["s2"]) == (it.driver.options.echo_every, 0.1)
        for name in ("s1", "s2"):
            it.network.switches[name].ignore_barriers()
        waiting = asyncio.create_task(it.apply("s1", adds(1)))
        assert isinstance(await it.apply("s2", adds(1)), Undefined)
        down = await next_event(it.driver, SwitchDown)
        assert (down.switch, down.reason) == ("s2", "no answer to a barrier within 0.2 s")
        assert not waiting.done()
        it.network.switches["s1"].behave()
        it.network.agents["s1"].drop()
        await waiting


PLANES: dict[str, Any] = {
    "emulated": emulated_plane,
    "ovs": partial(lab_plane, protocol="OpenFlow13"),
}


@pytest.mark.parametrize("plan", ["legs", "lpm"])
@pytest.mark.parametrize("name", ["emulated", pytest.param("ovs", marks=needs_lab)])
async def test_events_pass_a_switch_that_has_other_tables_and_groups(name: str, plan: Any) -> None:
    network: Topology = limited(LINE, "s2", tables=(20, 30), groups=(1, 9))
    work = Round(plan, network, seed=9)
    async with PLANES[name](network, work.plant.pipeline, work.partition_of) as plane:
        to_ours = FlowEntry(0, 0, None, (), 20)  # somebody else's
        if isinstance(plane, EmulatedPlane):
            plane.network.switches["s2"].change(FlowOp(Change.ADD, to_ours), cookie=0x99)
        else:
            assert isinstance(plane, LabPlane)
            plane.lab.ofctl(
                "s2", "add-flow", "cookie=0x99,table=0,priority=0,actions=goto_table:20"
            )
        await work.add(plane, work.markers(advertised=True))
        await work.add(plane, work.markers(advertised=False))
        await work.add(plane, work.requests(True, 6))
        await work.add(plane, work.requests(False, 8))
        await work.check_tables(plane)
        await work.check_events(plane, 40)
        used = {entry.table for entry in await plane.southbound.read("s2")}
        assert used <= set(range(20, 31))
