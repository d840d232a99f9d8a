"""The network changes, or is found: base entries and host legs follow."""

import asyncio

import pytest
from msgspec.structs import replace

from sdn.network.topologies import topology
from sdn.network.topology import Host, Topology
from sdn.onos.client import OnosUnreachable
from sdn.onos.trees import TreeNotInUse
from sdn.outcomes import Acknowledged, Undefined
from sdn.tables.pipeline import Pipeline
from tests.onos_standin import Behaviour
from tests.sdn.onos.support import (
    DELIVER,
    DONE,
    EVENT,
    LET_IN,
    LINE,
    ON,
    PIPELINE,
    QUICK,
    SCOPE,
    add,
    delete,
    forward,
    out,
    stage,
    to_host,
    wired,
)


async def test_the_network_is_found_as_it_is() -> None:
    ring = topology("ring:4")

    async with stage(ring) as on:
        found = await on.driver.discover()
        assert found.switches == ring.switches
        assert found.links == ring.links
        assert [(h.id, h.switch, h.port) for h in found.hosts] == [
            (h.id, h.switch, h.port) for h in ring.hosts
        ]
        gone = ring.links[0]
        on.network.set_link(gone, up=False)
        assert (await on.driver.discover()).links == ring.links[1:]
        await on.onos.stop()
        with pytest.raises(OnosUnreachable):
            await on.driver.discover()


async def test_a_host_that_moves_to_another_port_gets_its_events_there() -> None:
    there = LINE.with_host(Host("h2", "s2", 9))

    async with stage(
        there
    ) as on:  # the emulated host is at port 9, but the driver does not know yet
        await on.driver.set_network(LINE, PIPELINE)
        await wired(on)
        assert on.reached("h1", EVENT) == {}
        await on.driver.set_network(there, PIPELINE.extended(there))
        assert on.writes() == {"POST": 1, "DELETE": 0}
        assert on.reached("h1", EVENT) == {"h2": 1}
        assert set(await on.driver.read("s2")) == on.expected("s2", DELIVER)


async def test_a_host_that_is_gone_gets_nothing_and_nobody_else_does() -> None:
    both = LINE.with_host(Host("h3", "s2", 3))
    pipeline = Pipeline(plan="lpm").extended(both)
    deliver = forward(pipeline, "0", to_host(pipeline, "s2", "h2"), to_host(pipeline, "s2", "h3"))

    async with stage(both) as on:
        batch = {"s1": add(LET_IN, ON), "s2": add(deliver)}
        assert await on.driver.apply("p7", 1, batch) == DONE
        assert on.reached("h1", EVENT) == {"h2": 1, "h3": 1}
        await on.driver.set_network(LINE, pipeline)
        assert on.reached("h1", EVENT) == {"h2": 1}
        on.onos.requests.clear()
        assert await on.driver.audit("s2") == {"s2": Acknowledged()}
        assert on.writes() == {"POST": 0, "DELETE": 0}
        # When the host is back, so are its events.
        await on.driver.set_network(both, pipeline)
        assert on.reached("h1", EVENT) == {"h2": 1, "h3": 1}
        assert await on.driver.apply("p7", 1, {"s2": delete(deliver)}) == {"s2": Acknowledged()}


async def test_base_entries_follow_the_links() -> None:
    ring = topology("ring:3")
    pipeline = Pipeline(plan="lpm").extended(ring)

    async with stage(ring) as on:
        less = Topology.build(ring.switches, ring.links[1:], ring.hosts)
        await on.driver.set_network(less, pipeline)
        for switch in ring.switches:
            expected = set(pipeline.base_entries(less, switch.id))
            assert set(await on.driver.read(switch.id)) == expected


async def test_switches_come_and_go_with_the_topology() -> None:
    longer = topology("line:3")
    pipeline = Pipeline(plan="lpm").extended(longer)
    short = Topology.build(longer.switches[:2], longer.links[:1], longer.hosts[:2])

    async with stage(longer) as on:
        await on.driver.set_network(short, pipeline)
        assert on.driver.connected() == {"s1", "s2"}
        on.onos.drop_rules("s3")
        await on.driver.set_network(longer, pipeline)
        assert on.driver.connected() == {"s1", "s2", "s3"}
        assert set(await on.driver.read("s3")) == on.expected("s3")
        renumbered = Topology.build(
            [replace(s, dpid=s.dpid + 40) for s in longer.switches], longer.links, longer.hosts
        )
        await on.driver.set_network(renumbered, pipeline)
        assert on.driver.connected() == set()


