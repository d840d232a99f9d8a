"""A network of which nothing is known at first: switches and links join it as they are found."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from configurators.store.documents import decode_network
from configurators.store.keys import NETWORK
from configurators.store.model import NetworkDoc
from dispatcher.calls import RecordSpec
from dispatcher.changes.damping import Patience
from dispatcher.dispatcher import Dispatcher
from dispatcher.errors import Conflict, NotFound
from sdn.network.topologies import topology
from sdn.network.topology import Host, Link
from tests.dispatcher.support import SCHEMA, TIMEOUT
from tests.dispatcher.whole import Whole, whole
from tests.etcd import TestEtcd
from tests.support import until

SOON = Patience(down_after=0.3, absent_after=20.0, back_after=0.3, silent_after=0.3)


@asynccontextmanager
async def discovering(
    server: TestEtcd,
    shape: str,
    trees: int = 1,
    southbound: int = 1,
    connect: bool = True,
    **options: Any,
) -> AsyncIterator[tuple[Whole, Dispatcher]]:
    """A control plane whose network has this shape, and is not known at first.

    Without `connect`, switches connect when the test says so.
    """
    how = {"settled_after": 0.3, "grace": 0.1, "patience": SOON} | options
    async with (
        whole(
            server.access(),
            shape,
            trees=trees,
            configurators=1,
            discovered=True,
            southbound=southbound,
            connect=connect,
        ) as w,
        w.dispatcher(**how) as d,
    ):
        yield w, d


async def stored(w: Whole) -> NetworkDoc:
    found = await w.etcd.get(NETWORK)
    assert found
    return decode_network(found.value)


async def settled(w: Whole, d: Dispatcher) -> NetworkDoc:
    """The network, once all is found, and no tree is being replaced."""
    there = w.network.topology

    async def whole_and_calm() -> bool:
        doc = await stored(w)
        return (
            doc.switches == there.switches
            and doc.links == there.links
            and len(d.status.topology().trees) == len(doc.trees) == len(doc.usable)
            and not any(tree.more_roots for tree in doc.trees.values())
            and all(switch.state == "up" for switch in d.status.switches())
        )

    await until(whole_and_calm)
    return await stored(w)


async def join_hosts(d: Dispatcher, shape: str) -> None:
    """Declare the hosts of the emulated network, as an operator does."""
    for host in topology(shape).hosts:
        await d.hosts.put(Host(host.id, host.switch, host.port))


async def test_a_network_is_found_and_serves_requests(etcd_server: TestEtcd) -> None:
    async with discovering(etcd_server, "ring:4") as (w, d):
        assert d.health().ready
        doc = await settled(w, d)
        assert doc.discovered
        await join_hosts(d, "ring:4")
        await d.put_space("stocks", SCHEMA)
        for kind, host in (("advertisement", "h1"), ("subscription", "h3")):
            [made] = await d.begin(kind, [RecordSpec(host, "stocks", {})], wait=TIMEOUT)  # type: ignore[arg-type]
            assert made.status == 201
        assert await w.check_flows(d) > 0


async def test_a_switch_that_comes_later_joins_without_a_change_for_others(
    etcd_server: TestEtcd,
) -> None:
    async with discovering(etcd_server, "line:3") as (w, d):
        w.network.agents["s3"].drop()

        async def two() -> bool:
            return [switch.id for switch in (await stored(w)).switches][:2] == ["s1", "s2"]

        await until(two)
        w.network.agents["s3"].come_back()
        doc = await settled(w, d)
        assert [switch.id for switch in doc.switches] == ["s1", "s2", "s3"]
        # Trees have grown under their number; on a line, no other tree is better.
        assert list(doc.trees) == [0]
        await join_hosts(d, "line:3")


async def test_a_cable_that_is_moved_to_another_port_takes_the_place_of_the_old_link(
    etcd_server: TestEtcd,
) -> None:
    async with discovering(etcd_server, "ring:3") as (w, d):
        doc = await settled(w, d)
        old = doc.links[0]
        new = Link(old.a, old.a_port, old.b, 9)
        w.network.recable(old, new)

        async def known() -> bool:
            links = (await stored(w)).links
            return new in links and old not in links

        await until(known)
        doc = await settled(w, d)
        assert not doc.lost.links


async def test_a_link_that_flaps_does_not_rebuild_trees_each_time(etcd_server: TestEtcd) -> None:
    steady = Patience(down_after=0.3, absent_after=20.0, back_after=600.0)
    async with discovering(etcd_server, "ring:4", patience=steady) as (w, d):
        doc = await settled(w, d)
        link = doc.trees[min(doc.trees)].links[0]
        seen: list[NetworkDoc] = []

        def note() -> None:
            assert d.catalogue.network_doc
            seen.append(d.catalogue.network_doc)

        d.catalogue.network_changed.subscribe(note)
        for up in (False, True) * 20:
            w.network.set_link(link, up)

            async def noticed(up: bool = up) -> bool:
                return (not d.status.links_down()) is up

            await until(noticed)

        async def calm() -> bool:
            return len((await stored(w)).trees) == 1

        await until(calm)
        assert {tuple(doc.lost.links) for doc in seen} == {(link,)}
        assert len({number for doc in seen for number in doc.trees} - doc.trees.keys()) == 1


async def test_links_between_switches_of_several_southbound_processes_are_found(
    etcd_server: TestEtcd,
) -> None:
    async with discovering(etcd_server, "ring:4", trees=2, southbound=2) as (w, d):
        await settled(w, d)
        assert {report.southbound for report in d.fleet.found.values()} == {"sb1", "sb2"}
        assert all(len(report.links) == 4 for report in d.fleet.found.values())

        async def two_trees() -> bool:
            return len(d.status.usable_trees()) == 2

        await until(two_trees)


async def test_a_cable_that_carries_nothing_is_lost_though_its_ports_are_up(
    etcd_server: TestEtcd,
) -> None:
    async with discovering(etcd_server, "ring:3", southbound=3) as (w, d):
        doc = await settled(w, d)
        w.network.mute(doc.links[0])

        async def gone() -> bool:
            return (await stored(w)).lost.links == (doc.links[0],)

        await until(gone)
        assert [link.up for link in d.status.topology().links] == [False, True, True]


async def test_a_lost_link_stays_lost_for_the_process_that_gets_its_switches(
    etcd_server: TestEtcd,
) -> None:
    async with discovering(etcd_server, "ring:4", southbound=2, connect=False) as (w, d):
        _connect_to(w, 0)
        doc = await settled(w, d)
        cut, other = doc.links[0], doc.links[2]

        async def lost(*links: Link) -> bool:
            lost = (await stored(w)).lost
            return (lost.switches, lost.links) == ((), links)

        for link in (cut, other):
            w.network.set_link(link, up=False)
        await until(lambda: lost(cut, other))
        w.network.mute(cut)
        w.network.set_link(cut, up=True)  # both ports, and something else is plugged in
        seen: list[tuple[Link, ...]] = []

        def note() -> None:
            assert d.catalogue.network_doc
            seen.append(d.catalogue.network_doc.lost.links)

        d.catalogue.network_changed.subscribe(note)
        _connect_to(w, 1)

        def moved() -> bool:
            report = d.fleet.switch_reports.get("sb2")
            return report is not None and len(report.switches) == 4

        await until(moved)
        w.network.set_link(other, up=True)
        await until(lambda: lost(cut))
        assert all(cut in links for links in seen)


async def test_what_is_gone_for_good_is_removed_if_nothing_hangs_on_it(
    etcd_server: TestEtcd,
) -> None:
    async with discovering(etcd_server, "ring:3") as (w, d):
        doc = await settled(w, d)
        await join_hosts(d, "ring:3")
        link = doc.links[0]
        id = _id(link)
        with pytest.raises(Conflict, match="it is not lost"):
            await d.network_parts.remove_link(id)
        for unknown in ("s1:1", "s1:77-s2:1", "x" * 300):
            with pytest.raises(NotFound):
                await d.network_parts.remove_link(unknown)
        w.network.set_link(link, up=False)

        async def lost(*switches: str) -> bool:
            doc = await stored(w)
            found = doc.lost.switches if switches else doc.lost.links
            return found == (switches or (link,)) and len(doc.trees) == 1

        await until(lost)
        view, gone = await d.network_parts.remove_link(id)
        assert (view.a, gone) == (link.a, True)
        assert link not in (await stored(w)).links

        w.network.agents["s3"].drop()
        await until(lambda: lost("s3"))
        with pytest.raises(Conflict, match="hosts are declared there: h3"):
            await d.network_parts.remove_switch("s3")
        await d.hosts.delete("h3")
        assert (await d.network_parts.remove_switch("s3")).id == "s3"
        with pytest.raises(NotFound):
            await d.network_parts.remove_switch("s3")
        assert len((await stored(w)).switches) == 2
        w.network.agents["s3"].come_back()  # and joins again, as a switch that nobody knew

        async def three() -> bool:
            return len((await stored(w)).switches) == 3

        await until(three)


@pytest.mark.parametrize("southbound", [1, 2])
async def test_a_link_that_was_removed_with_its_switch_away_stays_removed(
    etcd_server: TestEtcd, southbound: int
) -> None:
    async with discovering(etcd_server, "ring:4", southbound=southbound, connect=False) as (w, d):
        link = next(one for one in w.network.topology.links if {one.a, one.b} == {"s2", "s3"})
        w.connect("s1", "s2", "s3")

        async def linked() -> bool:
            doc = await stored(w)
            return link in doc.links and len(doc.trees) == len(doc.usable)

        await until(linked)
        w.network.agents["s3"].drop()

        async def away() -> bool:
            doc = await stored(w)
            return doc.lost.switches == ("s3",) and len(doc.trees) == len(doc.usable) == 1

        await until(away)
        _, gone = await d.network_parts.remove_link(_id(link))
        assert gone
        await _another_joins(w, "s4")
        assert link not in (await stored(w)).links
        w.network.agents["s3"].come_back()
        assert (await settled(w, d)).lost.links == ()


async def test_a_link_that_was_removed_is_not_found_by_the_process_that_had_its_switches(
    etcd_server: TestEtcd,
) -> None:
    async with discovering(etcd_server, "ring:4", southbound=2, connect=False) as (w, d):
        link = next(one for one in w.network.topology.links if {one.a, one.b} == {"s1", "s2"})
        for number, process in enumerate(("sb1", "sb2")):
            _connect_to(w, number, "s1", "s2", "s3")

            async def held(process: str = process) -> bool:
                report, found = d.fleet.switch_reports.get(process), d.fleet.found.get(process)
                known = link in (await stored(w)).links
                return bool(
                    known and report and len(report.switches) == 3 and found and link in found.links
                )

            await until(held)
        w.network.set_link(link, up=False)

        async def lost() -> bool:
            doc = await stored(w)
            whole = not doc.lost.switches and len(doc.trees) == len(doc.usable)
            return doc.lost.links == (link,) and whole

        await until(lost)
        _, gone = await d.network_parts.remove_link(_id(link))
        assert gone
        await _another_joins(w, "s4")
        assert link not in (await stored(w)).links
        w.network.set_link(link, up=True)
        await settled(w, d)


def _connect_to(w: Whole, process: int, *switches: str) -> None:
    """Have these switches, or all, connect to this southbound process only."""
    for name, agent in w.network.agents.items():
        if not switches or name in switches:
            agent.set_controllers([w.openflow[process]])


async def _another_joins(w: Whole, switch: str) -> None:
    """Have a switch connect, and wait until it has joined with a link: all was looked at again."""
    w.connect(switch)

    async def joined() -> bool:
        return any(switch in (link.a, link.b) for link in (await stored(w)).links)

    await until(joined)


def _id(link: Link) -> str:
    return f"{link.a}:{link.a_port}-{link.b}:{link.b_port}"


async def test_102_switches_are_found_wired_and_ready(etcd_server: TestEtcd) -> None:
    async with discovering(etcd_server, "fat-tree:102", settled_after=1.0) as (w, d):
        doc = await settled(w, d)
        assert len(doc.links) == len(topology("fat-tree:102").links)
