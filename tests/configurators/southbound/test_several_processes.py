"""Southbound processes that share the switches of a network."""

import asyncio

import pytest

from configurators.southbound.process import SouthboundProcess
from configurators.southbound.rendezvous import share
from configurators.state.network import first_network
from configurators.store.documents import decode_process
from configurators.store.etcd.client import Etcd
from configurators.store.keys import GENERATION, SOUTHBOUND
from configurators.store.registration import Superseded
from sdn.emulator import EmulatedNetwork
from sdn.openflow.driver import DriverOptions, OpenFlowDriver
from sdn.outcomes import Acknowledged, Undefined
from tests.configurators.southbound.support import (
    FOUR,
    LINE,
    NAMES,
    TOKEN,
    adds,
    child,
    client,
    controllers,
    entry,
    line,
    on_switch,
    process,
    published,
    store,
)
from tests.etcd import TestEtcd
from tests.support import WAIT, until


def test_shares_are_disjoint_complete_and_stable() -> None:
    switches = [f"s{n}" for n in range(100)]
    everybody = {"b1", "b2", "b3"}
    shares = {me: share(switches, everybody, me) for me in everybody}
    assert sorted(s for mine in shares.values() for s in mine) == sorted(switches)
    assert all(len(mine) <= 34 for mine in shares.values())
    for me in ("b1", "b2"):
        assert len(shares[me] & share(switches, {"b1", "b2"}, me)) > 20
    assert share(switches, {"b1"}, "b1") == set(switches)


async def test_two_processes_share_the_switches_and_one_takes_over(etcd_server: TestEtcd) -> None:
    both = {me: share([s.id for s in FOUR.switches], {"b1", "b2"}, me) for me in ("b1", "b2")}
    assert all(both.values())

    access = etcd_server.access()
    epoch = await store(access, FOUR)
    async with EmulatedNetwork(FOUR) as network, process(access, "b1") as one:
        async with process(access, "b2") as two, client(one.listen) as c:
            # The first must have heard of the second: it would claim all switches that connect.
            await c.until(lambda report: {*report.switches, *report.down} == both["b1"])
            network.set_controllers(controllers(one, two))
            async with client(two.listen) as d:
                await c.holding(*both["b1"])
                await d.holding(*both["b2"])
                for end, me in ((c, "b1"), (d, "b2")):
                    await end.declare(epoch)
                    applied = await end.apply({s: adds(1) for s in both[me]}, epoch)
                    assert set(applied.outcomes.values()) == {Acknowledged()}
                foreign = await c.apply({s: adds(2) for s in both["b2"]}, epoch)
                assert all(isinstance(o, Undefined) for o in foreign.outcomes.values())
                assert c.report is not None
                assert not c.report.down
        # The second one is gone; the first has its switches, and nothing on them is lost.
        async with client(one.listen) as c:
            await c.holding(*both["b1"], *both["b2"])
            for switch in both["b2"]:
                assert await on_switch(c, switch) == {entry(1)}
            taken = sorted(both["b2"])
            outcome = (await c.apply({taken[0]: adds(2)}, epoch)).outcomes[taken[0]]
            assert isinstance(outcome, Undefined)
            await c.declare(epoch, {s: [entry(1)] for s in taken}, taken)
            everywhere = both["b1"] | both["b2"]
            applied = await c.apply({s: adds(2) for s in everywhere}, epoch)
            assert applied.outcomes == dict.fromkeys(everywhere, Acknowledged())
            for switch in everywhere:
                assert await on_switch(c, switch) == {entry(1), entry(2)}


async def test_a_process_that_comes_gets_its_share_and_they_count_as_new(
    etcd_server: TestEtcd,
) -> None:
    both = {me: share([s.id for s in FOUR.switches], {"b1", "b2"}, me) for me in ("b1", "b2")}

    access = etcd_server.access()
    epoch = await store(access, FOUR)
    everywhere = both["b1"] | both["b2"]
    async with (
        EmulatedNetwork(FOUR) as network,
        process(access, "b1") as one,
        client(one.listen) as c,
    ):
        network.set_controllers(controllers(one))
        await c.holding(*everywhere)
        await c.declare(epoch)
        await c.apply({s: adds(1) for s in everywhere}, epoch)
        # From then on, a switch is the other's when it has been connected to it for a while.
        await published(access, "b1", lambda it: set(it.connected) == everywhere)
        async with process(access, "b2", stable_after=0.2) as two, client(two.listen) as d:
            network.set_controllers(controllers(one, two))
            await c.holding(*both["b1"])
            await d.holding(*both["b2"])
            await d.declare(epoch, {s: [entry(2)] for s in both["b2"]})
            for switch in both["b2"]:
                assert await on_switch(d, switch) == {entry(2)}
        # What the other has made of them meanwhile stays, until it is declared again.
        await c.holding(*everywhere)
        for switch in both["b2"]:
            assert await on_switch(c, switch) == {entry(2)}
        gone = [set(h.switches) | h.down.keys() for h in c.seen]
        assert both["b1"] in gone


