"""Groups of hosts that are gone: entries whose owners do not know that yet may use them."""

from sdn.outcomes import Acknowledged
from sdn.tables.flows import Change, FlowEntry, FlowOp, Output, ToGroup
from sdn.tables.pipeline import MATCH_PRIORITY
from tests.sdn.southbound.support import LINE, Rig, entry, reconcile, rig

GONE = LINE.without_host("h2")


async def remove_host(r: Rig) -> None:
    await r.driver.set_network(GONE, r.pipeline.extended(GONE))


def group_of(r: Rig) -> int:
    """The group of h2 at s2."""
    (group,) = r.pipeline.unused(GONE)["s2"].groups
    return group


def to_host(r: Rig) -> FlowEntry:
    """An entry that sends to h2 and to the next switch, as the plan `lpm` makes them."""
    actions = (Output(1), ToGroup(group_of(r)))
    return FlowEntry(2, MATCH_PRIORITY, entry(1).match, actions)


async def has_group(r: Rig) -> bool:
    groups = await r.driver.connection("s2").group_descs()
    return group_of(r) in {group.group for group in groups}


async def test_a_group_stays_while_entries_of_a_partition_use_it_that_was_not_declared() -> None:
    async with rig() as r:
        r.network.switches["s2"].change(FlowOp(Change.ADD, to_host(r)))
        await remove_host(r)
        assert await r.driver.audit("s2") == {"s2": Acknowledged()}
        assert await has_group(r)
        assert to_host(r) in await r.driver.read("s2")
        # The owner of the partition did not know yet that the host is gone.
        outcomes = await reconcile(r.driver, "p", 1, {"s2": [to_host(r)]})
        assert outcomes["s2"] == Acknowledged()
        assert await has_group(r)
        assert await r.apply("s2", [FlowOp(Change.DELETE, to_host(r))]) == Acknowledged()
        assert await r.driver.audit("s2") == {"s2": Acknowledged()}
        assert not await has_group(r)


async def test_entries_to_a_group_that_is_gone_do_without_it() -> None:
    async with rig() as r:
        await remove_host(r)
        assert not await has_group(r)
        outcomes = await reconcile(r.driver, "p", 1, {"s2": [to_host(r)]})
        assert outcomes["s2"] == Acknowledged()
        left = FlowEntry(2, MATCH_PRIORITY, entry(1).match, (Output(1),))
        await r.agrees("s2", left)
        assert await r.driver.audit("s2") == {"s2": Acknowledged()}
        # The owner hears of the network, and changes the entry.
        assert await r.apply("s2", [FlowOp(Change.MODIFY, left)]) == Acknowledged()
        await r.agrees("s2", left)


async def test_operations_that_send_to_a_group_that_is_gone_do_without_it() -> None:
    async with rig() as r:
        await remove_host(r)
        only = FlowEntry(2, MATCH_PRIORITY, entry(2).match, (ToGroup(group_of(r)),))
        ops = [FlowOp(Change.ADD, each) for each in (to_host(r), only, entry(3))]
        # Otherwise an owner that has to bring back such an entry would try for ever.
        assert await r.apply("s2", ops) == Acknowledged()
        left = FlowEntry(2, MATCH_PRIORITY, entry(1).match, (Output(1),))
        nothing = FlowEntry(2, MATCH_PRIORITY, entry(2).match, ())
        await r.agrees("s2", left, nothing, entry(3))
        assert await r.driver.audit("s2") == {"s2": Acknowledged()}
        await r.agrees("s2", left, nothing, entry(3))
        removals = [FlowOp(Change.DELETE, each) for each in (to_host(r), only)]
        assert await r.apply("s2", removals) == Acknowledged()
        await r.agrees("s2", entry(3))
