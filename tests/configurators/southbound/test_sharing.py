"""Southbound processes divide the switches by which are connected to them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from configurators.southbound.process import SouthboundProcess
from configurators.southbound.rendezvous import share
from configurators.store.documents import decode_connections, encode
from configurators.store.etcd.client import Access, Etcd
from configurators.store.keys import CONNECTIONS, wanted_key
from configurators.store.model import Connections, Wanted
from sdn.emulator import EmulatedNetwork
from tests.configurators.southbound.support import (
    FOUR,
    Client,
    child,
    client,
    controllers,
    process,
    published,
    store,
)
from tests.etcd import TestEtcd

NAMES = {switch.id for switch in FOUR.switches}
FIRST, SECOND = (share(NAMES, {"b1", "b2"}, me) for me in ("b1", "b2"))
QUICK = 0.2  # seconds after which a connection counts


def ever_lost(client: Client, since: int = 0) -> set[str]:
    """The switches that a process was not responsible for, at some time since a report."""
    return {name for seen in client.seen[since:] for name in NAMES - {*seen.switches, *seen.down}}


class Pair(NamedTuple):
    """Two southbound processes, a client of each, and switches that connect to both."""

    one: SouthboundProcess
    two: SouthboundProcess
    network: EmulatedNetwork
    c: Client
    d: Client


@asynccontextmanager
async def pair(access: Access) -> AsyncIterator[Pair]:
    await store(access, FOUR)
    async with (
        process(access, "b1", stable_after=QUICK) as one,
        process(access, "b2", stable_after=QUICK) as two,
        EmulatedNetwork(FOUR) as network,
        client(one.listen) as c,
        client(two.listen) as d,
    ):
        network.set_controllers(controllers(one, two))
        yield Pair(one, two, network, c, d)


async def test_a_new_process_gets_only_switches_that_connect_to_it(etcd_server: TestEtcd) -> None:
    access = etcd_server.access()
    await store(access, FOUR)
    async with (
        process(access, "b1", stable_after=QUICK) as one,
        EmulatedNetwork(FOUR, controllers(one)) as network,
        client(one.listen) as c,
    ):
        await c.holding(*NAMES)
        await published(access, "b1", lambda it: set(it.connected) == NAMES)
        before = len(c.seen)
        async with process(access, "b2", stable_after=QUICK) as two, client(two.listen) as d:
            await published(access, "b2", lambda it: it == Connections())
            assert ever_lost(c, before) == set()
            moved = min(SECOND)
            network.agents[moved].set_controllers(controllers(one, two))
            await d.holding(moved)
            await c.holding(*NAMES - {moved})
            assert d.report
            assert d.report.down == {}
            assert ever_lost(c, before) == {moved}
            network.set_controllers(controllers(one, two))
            await d.holding(*SECOND)
            await c.holding(*FIRST)
        await c.holding(*NAMES)


async def test_a_switch_that_is_connected_to_one_process_only_belongs_to_it(
    etcd_server: TestEtcd,
) -> None:
    access = etcd_server.access()
    odd = min(SECOND)
    async with pair(access) as it:
        one, _, network, c, d = it
        network.agents[odd].set_controllers(controllers(one))
        await c.holding(*FIRST, odd)
        await d.holding(*SECOND - {odd})
        # Both know of each other: at the start, each process takes the switches for its own.
        await published(access, "b1", lambda it: set(it.held) == {*FIRST, odd} <= {*it.connected})
        await published(access, "b2", lambda it: set(it.held) == SECOND - {odd})
        # It goes, and comes back: meanwhile it stays with the process that had it.
        seen = len(c.seen)
        network.agents[odd].drop()
        await c.until(lambda report: odd in report.down)
        await published(access, "b1", lambda it: it.away == (odd,))
        network.agents[odd].come_back()
        await c.holding(*FIRST, odd)
        assert odd not in ever_lost(c, seen)


async def test_the_other_process_takes_a_switch_whose_connection_is_lost_and_gives_it_back(
    etcd_server: TestEtcd,
) -> None:
    access = etcd_server.access()
    moved = min(FIRST)
    async with pair(access) as it:
        one, two, network, c, d = it
        await c.holding(*FIRST)
        await published(access, "b2", lambda it: set(it.connected) == NAMES)
        network.agents[moved].set_controllers(controllers(two))
        await d.holding(*SECOND, moved)
        await c.until(lambda report: set(report.switches) == FIRST - {moved} and not report.down)
        network.agents[moved].set_controllers(controllers(one, two))
        await c.holding(*FIRST)
        await d.holding(*SECOND)


async def test_a_process_that_leaves_gives_its_switches_up(etcd_server: TestEtcd) -> None:
    access = etcd_server.access()
    only = min(SECOND)
    async with Etcd(access) as etcd, pair(access) as it:
        one, two, network, c, d = it
        network.agents[only].set_controllers(controllers(two))
        await c.holding(*FIRST)
        await d.holding(*SECOND)
        await published(access, "b1", lambda it: set(it.connected) == NAMES - {only})
        await etcd.put(wanted_key("southbound"), encode(Wanted(1)))
        await c.holding(*NAMES - {only})
        await d.holding(only)
        assert (await published(access, "b2", lambda it: len(it.held) == 1)).held == (only,)
        # It has the last one until the switch is connected to another process, too.
        network.agents[only].set_controllers(controllers(one, two))
        await c.holding(*NAMES)
        await published(access, "b2", lambda it: it.held == ())
        await etcd.put(wanted_key("southbound"), encode(Wanted(2)))
        await d.holding(*SECOND)
        await c.holding(*FIRST)


async def test_a_process_that_ends_hands_its_switches_over_before(etcd_server: TestEtcd) -> None:
    access = etcd_server.access()
    only = min(SECOND)
    await store(access, FOUR)
    async with (
        process(access, "b1", stable_after=QUICK) as one,
        EmulatedNetwork(FOUR) as network,
        client(one.listen) as c,
        Etcd(access) as etcd,
    ):
        async with process(access, "b2", stable_after=QUICK, drain=60.0) as two:
            network.set_controllers(controllers(one, two))
            network.agents[only].set_controllers(controllers(two))
            await c.holding(*FIRST)
            await published(access, "b1", lambda it: set(it.connected) == NAMES - {only})
            await published(access, "b2", lambda it: set(it.held) == SECOND)
        # It has ended, and the other one has the switches by now that are connected to both.
        stored = await etcd.get(CONNECTIONS + "b1")
        assert stored
        assert set(decode_connections(stored.value).held) == NAMES - {only}
        network.agents[only].set_controllers(controllers(one))
        await c.holding(*NAMES)


async def test_a_process_that_is_restarted_soon_finds_its_switches_as_they_were(
    etcd_server: TestEtcd,
) -> None:
    access = etcd_server.access()
    await store(access, FOUR)
    async with (
        process(access, "b1") as one,
        EmulatedNetwork(FOUR) as network,
        client(one.listen) as c,
    ):
        async with child(access, "b2", ttl=60) as two, client(two.listen) as d:
            network.set_controllers(controllers(one, two))
            await d.holding(*SECOND)
            await c.holding(*FIRST)
            await published(access, "b1", lambda it: set(it.connected) == NAMES)
            await published(access, "b2", lambda it: set(it.connected) == NAMES)
        seen = len(c.seen)
        async with (
            # It waits for its switches, which may be slow to connect again.
            child(access, "b2", two.openflow, ttl=6, stable_after=5.0) as again,
            client(again.listen) as d,
        ):
            await d.holding(*SECOND)
            await published(access, "b2", lambda it: set(it.connected) == NAMES)
            assert ever_lost(c, seen) <= SECOND, "the first one has kept its own"
            assert not any(SECOND & {*it.switches, *it.down} for it in c.seen[seen:])
            await again.kill()
            # Its lease ends, and the first one is alone.
            await c.holding(*NAMES)