async def test_a_switch_that_is_away_follows_when_it_is_back() -> None:
    longer = LINE.with_host(Host("h3", "s2", 3))

    async with stage(longer) as on:
        await on.driver.set_network(LINE, PIPELINE)
        on.onos.disconnect("s2")
        await on.driver.check_devices()
        await on.driver.set_network(longer, PIPELINE.extended(longer))
        assert on.driver.connected() == {"s1"}
        on.onos.connect("s2")
        await on.driver.check_devices()
        pipeline = PIPELINE.extended(longer)
        entry = forward(pipeline, "0", to_host(pipeline, "s2", "h3"))
        assert await on.driver.apply("p7", 1, {"s2": add(entry)}) == {"s2": Acknowledged()}


async def test_events_are_let_in_on_the_trees_in_use_and_no_others() -> None:
    async with stage(LINE, replace(QUICK, trees=(0,))) as on:
        await wired(on)
        assert sum(rule.key.in_port == 2 for rule in on.onos.rules("s1")) == 1
        new = [forward(PIPELINE, "0", *out(1), tree=5)]
        with pytest.raises(TreeNotInUse):
            await on.driver.apply("p7", 1, {"s1": add(*new)})
        # A tree takes a free number, its entries are added, the old one's go.
        await on.driver.set_network(LINE, PIPELINE, trees=(0, 5))
        assert on.writes() == {"POST": 1, "DELETE": 0}
        arriving = forward(PIPELINE, "0", to_host(PIPELINE, "s2", "h2"), tree=5)
        batch = {"s1": add(*new), "s2": add(arriving)}
        assert await on.driver.apply("p7", 1, batch) == DONE
        assert on.reached("h1", EVENT) == {"h2": 1}
        assert on.reached("h1", SCOPE.event(0, 5)) == {"h2": 1}
        await on.driver.set_network(LINE, PIPELINE, trees=(5,))
        assert on.reached("h1", EVENT) == {}
        batch = {"s1": delete(ON), "s2": delete(DELIVER)}
        assert await on.driver.apply("p7", 1, batch) == DONE
        assert on.reached("h1", SCOPE.event(0, 5)) == {"h2": 1}
        assert set(await on.driver.read("s1")) == on.expected("s1", LET_IN, *new)


async def test_work_before_and_after_a_change_of_the_network_keeps_its_order() -> None:
    moved = LINE.with_host(Host("h2", "s2", 9))

    async with stage(moved) as on:
        await on.driver.set_network(LINE, PIPELINE)
        on.onos.requests.clear()
        on.onos.set_behaviour("s2", Behaviour.STUCK)
        before = asyncio.create_task(on.driver.apply("p7", 1, {"s2": add(DELIVER)}))
        await on.until_asked("POST")
        changing = asyncio.create_task(on.driver.set_network(moved, PIPELINE))
        after = asyncio.create_task(
            on.driver.apply("p7", 1, {"s2": add(LET_IN), "s1": add(LET_IN, ON)})
        )
        await on.until_asked("GET", 5)
        on.onos.set_behaviour("s2", Behaviour.NORMAL)
        assert await before == {"s2": Acknowledged()}
        await changing
        assert await after == DONE
        assert on.reached("h1", EVENT) == {"h2": 1}


async def test_a_change_that_onos_does_not_confirm_makes_the_switch_wait() -> None:
    moved = LINE.with_host(Host("h2", "s2", 9))

    async with stage(moved, replace(QUICK, confirm=0.05)) as on:
        await on.driver.set_network(LINE, PIPELINE)
        await wired(on)
        on.onos.set_behaviour("s2", Behaviour.STUCK)
        await on.driver.set_network(moved, PIPELINE)
        assert on.driver.connected() == {"s1"}
        outcomes = await on.driver.apply("p7", 1, {"s2": add(DELIVER)})
        assert isinstance(outcomes["s2"], Undefined)
        on.onos.set_behaviour("s2", Behaviour.NORMAL)
        await on.driver.check_devices()
        assert on.reached("h1", EVENT) == {"h2": 1}
