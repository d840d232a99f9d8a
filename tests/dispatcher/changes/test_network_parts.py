"""An operator declares switches and links of a discovered network while it works, and removes them.

A link that carries no LLDP (behind a media converter, say) is used like any other one.
"""

import pytest

from configurators.state.declared import BadDeclaration
from dispatcher.calls import RecordSpec
from dispatcher.errors import Conflict, NotFound
from dispatcher.views import LinkView
from sdn.emulator.network import EmulatedNetwork
from sdn.network.switch_limits import AS_ALL, SwitchLimits
from sdn.network.topology import Link, Switch, Topology
from tests.dispatcher.changes.test_discovery import discovering, join_hosts, settled, stored
from tests.dispatcher.support import SCHEMA, TIMEOUT
from tests.dispatcher.whole import whole
from tests.etcd import TestEtcd
from tests.support import until


async def test_a_link_without_lldp_is_declared_used_and_withdrawn(etcd_server: TestEtcd) -> None:
    async with discovering(etcd_server, "line:3", connect=False) as (w, d):
        there = w.network.topology
        found, hidden = there.links
        w.network.hide(hidden)
        w.connect()

        async def known() -> bool:
            doc = await stored(w)
            return (doc.switches, doc.links) == (there.switches, (found,))

        await until(known)
        await join_hosts(d, "line:3")
        await d.put_space("stocks", SCHEMA)
        [offered] = await d.begin("advertisement", [RecordSpec("h1", "stocks", {})], wait=TIMEOUT)
        [wanted] = await d.begin("subscription", [RecordSpec("h3", "stocks", {})], wait=TIMEOUT)
        assert (offered.status, wanted.status) == (201, 201)
        assert d.status.topology().hosts[2].unreachable

        id = f"{hidden.b}:{hidden.b_port}-{hidden.a}:{hidden.a_port}"  # from either end
        view, new = await d.network_parts.put_link(id, probed=False)
        assert (view, new) == (
            LinkView("s2", hidden.a_port, "s3", hidden.b_port, True, False),
            True,
        )
        await until(lambda: not any(host.unreachable for host in d.status.topology().hosts))
        assert len((await stored(w)).trees[0].links) == 2
        assert await w.check_flows(d) > 0
        assert not d.status.differences()
        assert (await d.network_parts.put_link(id, probed=False))[1] is False

        _, gone = await d.network_parts.remove_link(id)
        assert not gone

        async def forgotten() -> bool:
            doc = await stored(w)
            return (doc.links, doc.unprobed, doc.withdrawn) == ((found,), (), ())

        await until(forgotten)
        assert d.status.topology().hosts[2].unreachable
        with pytest.raises(NotFound):
            await d.network_parts.remove_link(id)


async def test_a_switch_is_declared_before_it_connects(etcd_server: TestEtcd) -> None:
    async with discovering(etcd_server, "ring:3", connect=False) as (w, d):
        w.connect("s1", "s2")
        await until(lambda: d.health().switches_up == 2)
        view, new = await d.network_parts.put_switch("edge", 3, SwitchLimits(rate=900), "rack 3")
        assert new
        assert (view.dpid, view.label, view.limits.rate) == (3, "rack 3", 900)
        with pytest.raises(BadDeclaration, match="edge has datapath id 0x3"):
            await d.network_parts.put_switch("s9", 3, AS_ALL, "")
        before = set((await stored(w)).trees)
        w.connect("s3")

        async def joined() -> bool:
            doc = await stored(w)
            whole = all(len(tree.links) == 2 for tree in doc.trees.values())
            return whole and len(doc.links) == 3 and not doc.lost.switches

        await until(joined)
        assert before & set((await stored(w)).trees), "trees have grown under their number"
        assert {s.id: s.state for s in d.status.switches()} == dict.fromkeys(
            ("s1", "s2", "edge"), "up"
        )
        with pytest.raises(Conflict, match="edge is connected"):
            await d.network_parts.put_switch("edge", 33, AS_ALL, "")
        view, new = await d.network_parts.put_switch("edge", None, AS_ALL, "rack 4")
        assert (new, view.dpid, view.label, view.limits) == (False, 3, "rack 4", AS_ALL)


