"""What goes wrong with switches and connections: afterwards both sides agree, without wiping."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from configurators.engine.partials import Request
from dzflow.address import Scope
from dzflow.region import Region
from sdn.emulator.model import SwitchModel
from sdn.emulator.network import EmulatedNetwork
from sdn.emulator.switch import EmulatedSwitch
from sdn.fence import StaleEpoch
from sdn.flows import COOKIE_MARK, Change, FlowEntry, FlowOp, Output
from sdn.network_events import (
    MastershipLost,
    PortStateChanged,
    Repaired,
    SwitchDown,
    SwitchUnusable,
    SwitchUp,
)
from sdn.openflow.driver import DriverOptions, OpenFlowDriver
from sdn.openflow.protocol.constants import V1_3, V1_4
from sdn.openflow.protocol.messages import FlowMod
from sdn.outcomes import Acknowledged, Failed, Undefined
from sdn.pipeline import MATCH_PRIORITY, Pipeline
from sdn.topologies import topology
from sdn.topology import Host, Topology
from tests.sdn.lab.support import needs_lab
from tests.sdn.southbound.planes import WAIT, EmulatedPlane, all_up, lab_plane, next_event
from tests.sdn.southbound.test_planes import Round

LINE = topology("line:3")


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


class Rig:
    """A driver, emulated switches, and what they should hold."""

    def __init__(
        self, driver: OpenFlowDriver, network: EmulatedNetwork, pipeline: Pipeline
    ) -> None:
        self.driver = driver
        self.network = network
        self.pipeline = pipeline

    async def apply(self, switch: str, ops: list[FlowOp], epoch: int = 1) -> Any:
        return (await self.driver.apply("p", epoch, {switch: ops}))[switch]

    async def agrees(self, switch: str, *entries: FlowEntry) -> None:
        """The switch holds these entries and the base, and nothing else of ours."""
        base = set(self.pipeline.base_entries(self.driver._topology, switch))
        assert set(await self.driver.read(switch)) == base | set(entries)

    async def back(self, switch: str) -> None:
        """Wait until a switch has gone and come back."""
        assert (await next_event(self.driver, SwitchDown)).switch == switch  # type: ignore[union-attr]
        assert (await next_event(self.driver, SwitchUp)).switch == switch  # type: ignore[union-attr]


@asynccontextmanager
async def rig(
    network: Topology = LINE,
    models: dict[str, SwitchModel] | None = None,
    version: int = V1_4,
    **options: Any,
) -> AsyncIterator[Rig]:
    pipeline = Pipeline().extended(network)
    settings = DriverOptions(port=0, **{"timeout": WAIT, **options})
    async with OpenFlowDriver(network, pipeline, lambda _: "p", {}, settings) as driver:
        controllers = [("127.0.0.1", driver.port)]
        async with EmulatedNetwork(
            network, controllers, versions=(version,), models=models
        ) as switches:
            await all_up(driver, network)
            yield Rig(driver, switches, pipeline)


def entry(number: int, port: int = 1) -> FlowEntry:
    match = Scope(1).match(Region(number << 80, 0xFFFF << 80), 0)
    return FlowEntry(1, MATCH_PRIORITY, match, (Output(port),), 2)


def coarse() -> FlowEntry:
    """Covers all of `entry`."""
    match = Scope(1).match(Region(0, 1 << 95), 0)
    return FlowEntry(1, MATCH_PRIORITY, match, (Output(1),), 2)


def adds(*numbers: int) -> list[FlowOp]:
    return [FlowOp(Change.ADD, entry(number)) for number in numbers]


def deletes(*numbers: int) -> list[FlowOp]:
    return [FlowOp(Change.DELETE, entry(number)) for number in numbers]


class Spy:
    """Notices when a switch has received so many flow-mods; refuses none."""

    def __init__(self, switch: EmulatedSwitch, count: int) -> None:
        self.seen = asyncio.Event()
        self._left = count
        switch.refuse(self, times=None)

    def __call__(self, _: FlowMod) -> bool:
        self._left -= 1
        if not self._left:
            self.seen.set()
        return False


# A switch vanishes in the middle of a batch


async def test_what_waits_when_its_partition_is_declared_is_not_sent() -> None:
    async with rig() as it:
        outcome, _ = await asyncio.gather(
            it.apply("s1", adds(*range(1, 500))),
            it.driver.declare("p", 1, {"s1": [entry(500)]}, ["s1"]),
        )
        assert isinstance(outcome, Undefined)
        assert await it.driver.audit("s1") == {"s1": Acknowledged()}
        await it.agrees("s1", entry(500))
        assert await it.apply("s1", adds(501)) == Acknowledged()
        await it.agrees("s1", entry(500), entry(501))


@pytest.mark.parametrize("returns", ["old", "empty", "changed"])
async def test_a_switch_that_vanishes_mid_batch_is_brought_in_line_when_it_returns(
    returns: str,
) -> None:
    async with rig() as r:
        assert await r.apply("s2", adds(1, 2)) == Acknowledged()
        switch, agent = r.network.switches["s2"], r.network.agents["s2"]
        switch.ignore_barriers()
        spy = Spy(switch, 3)
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
        await all_up(driver, LINE)
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


# Barriers


async def test_a_barrier_that_is_never_answered_ends_the_connection_and_not_the_agreement() -> None:
    async with rig(timeout=2.0) as r:
        assert await r.apply("s2", adds(1)) == Acknowledged()
        switch = r.network.switches["s2"]
        switch.ignore_barriers()
        outcome = await r.apply("s2", adds(2))
        assert isinstance(outcome, Undefined)
        assert "barrier" in outcome.reason
        switch.behave()
        await r.back("s2")
        await r.agrees("s2", entry(1))


async def test_the_audit_finds_what_a_lying_switch_has_not_done() -> None:
    async with rig(audit_every=0.1) as r:
        while not r.driver.events.empty():
            r.driver.events.get_nowait()
        r.network.switches["s2"].lose(lambda mod: mod.cookie >> 48 == COOKIE_MARK, times=2)
        assert await r.apply("s2", adds(1, 2, 3)) == Acknowledged()
        repaired = await next_event(r.driver, Repaired)
        assert repaired == Repaired("s2", 2)
        await r.agrees("s2", entry(1), entry(2), entry(3))


async def test_a_switch_that_answers_early_and_then_restarts_is_found_out() -> None:
    async with rig() as r:
        switch = r.network.switches["s2"]
        switch.lie()
        assert await r.apply("s2", adds(1, 2)) == Acknowledged()
        r.network.agents["s2"].restart(keep_tables=True)
        switch.behave()
        await r.back("s2")
        await r.agrees("s2", entry(1), entry(2))


# Refusals


async def test_an_error_in_the_middle_of_a_batch_is_tied_to_its_operation() -> None:
    async with rig() as r:
        r.network.switches["s2"].refuse(skip=1, times=1)
        outcome = await r.apply("s2", adds(1, 2, 3))
        assert isinstance(outcome, Failed)
        assert set(outcome.refused) == {1}
        assert not outcome.table_full
        await r.agrees("s2", entry(1), entry(3))
        await r.driver.audit("s2")
        await r.agrees("s2", entry(1), entry(3))


async def test_a_full_table_fails_what_does_not_fit_and_can_be_undone() -> None:
    small = {"s2": SwitchModel(table_capacity=3)}  # one is the miss entry
    async with rig(models=small) as r:
        assert await r.apply("s2", adds(1)) == Acknowledged()
        outcome = await r.apply("s2", adds(2, 3, 4))
        assert isinstance(outcome, Failed)
        assert outcome.table_full
        assert set(outcome.refused) == {1, 2}
        assert await r.apply("s2", deletes(2, 3, 4)) == Acknowledged()
        await r.agrees("s2", entry(1))


async def test_nothing_goes_for_which_a_full_table_has_refused_what_replaces_it() -> None:
    small = {"s2": SwitchModel(table_capacity=3)}  # one is the miss entry
    async with rig(models=small) as r:
        assert await r.apply("s2", adds(1, 2)) == Acknowledged()
        ops = [FlowOp(Change.ADD, coarse()), *deletes(1, 2), *adds(3)]
        outcome = await r.apply("s2", ops)
        assert isinstance(outcome, Failed)
        assert outcome.table_full
        assert set(outcome.refused) == {0, 1, 2, 3}
        await r.agrees("s2", entry(1), entry(2))
        assert await r.driver.audit("s2") == {"s2": Acknowledged()}
        await r.agrees("s2", entry(1), entry(2))
        # With room for it, they go.
        assert await r.apply("s2", deletes(2)) == Acknowledged()
        ops = [FlowOp(Change.ADD, coarse()), *deletes(1), *adds(3)]
        assert await r.apply("s2", ops) == Acknowledged()
        await r.agrees("s2", coarse(), entry(3))


async def test_what_waits_for_others_to_be_added_is_not_sent_when_its_partition_is_declared() -> (
    None
):
    async with rig(models={"s2": SwitchModel(table_capacity=6)}) as r:  # half of it is used
        assert await r.apply("s2", adds(1)) == Acknowledged()
        seen = Spy(r.network.switches["s2"], 1).seen
        ops = [FlowOp(Change.ADD, coarse()), *deletes(1)]
        applying = asyncio.create_task(r.apply("s2", ops))
        await seen.wait()
        await r.driver.declare("p", 1, {"s2": [entry(1)]}, ["s2"])
        assert isinstance(await applying, Undefined)
        assert await r.driver.audit("s2") == {"s2": Acknowledged()}
        await r.agrees("s2", entry(1))


async def test_what_waits_for_others_to_be_added_is_left_alone_by_a_comparison() -> None:
    small = {"s2": SwitchModel(table_capacity=3)}  # one is the miss entry
    async with rig(models=small) as r:
        assert await r.apply("s2", adds(1, 2)) == Acknowledged()
        r.network.switches["s2"].delay(0.2)  # only barriers: what is asked meanwhile, it tells
        ops = [FlowOp(Change.ADD, coarse()), *deletes(1)]
        applying = asyncio.create_task(r.apply("s2", ops))
        await asyncio.sleep(0)  # it is submitted
        await r.driver.audit("s2")
        assert isinstance(await applying, Failed)
        await r.agrees("s2", entry(1), entry(2))


async def test_what_waits_for_others_to_be_added_is_refused_when_the_fence_has_risen() -> None:
    async with rig(models={"s2": SwitchModel(table_capacity=6)}) as r:  # half of it is used
        assert await r.apply("s2", adds(1)) == Acknowledged()
        seen = Spy(r.network.switches["s2"], 1).seen
        ops = [FlowOp(Change.ADD, coarse()), *deletes(1)]
        applying = asyncio.create_task(r.apply("s2", ops))
        await seen.wait()
        await r.driver.raise_epoch("p", 2)
        with pytest.raises(StaleEpoch):
            await applying
        assert entry(1) in await r.driver.read("s2")


async def test_what_a_full_table_did_not_take_is_put_there_when_we_have_made_room() -> None:
    small = {"s2": SwitchModel(table_capacity=3)}  # one is the miss entry
    async with rig(models=small) as r:
        await r.driver.declare("p", 1, {"s2": [entry(1), entry(2), entry(3)]}, ["s2"])
        outcomes = await r.driver.audit("s2")
        assert isinstance(outcomes["s2"], Failed)
        there = set(await r.driver.read("s2")) & {entry(1), entry(2), entry(3)}
        assert len(there) == 2
        gone = there.pop()
        assert await r.apply("s2", [FlowOp(Change.DELETE, gone)]) == Acknowledged()
        assert await next_event(r.driver, Repaired) == Repaired("s2", 1)
        await r.agrees("s2", *({entry(1), entry(2), entry(3)} - {gone}))


async def test_what_a_full_table_did_not_take_is_tried_again() -> None:
    small = {"s2": SwitchModel(table_capacity=3)}  # one is the miss entry
    async with rig(models=small) as r:
        await r.driver.declare("p", 1, {"s2": [entry(1), entry(2), entry(3)]}, ["s2"])
        outcomes = await r.driver.audit("s2")
        assert isinstance(outcomes["s2"], Failed)
        r.network.switches["s2"].tables.model = SwitchModel()  # room that nobody tells of
        assert await next_event(r.driver, Repaired) == Repaired("s2", 1)
        await r.agrees("s2", entry(1), entry(2), entry(3))


async def test_a_full_table_is_repaired_without_a_gap_if_there_is_room_and_with_one_if_not() -> (
    None
):
    small = {"s2": SwitchModel(table_capacity=3)}  # one is the miss entry
    async with rig(models=small) as r:
        assert await r.apply("s2", adds(1, 2)) == Acknowledged()
        await r.driver.declare("p", 1, {"s2": [coarse()]}, ["s2"])
        outcomes = await r.driver.audit("s2")
        assert isinstance(outcomes["s2"], Failed)
        await r.agrees("s2", entry(1), entry(2))
        # As that did not do, what is there goes first when it is tried again.
        assert isinstance(await next_event(r.driver, Repaired), Repaired)
        await r.agrees("s2", coarse())


async def test_a_switch_without_enough_tables_is_refused_with_a_way_out() -> None:
    pipeline = Pipeline().extended(LINE)
    settings = DriverOptions(port=0, timeout=WAIT)
    async with OpenFlowDriver(LINE, pipeline, lambda _: "p", {}, settings) as driver:
        poor = {"s2": SwitchModel(tables=3), "s3": SwitchModel(masks="prefix")}
        async with EmulatedNetwork(LINE, [("127.0.0.1", driver.port)], models=poor):
            refused: dict[int, str] = {}
            while len(refused) < 2:
                event = await next_event(driver, SwitchUnusable)
                assert isinstance(event, SwitchUnusable)
                refused[event.dpid] = event.reason
    assert "3 tables" in refused[2]
    assert "lpm" in refused[2]
    assert "mask" in refused[3]
    assert "lpm" in refused[3]


async def test_a_switch_that_nobody_knows_is_refused() -> None:
    pipeline = Pipeline().extended(LINE)
    settings = DriverOptions(port=0, timeout=WAIT)
    async with (
        OpenFlowDriver(LINE, pipeline, lambda _: "p", {}, settings) as driver,
        EmulatedNetwork(topology("line:4"), [("127.0.0.1", driver.port)]),
    ):
        event = await next_event(driver, SwitchUnusable)
        assert isinstance(event, SwitchUnusable)
        assert event.dpid == 4


# The fence


async def test_work_from_an_older_epoch_is_refused() -> None:
    async with rig() as r:
        await r.driver.raise_epoch("p", 5)
        with pytest.raises(StaleEpoch):
            await r.apply("s2", adds(1), epoch=4)
        with pytest.raises(StaleEpoch):
            await r.driver.raise_epoch("p", 4)
        with pytest.raises(StaleEpoch):
            await r.driver.reconcile("p", 4, {})
        assert await r.apply("s2", adds(2), epoch=5) == Acknowledged()
        await r.agrees("s2", entry(2))


async def test_work_that_was_queued_before_the_fence_rose_is_refused_too() -> None:
    async with rig(window=1) as r:
        switch = r.network.switches["s2"]
        switch.ignore_barriers()
        spy = Spy(switch, 1)
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
            await all_up(new, LINE)
            outcome = (await old.apply("p", 1, {"s2": adds(1)}))["s2"]
            assert isinstance(outcome, Undefined)
            await next_event(old, MastershipLost)
            assert (await new.apply("p", 1, {"s2": adds(2)}))["s2"] == Acknowledged()
            held = set(network.switches["s2"].entries())
            assert held & {entry(1), entry(2)} == {entry(2)}


async def test_two_batches_for_the_same_entries_are_carried_out_in_the_order_they_came() -> None:
    async with rig() as r:
        for _ in range(20):
            outcomes = await asyncio.gather(
                r.apply("s2", adds(1, 2)),
                r.apply("s2", deletes(1)),
                r.apply("s2", adds(1)),
                r.apply("s2", deletes(1, 2)),
                r.apply("s2", adds(2)),
            )
            assert set(outcomes) == {Acknowledged()}
            await r.agrees("s2", entry(2))
            await r.apply("s2", deletes(2))


# What others do


async def test_what_other_applications_put_on_a_switch_stays_as_it_is() -> None:
    async with rig() as r:
        switch = r.network.switches["s2"]
        theirs = FlowEntry(1, 7, None, (Output(3),))
        switch.change(FlowOp(Change.ADD, theirs), cookie=0x1234)
        before = set(switch.entries())
        await r.apply("s2", adds(1))
        await r.driver.audit("s2")
        await r.driver.reconcile("p", 1, {})
        assert set(switch.entries()) == before


async def test_the_flow_monitor_tells_of_a_foreign_change_at_once() -> None:
    async with rig(version=V1_4, audit_every=1e6) as r:
        await r.apply("s2", adds(1, 2))
        while not r.driver.events.empty():
            r.driver.events.get_nowait()
        r.network.switches["s2"].change(FlowOp(Change.DELETE, entry(1)))
        assert await next_event(r.driver, Repaired) == Repaired("s2", 1)
        r.network.switches["s2"].change(FlowOp(Change.MODIFY, entry(2, port=9)))
        assert await next_event(r.driver, Repaired) == Repaired("s2", 1)
        await r.agrees("s2", entry(1), entry(2))


async def test_reconcile_sends_the_difference_only() -> None:
    async with rig() as r:
        await r.apply("s2", adds(1, 2, 3))
        while not r.driver.events.empty():
            r.driver.events.get_nowait()
        expected = {"s2": [entry(2), entry(3, port=5), entry(4)]}
        outcomes = await r.driver.reconcile("p", 1, expected)
        assert set(outcomes.values()) == {Acknowledged()}
        assert await next_event(r.driver, Repaired) == Repaired("s2", 3)
        await r.agrees("s2", *expected["s2"])
        assert r.driver.events.empty()  # the others had nothing to repair


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x04\x00\x00\x08\x00\x00\x00\x01\x04\x06\xff\xff\x00\x00\x00\x02",
        b"\x04\x00\x00\x02\x00\x00\x00\x01",
        b"\x04\x00\x00\x08\x00\x00\x00\x01\x04\x0e\x00",
        bytes(range(256)) * 8,
    ],
)
async def test_a_peer_that_talks_nonsense_ends_its_own_connection_only(data: bytes) -> None:
    async with rig() as r:
        reader, writer = await asyncio.open_connection("127.0.0.1", r.driver.port)
        writer.write(data)
        writer.write_eof()
        async with asyncio.timeout(WAIT):
            while await reader.read(4096):
                pass
        writer.close()
        await writer.wait_closed()
        assert r.driver.connected() == {"s1", "s2", "s3"}
        assert await r.apply("s2", adds(1)) == Acknowledged()


async def test_thousands_of_packet_ins_do_not_stop_the_work() -> None:
    async with rig() as r:
        r.network.switches["s1"].send_packet_ins(bytes(64), 1, count=5_000)
        for number in range(1, 20):
            outcomes = await r.driver.apply("p", 1, {s: adds(number) for s in ("s1", "s2")})
            assert set(outcomes.values()) == {Acknowledged()}


async def test_a_slow_switch_holds_up_nobody_else() -> None:
    async with rig() as r:
        r.network.switches["s2"].delay(WAIT / 2)
        late = asyncio.create_task(r.apply("s2", adds(*range(1, 31))))
        for number in range(1, 100):
            assert await r.apply("s1", adds(number)) == Acknowledged()
        assert not late.done()
        late.cancel()


async def test_a_slow_switch_completes_a_batch_that_takes_longer_than_an_answer_may() -> None:
    slow = {"s2": SwitchModel(rate=300.0)}
    async with rig(models=slow, timeout=2.0) as r:
        numbers = range(1, 1_001)
        assert await r.apply("s2", adds(*numbers)) == Acknowledged()
        await r.agrees("s2", *map(entry, numbers))


async def test_an_old_batch_stops_in_the_middle_when_the_fence_rises() -> None:
    async with rig(models={"s2": SwitchModel(rate=2_000.0)}, window=100) as r:
        switch = r.network.switches["s2"]
        spy = Spy(switch, 150)
        old = asyncio.create_task(r.apply("s2", adds(*range(1, 1_001))))
        await spy.seen.wait()
        await r.driver.raise_epoch("p", 2)
        with pytest.raises(StaleEpoch):
            await old
        outcomes = await r.driver.reconcile("p", 2, {"s2": [entry(7)]})
        assert outcomes["s2"] == Acknowledged()
        await r.agrees("s2", entry(7))


async def test_what_was_declared_after_a_lost_batch_stays_declared() -> None:
    async with rig() as r:
        switch, agent = r.network.switches["s2"], r.network.agents["s2"]
        switch.ignore_barriers()
        spy = Spy(switch, 2)
        old = asyncio.create_task(r.apply("s2", adds(1, 2)))
        await spy.seen.wait()
        await r.driver.raise_epoch("p", 2)
        new = asyncio.create_task(r.driver.reconcile("p", 2, {"s2": [entry(1), entry(3)]}))
        await asyncio.wait([new], timeout=0)
        agent.drop(0)
        switch.behave()
        assert isinstance(await old, Undefined)
        await new
        await r.back("s2")
        await r.agrees("s2", entry(1), entry(3))


async def test_a_batch_that_cannot_be_encoded_fails_and_the_next_one_goes_on() -> None:
    async with rig() as r:
        wrong = FlowEntry(1, 1 << 20, None, (Output(1),))
        outcome = await r.apply("s2", [FlowOp(Change.ADD, wrong)])
        assert isinstance(outcome, Failed)
        assert await r.apply("s2", adds(1)) == Acknowledged()
        await r.agrees("s2", entry(1))


async def test_who_has_given_way_stays_so_until_it_claims_a_new_generation() -> None:
    pipeline = Pipeline().extended(LINE)
    first = DriverOptions(port=0, timeout=WAIT, generation=1)
    second = DriverOptions(port=0, timeout=WAIT, generation=2)
    async with (
        OpenFlowDriver(LINE, pipeline, lambda _: "p", {}, first) as old,
        OpenFlowDriver(LINE, pipeline, lambda _: "p", {}, second) as new,
    ):
        both = [("127.0.0.1", old.port), ("127.0.0.1", new.port)]
        async with EmulatedNetwork(LINE, both) as network:
            await all_up(new, LINE)
            given_way: set[str] = set()
            while len(given_way) < 3:
                event = await next_event(old, MastershipLost)
                assert isinstance(event, MastershipLost)
                given_way.add(event.switch)
            network.agents["s2"].restart()  # the switch forgets whose generation was higher
            await next_event(new, SwitchUp)
            assert (await new.apply("p", 1, {"s2": adds(1)}))["s2"] == Acknowledged()
            assert isinstance((await old.apply("p", 1, {"s2": adds(2)}))["s2"], Undefined)
            old.claim(3)
            await all_up(old, LINE)
            assert (await old.apply("p", 2, {"s2": adds(2)}))["s2"] == Acknowledged()


async def test_a_switch_that_left_the_network_is_asked_nothing_any_more() -> None:
    async with rig() as r:
        shorter = LINE.without_switch("s3")
        await r.driver.set_network(shorter, r.pipeline)
        outcomes = await r.driver.reconcile("p", 1, {"s1": [entry(1)]})
        assert outcomes == {"s1": Acknowledged(), "s2": Acknowledged()}
        assert r.driver.connected() == {"s1", "s2"}


async def test_a_host_that_moves_to_another_port_costs_a_group() -> None:
    async with rig() as r:
        moved = LINE.with_host(Host("h2", "s2", 40))
        await r.driver.set_network(moved, r.pipeline.extended(moved))
        groups = await r.driver.connection("s2").group_descs()
        assert [group.port for group in groups] == [40]


async def test_a_link_that_goes_down_is_told() -> None:
    async with rig() as r:
        link = LINE.links[0]
        r.network.set_link(link, up=False)
        event = await next_event(r.driver, PortStateChanged)
        assert isinstance(event, PortStateChanged)
        assert not event.up
        assert (event.switch, event.port) in link.ends


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
        await work.check_events(plane, 40)  # tables stay while nobody is connected
        plane.lab.reconnect("s3")
        await next_event(driver, SwitchUp)
        await work.check_tables(plane)
