"""Declarations and audits: the driver finds differences, and repairs nothing else."""

import asyncio
from typing import Any

import pytest

from sdn.fence import StaleEpoch
from sdn.network.events import (
    Repaired,
)
from sdn.openflow.protocol.constants import ALL_TABLES, V1_4
from sdn.outcomes import Acknowledged, Undefined
from sdn.tables.flows import COOKIE_MARK, Change, FlowEntry, FlowOp, Output
from tests.sdn.southbound.support import (
    adds,
    drop_events,
    entry,
    next_event,
    reconcile,
    rig,
)


async def test_a_waiting_batch_is_not_sent_when_its_partition_is_declared() -> None:
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


async def test_the_audit_finds_what_a_lying_switch_has_not_done() -> None:
    async with rig(audit_every=0.1) as r:
        drop_events(r.driver)
        r.network.switches["s2"].lose(lambda mod: mod.cookie >> 48 == COOKIE_MARK, times=2)
        assert await r.apply("s2", adds(1, 2, 3)) == Acknowledged()
        repaired = await next_event(r.driver, Repaired)
        assert repaired == Repaired("s2", 2)
        await r.agrees("s2", entry(1), entry(2), entry(3))


async def test_entries_of_other_applications_stay_as_they_are() -> None:
    async with rig() as r:
        switch = r.network.switches["s2"]
        theirs = FlowEntry(1, 7, None, (Output(3),))
        switch.change(FlowOp(Change.ADD, theirs), cookie=0x1234)
        before = set(switch.entries())
        await r.apply("s2", adds(1))
        await r.driver.audit("s2")
        await reconcile(r.driver, "p", 1, {})
        assert set(switch.entries()) == before


async def test_the_flow_monitor_reports_a_foreign_change_at_once() -> None:
    async with rig(version=V1_4, audit_every=1e6) as r:
        await r.apply("s2", adds(1, 2))
        drop_events(r.driver)
        r.network.switches["s2"].change(FlowOp(Change.DELETE, entry(1)))
        assert await next_event(r.driver, Repaired) == Repaired("s2", 1)
        r.network.switches["s2"].change(FlowOp(Change.MODIFY, entry(2, port=9)))
        assert await next_event(r.driver, Repaired) == Repaired("s2", 1)
        await r.agrees("s2", entry(1), entry(2))


async def test_an_audit_sends_the_difference_only() -> None:
    async with rig() as r:
        await r.apply("s2", adds(1, 2, 3))
        drop_events(r.driver)
        expected = {"s2": [entry(2), entry(3, port=5), entry(4)]}
        outcomes = await reconcile(r.driver, "p", 1, expected)
        assert set(outcomes.values()) == {Acknowledged()}
        assert await next_event(r.driver, Repaired) == Repaired("s2", 3)
        await r.agrees("s2", *expected["s2"])
        assert r.driver.events.empty()  # the others had nothing to repair


async def test_one_audit_covers_several_declarations() -> None:
    async with rig() as r:
        await r.apply("s2", adds(1, 2))
        drop_events(r.driver)
        await r.driver.declare("p", 1, {"s2": [entry(2)]})
        await r.driver.declare("q", 1, {"s2": [entry(3)], "s1": [entry(4)]}, ["s2"])
        await r.agrees("s2", entry(1), entry(2))  # nothing was sent yet
        assert set((await r.driver.audit("s1", "s2")).values()) == {Acknowledged()}
        assert await next_event(r.driver, Repaired) == Repaired("s2", 2)
        await r.agrees("s2", entry(2), entry(3))
        await r.agrees("s1")  # for it, nothing was declared
        await r.driver.raise_epoch("p", 5)
        with pytest.raises(StaleEpoch):
            await r.driver.declare("p", 4, {})


async def test_callers_that_arrive_during_an_audit_share_the_next_one() -> None:
    async with rig() as r:
        connection = r.driver.connection("s2")
        asked = 0
        read = connection.flow_stats

        async def counted(table: int = ALL_TABLES) -> Any:
            nonlocal asked
            asked += 1
            return await read(table)

        connection.flow_stats = counted  # type: ignore[method-assign]
        await asyncio.gather(*(r.driver.audit("s2") for _ in range(20)))
        assert asked <= 2