async def test_another_switch_takes_the_place_of_one_that_is_broken(etcd_server: TestEtcd) -> None:
    async with discovering(etcd_server, "ring:3") as (w, d):
        await settled(w, d)
        w.network.agents["s3"].drop()

        async def gone() -> bool:
            return (await stored(w)).lost.switches == ("s3",)

        await until(gone)
        view, _ = await d.network_parts.put_switch("s3", 33, AS_ALL, "the new one")
        assert (view.dpid, view.state) == (33, "down")
        spare = Topology.build([Switch("spare", 33)], [], [])
        async with EmulatedNetwork(spare, w.openflow):
            await until(lambda: d.status.switch("s3").state == "up")
            assert len(d.status.switches()) == 3
        await until(lambda: d.status.switch("s3").state == "down")
        w.network.agents["s3"].come_back()  # as a switch that nobody knows, whose name is taken

        async def joined() -> bool:
            return [s.id for s in (await stored(w)).switches if s.dpid == 3] == [f"dpid-{3:016x}"]

        await until(joined)


async def test_a_declared_switch_that_never_comes_is_removed_at_once(etcd_server: TestEtcd) -> None:
    async with discovering(etcd_server, "line:2") as (w, d):
        doc = await settled(w, d)
        await d.network_parts.put_switch("s9", 9, AS_ALL, "")
        await d.network_parts.put_link("s1:7-s9:1", probed=False)
        assert all(len(tree.links) == 1 for tree in (await stored(w)).trees.values())
        assert (await d.network_parts.remove_switch("s9")).id == "s9"
        after = await stored(w)
        assert (after.switches, after.links, after.unprobed) == (doc.switches, doc.links, ())


async def test_a_link_at_a_port_that_a_switch_lacks_is_down_and_told(etcd_server: TestEtcd) -> None:
    async with discovering(etcd_server, "line:2") as (w, d):
        doc = await settled(w, d)
        view, _ = await d.network_parts.put_link("s1:77-s2:77", probed=False)
        assert not view.lldp

        async def told() -> bool:
            kinds = {(one.kind, one.switch, one.port) for one in d.status.differences()}
            down = [link.a_port for link in d.status.links_down()]
            return {("no-port", "s1", 77), ("no-port", "s2", 77)} <= kinds and down == [77]

        await until(told)
        assert (await stored(w)).trees[0].links == doc.trees[0].links


async def test_a_link_that_is_to_carry_probes_is_used_when_it_does(etcd_server: TestEtcd) -> None:
    async with discovering(etcd_server, "ring:3") as (w, d):
        doc = await settled(w, d)
        old = doc.links[0]
        new = Link(old.a, 9, old.b, 9)
        view, made = await d.network_parts.put_link(f"{new.a}:9-{new.b}:9", probed=True)
        assert (view.lldp, made) == (True, True)
        assert (await stored(w)).lost.links == (new,)
        w.network.recable(old, new)

        async def changed() -> bool:
            return (await stored(w)).lost.links == (old,)

        await until(changed)
        assert new in (await stored(w)).links


async def test_a_described_network_is_not_changed(etcd_server: TestEtcd) -> None:
    async with (
        whole(etcd_server.access(), "line:2", configurators=1) as w,
        w.dispatcher() as d,
    ):
        before = await stored(w)
        with pytest.raises(Conflict, match="described at the first start"):
            await d.network_parts.put_switch("s9", 9, AS_ALL, "")
        with pytest.raises(Conflict, match="described at the first start"):
            await d.network_parts.put_link("s1:7-s2:7", probed=False)
        assert await stored(w) == before
