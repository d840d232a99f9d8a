"""Which tables and groups of a switch are not used: the condition for giving them to others."""

import pytest

from sdn.network.events import SwitchDown
from sdn.openflow.connections.connection import ConnectionLost
from sdn.outcomes import Acknowledged
from sdn.tables.flows import Change, FlowEntry, FlowOp, Output, ToGroup
from sdn.tables.pipeline import MATCH_PRIORITY, SwitchNumbers
from tests.sdn.southbound.support import LINE, Rig, entry, next_event, reconcile, rig

GONE = LINE.without_host("h2")


def numbers_of(r: Rig) -> SwitchNumbers:
    """The table and the group of h2 at s2."""
    return r.pipeline.unused(GONE)["s2"]


async def remove_host(r: Rig) -> None:
    await r.driver.set_network(GONE, r.pipeline.extended(GONE))


def to_host(r: Rig) -> FlowEntry:
    """An entry of h2's leg."""
    (table,), (group,) = numbers_of(r).tables, numbers_of(r).groups
    return FlowEntry(table, MATCH_PRIORITY, entry(1).match, (ToGroup(group),), table + 1)


async def test_numbers_are_vacant_when_there_are_only_misses_left() -> None:
    async with rig() as r:
        await remove_host(r)
        assert await r.driver.vacant("s2", numbers_of(r)) == numbers_of(r)


async def test_a_present_host_keeps_its_group() -> None:
    async with rig() as r:
        numbers = numbers_of(r)
        assert await r.driver.vacant("s2", numbers) == SwitchNumbers(numbers.tables)


async def test_what_a_partition_has_there_is_in_use() -> None:
    async with rig() as r:
        await reconcile(r.driver, "p", 1, {"s2": [to_host(r)]})
        await remove_host(r)
        assert await r.driver.vacant("s2", numbers_of(r)) == SwitchNumbers()
        assert await r.apply("s2", [FlowOp(Change.DELETE, to_host(r))]) == Acknowledged()
        assert await r.driver.vacant("s2", numbers_of(r)) == numbers_of(r)


async def test_what_a_switch_has_lost_and_will_get_again_is_in_use() -> None:
    async with rig() as r:
        await reconcile(r.driver, "p", 1, {"s2": [to_host(r)]})
        await remove_host(r)
        r.network.switches["s2"].change(FlowOp(Change.DELETE, to_host(r)))
        assert await r.driver.vacant("s2", numbers_of(r)) == SwitchNumbers()


async def test_entries_of_partitions_that_nobody_has_declared_are_in_use() -> None:
    async with rig() as r:
        numbers = numbers_of(r)
        (table,) = numbers.tables
        unknown = FlowEntry(table, MATCH_PRIORITY, entry(1).match, (Output(1),), table + 1)
        r.network.switches["s2"].change(FlowOp(Change.ADD, unknown))
        await remove_host(r)
        assert await r.driver.vacant("s2", numbers) == SwitchNumbers(groups=numbers.groups)
        await r.driver.declare("p", 1, {})
        assert await r.driver.vacant("s2", numbers_of(r)) == numbers_of(r), "they are removed"


async def test_a_switch_that_is_down_tells_nothing() -> None:
    async with rig() as r:
        await remove_host(r)
        r.network.agents["s2"].drop()
        await next_event(r.driver, SwitchDown)
        with pytest.raises(ConnectionLost, match="switch s2 is not up"):
            await r.driver.vacant("s2", numbers_of(r))