async def test_the_switches_of_a_killed_process_are_taken_over(etcd_server: TestEtcd) -> None:
    both = {me: share([s.id for s in FOUR.switches], {"b1", "b2"}, me) for me in ("b1", "b2")}

    access = etcd_server.access()
    epoch = await store(access, FOUR)
    async with (
        EmulatedNetwork(FOUR) as network,
        process(access, "b1") as one,
        client(one.listen) as c,
    ):
        async with child(access, "b2") as two, client(two.listen) as d:
            network.set_controllers(controllers(one, two))
            await c.holding(*both["b1"])

            async def added() -> bool:
                """Not if it has stood still for a moment, and lost its switches with its lease."""
                await d.holding(*both["b2"])
                await d.declare(epoch)
                applied = await d.apply({s: adds(1) for s in both["b2"]}, epoch)
                return applied.outcomes == dict.fromkeys(both["b2"], Acknowledged())

            await until(added)
            await two.kill()
            await asyncio.wait_for(d.stream.closed.wait(), WAIT)
        await c.holding(*both["b1"], *both["b2"])
        for switch in both["b2"]:
            assert await on_switch(c, switch) == {entry(1)}


async def test_of_two_processes_with_one_id_the_later_one_stays(etcd_server: TestEtcd) -> None:
    access = etcd_server.access()
    await store(access)
    first = SouthboundProcess(access, TOKEN, "b1", "127.0.0.1:0", "127.0.0.1:0")
    working = asyncio.create_task(first.run(asyncio.Event()))
    async with asyncio.timeout(WAIT):
        await first.ready.wait()
    async with process(access, "b1") as second:
        with pytest.raises(Superseded):
            await asyncio.wait_for(working, WAIT)
        async with Etcd(access) as etcd:
            stored = await etcd.get(SOUTHBOUND + "b1")
            assert stored
            assert decode_process(stored.value).address == second.listen


async def test_a_process_that_lost_its_lease_registers_again_and_releases_its_switches(
    etcd_server: TestEtcd,
) -> None:
    access = etcd_server.access()
    async with line(access, ttl=6) as (c, epoch, *_), Etcd(access) as etcd:
        await c.declare(epoch)
        await c.apply({"s1": adds(1)}, epoch)
        registered = await etcd.get(SOUTHBOUND + "b1")
        assert registered
        await etcd.revoke(registered.lease)
        await c.until(lambda h: not h.switches and not h.down)
        await c.holding(*NAMES)
        again = await etcd.get(SOUTHBOUND + "b1")
        assert again
        assert again.revision > registered.revision
        assert isinstance((await c.apply({"s1": adds(2)}, epoch)).outcomes["s1"], Undefined)
        assert await on_switch(c, "s1") == {entry(1)}


async def test_a_switch_is_claimed_back_from_a_process_that_is_not_responsible_for_it(
    etcd_server: TestEtcd,
) -> None:
    access = etcd_server.access()
    async with line(access) as (c, epoch, network, p), Etcd(access) as etcd:
        await c.declare(epoch)
        seen = len(c.seen)

        def was_missing(switch: str) -> bool:
            return any(switch not in {*h.switches, *h.down} for h in c.seen[seen:])

        generation = await etcd.put(GENERATION, b"somebody")
        pipeline = first_network(LINE, "legs", 1).pipeline
        settings = DriverOptions(port=0, timeout=WAIT, generation=generation, discover=False)
        async with OpenFlowDriver(LINE, pipeline, lambda _: None, {}, settings) as other:
            network.set_controllers([*controllers(p), ("127.0.0.1", other.port)])
            # In between it does not hold it, so that it counts as new.
            await c.until(lambda _: all(map(was_missing, NAMES)))
            await c.holding(*NAMES)
        outcome = (await c.apply({"s1": adds(2)}, epoch)).outcomes["s1"]
        assert isinstance(outcome, Undefined)
        await c.declare(epoch)
        applied = await c.apply({"s1": adds(2)}, epoch)
        assert applied.outcomes == {"s1": Acknowledged()}
