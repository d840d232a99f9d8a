"""Full tables: make-before-break, and another try when there is room."""

import asyncio

import pytest

from sdn.emulator.model import SwitchModel
from sdn.fence import StaleEpoch
from sdn.network.events import RefusalChanged, Repaired
from sdn.outcomes import Acknowledged, Failed, Undefined
from sdn.tables.flows import Change, FlowOp
from tests.sdn.southbound.support import (
    FlowModsReceived,
    adds,
    all_up,
    coarse,
    deletes,
    entry,
    next_event,
    rig,
)


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


async def test_an_entry_stays_if_a_full_table_refuses_its_replacement() -> None:
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


async def test_a_held_removal_is_not_sent_when_its_partition_is_declared() -> None:
    async with rig(models={"s2": SwitchModel(table_capacity=6)}) as r:  # half of it is used
        assert await r.apply("s2", adds(1)) == Acknowledged()
        seen = FlowModsReceived(r.network.switches["s2"], 1).seen
        ops = [FlowOp(Change.ADD, coarse()), *deletes(1)]
        applying = asyncio.create_task(r.apply("s2", ops))
        await seen.wait()
        await r.driver.declare("p", 1, {"s2": [entry(1)]}, ["s2"])
        assert isinstance(await applying, Undefined)
        assert await r.driver.audit("s2") == {"s2": Acknowledged()}
        await r.agrees("s2", entry(1))


async def test_an_audit_leaves_a_held_removal_alone() -> None:
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


async def test_a_held_removal_is_refused_when_the_fence_rises() -> None:
    async with rig(models={"s2": SwitchModel(table_capacity=6)}) as r:  # half of it is used
        assert await r.apply("s2", adds(1)) == Acknowledged()
        seen = FlowModsReceived(r.network.switches["s2"], 1).seen
        ops = [FlowOp(Change.ADD, coarse()), *deletes(1)]
        applying = asyncio.create_task(r.apply("s2", ops))
        await seen.wait()
        await r.driver.raise_epoch("p", 2)
        with pytest.raises(StaleEpoch):
            await applying
        assert entry(1) in await r.driver.read("s2")


async def test_an_entry_that_did_not_fit_is_added_when_a_deletion_makes_room() -> None:
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


async def test_an_entry_that_did_not_fit_is_tried_again() -> None:
    small = {"s2": SwitchModel(table_capacity=3)}  # one is the miss entry
    async with rig(models=small) as r:
        await r.driver.declare("p", 1, {"s2": [entry(1), entry(2), entry(3)]}, ["s2"])
        outcomes = await r.driver.audit("s2")
        assert isinstance(outcomes["s2"], Failed)
        r.network.switches[
            "s2"
        ].tables.model = SwitchModel()  # room that the switch does not report
        assert await next_event(r.driver, Repaired) == Repaired("s2", 1)
        await r.agrees("s2", entry(1), entry(2), entry(3))


async def test_the_driver_says_which_switches_refuse_entries_and_when_that_is_over() -> None:
    small = {"s2": SwitchModel(table_capacity=3)}  # one is the miss entry
    async with rig(models=small) as r:
        assert r.driver.refusing() == {}
        await r.driver.declare("p", 1, {"s2": [entry(1), entry(2), entry(3)]}, ["s2"])
        await r.driver.audit("s2")
        refusal = await next_event(r.driver, RefusalChanged)
        assert isinstance(refusal, RefusalChanged)
        assert r.driver.refusing() == {"s2": refusal.reason}
        r.network.switches["s2"].tables.model = SwitchModel()
        assert await next_event(r.driver, RefusalChanged) == RefusalChanged("s2", "")
        assert r.driver.refusing() == {}


async def test_a_full_table_is_repaired_with_a_gap_only_if_it_has_no_room() -> None:
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


async def test_a_switch_that_was_assigned_to_another_process_meanwhile_lacks_nothing() -> None:
    small = {"s2": SwitchModel(table_capacity=3)}  # one is the miss entry
    async with rig(models=small) as r:
        assert await r.apply("s2", adds(1, 2)) == Acknowledged()
        await r.driver.declare("p", 1, {"s2": [coarse()]}, ["s2"])
        assert isinstance((await r.driver.audit("s2"))["s2"], Failed)
        assert (await next_event(r.driver, RefusalChanged)).switch == "s2"
        r.driver.assign(["s1", "s3"], 2)
        assert await next_event(r.driver, RefusalChanged) == RefusalChanged("s2", "")
        r.driver.assign(["s1", "s2", "s3"], 3)
        await all_up(r.driver, ["s2"])
        # It is the first time again: what is there is kept.
        await r.driver.declare("p", 1, {"s2": [coarse()]}, ["s2"])
        assert isinstance((await r.driver.audit("s2"))["s2"], Failed)
        assert {entry(1), entry(2)} <= set(await r.driver.read("s2"))
