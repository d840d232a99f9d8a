"""Hosts that pretend to be cables, and cables where hosts should be: named, and nothing is lost."""

import asyncio
from functools import partial
from itertools import product

import pytest

from dispatcher.calls import RecordSpec
from sdn.emulator.agent import Agent
from sdn.emulator.frames import LLDP
from sdn.emulator.switch import EmulatedSwitch
from sdn.network.topology import Host, Link, PortTaken
from sdn.openflow.discovery.frames import build_probe
from tests.dispatcher.changes.test_discovery import discovering, join_hosts, settled, stored
from tests.dispatcher.support import SCHEMA, TIMEOUT
from tests.etcd import TestEtcd
from tests.support import until

ROUNDS = 3


async def test_hosts_that_forge_reflect_or_carry_probes_make_no_links(
    etcd_server: TestEtcd,
) -> None:
    async with discovering(etcd_server, "ring:4", southbound=2) as (w, d):
        doc = await settled(w, d)
        network, loop = w.network, asyncio.get_running_loop()
        heard: dict[str, int] = {}

        def answer(host: str, frame: bytes) -> None:
            """Send each probe back at once, and those of h1 to others by h3, too."""
            if frame[12:14] == LLDP:
                heard[host] = heard.get(host, 0) + 1
                for other in {host, "h3" if host == "h1" else host}:
                    loop.call_soon(network.hosts[other].inject, frame)

        def hears_more_than(count: int, host: str) -> bool:
            return heard.get(host, 0) > count

        network.on_frame = answer
        ends = [end for link in doc.links for end in link.ends]
        for host, end, nonce in product(network.hosts.values(), ends, range(3)):
            host.inject(build_probe(b"not the key of the service", *end, nonce))
        for turn in range(ROUNDS):
            for name, host in reversed(network.hosts.items()):  # the one that carries last
                # A port that comes up is probed at once.
                network.switches[host.host.switch].set_port(host.host.port, up=False)
                network.switches[host.host.switch].set_port(host.host.port, up=True)
                await until(partial(hears_more_than, turn, name))
        # Meanwhile, the cables are found that there are, and requests are served.
        old, new = doc.links[0], Link(doc.links[0].a, 9, doc.links[0].b, 9)
        network.recable(old, new)

        async def moved() -> bool:
            return new in (await stored(w)).links

        await until(moved)
        network.on_frame = None
        now = await stored(w)
        assert now.switches == doc.switches
        assert set(now.links) == {*doc.links, new}  # the old one is lost
        await join_hosts(d, "ring:4")
        await d.put_space("stocks", SCHEMA)
        for kind, name in (("advertisement", "h1"), ("subscription", "h3")):
            [made] = await d.begin(kind, [RecordSpec(name, "stocks", {})], wait=TIMEOUT)  # type: ignore[arg-type]
            assert made.status == 201
        assert await w.check_flows(d) > 0


async def test_a_cable_at_the_port_of_a_declared_host_is_named_and_the_host_stays(
    etcd_server: TestEtcd,
) -> None:
    async with discovering(etcd_server, "ring:3") as (w, d):
        doc = await settled(w, d)
        link = doc.links[0]
        with pytest.raises(PortTaken, match=f"port {link.a_port} of {link.a} is taken by link"):
            await d.hosts.put(Host("h8", link.a, link.a_port))
        await d.hosts.put(Host("h9", link.a, 9))
        wrong = Link(link.a, 9, link.b, 9)
        w.network.recable(link, wrong)

        async def told() -> bool:
            kinds = {(one.kind, one.switch) for one in d.status.differences()}
            lost = (await stored(w)).lost.links == (link,)
            return lost and bool({("host-at-link", s) for s in (link.a, link.b)} & kinds)

        await until(told)
        now = await stored(w)
        assert now.links == doc.links
        assert now.hosts == (Host("h9", link.a, 9),)
        # Without the host, the link takes the place of the lost one.
        await d.hosts.delete("h9")

        async def joined() -> bool:
            return wrong in (await stored(w)).links

        await until(joined)


async def test_a_switch_without_a_datapath_id_is_refused_and_others_go_on_to_join(
    etcd_server: TestEtcd,
) -> None:
    async with discovering(etcd_server, "line:2", connect=False) as (w, d):
        nobody = Agent(
            lambda wake: EmulatedSwitch("nobody", 0, [], wake=wake), w.openflow, lambda *_: None
        )
        nobody.start()
        try:
            await until(lambda: any("datapath id 0" in one.text for one in d.status.differences()))
            w.connect()
            assert [switch.dpid for switch in (await settled(w, d)).switches] == [1, 2]
        finally:
            await nobody.stop()
