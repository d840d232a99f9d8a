"""Hosts that are heard in the network: proposed, accepted, rejected; none in another's place."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from configurators.state.learned_hosts import HostMode
from dispatcher.calls import RecordSpec
from dispatcher.dispatcher import Dispatcher
from dispatcher.errors import Conflict, NotFound
from dispatcher.views import ProposalView
from sdn.network.topology import Host
from tests.dispatcher.support import SCHEMA, TIMEOUT
from tests.dispatcher.whole import Whole, whole
from tests.etcd import TestEtcd
from tests.sdn.openflow.cables import advertisement
from tests.support import until


def mac_of(name: str, w: Whole) -> str:
    return w.network.hosts[name].mac.hex(":")


def id_of(name: str, w: Whole) -> str:
    return f"host-{mac_of(name, w).replace(':', '')}"


@asynccontextmanager
async def learning(
    server: TestEtcd,
    shape: str = "line:3",
    hosts: HostMode = "propose",
    southbound: int = 1,
    **options: Any,
) -> AsyncIterator[tuple[Whole, Dispatcher]]:
    """A control plane that finds switches, links and hosts, and knows nothing at first."""
    how = {"settled_after": 0.3, "grace": 0.1, "hosts": hosts} | options
    async with (
        whole(
            server.access(),
            shape,
            configurators=1,
            discovered=True,
            southbound=southbound,
            learn_hosts=True,
        ) as w,
        w.dispatcher(**how) as d,
    ):
        yield w, d


async def proposed(d: Dispatcher, *ids: str) -> None:
    """Wait until exactly these hosts are proposed."""
    await until(lambda: [one.id for one in d.host_proposals.views()] == sorted(ids))


async def test_hosts_are_heard_and_accepted_and_serve_requests(etcd_server: TestEtcd) -> None:
    async with learning(etcd_server) as (w, d):
        # Nobody has told where they are, nor have they said anything by themselves.
        await proposed(d, *(id_of(name, w) for name in ("h1", "h2", "h3")))
        for name in ("h1", "h3"):
            host = w.network.topology.host(name)
            view, new = await d.host_proposals.accept(id_of(name, w), name)
            assert (view.id, view.switch, view.port) == (name, host.switch, host.port)
            assert (view.mac, new) == (mac_of(name, w), True)
            assert (await d.host_proposals.accept(id_of(name, w), name))[1] is False
        await proposed(d, id_of("h2", w))
        await d.put_space("stocks", SCHEMA)
        for kind, name in (("advertisement", "h1"), ("subscription", "h3")):
            [made] = await d.begin(kind, [RecordSpec(name, "stocks", {})], wait=TIMEOUT)  # type: ignore[arg-type]
            assert made.status == 201
        assert await w.check_flows(d) > 0


async def test_a_forger_never_takes_the_place_of_a_host_that_was_accepted_or_declared(
    etcd_server: TestEtcd,
) -> None:
    async with learning(etcd_server) as (w, d):
        ids = {name: id_of(name, w) for name in ("h1", "h2", "h3")}
        await proposed(d, *ids.values())
        await d.host_proposals.accept(ids["h1"], "victim")
        there = w.network.topology.host("h2")
        address = "fd00::aa"
        await d.hosts.put(Host("other", there.switch, there.port, ipv6=address))
        before = d.hosts.views()
        await proposed(d, ids["h3"])
        forger, own = w.network.hosts["h3"], mac_of("h3", w)
        # As the accepted one, whose MAC is known:
        forger.inject(advertisement(mac_of("h1", w), "fd00::1"))
        await proposed(d, ids["h1"], ids["h3"])
        with pytest.raises(Conflict, match="MAC of host victim"):
            await d.host_proposals.accept(ids["h1"])
        with pytest.raises(Conflict, match="MAC of host victim"):
            await d.host_proposals.accept(ids["h1"], "somebody")
        # As the declared one, whose address is known:
        forger.inject(advertisement("02:00:00:00:0f:01", address))
        await until(lambda: any(o.problem and "address" in o.problem for o in views(d)))
        with pytest.raises(Conflict, match="address of host other"):
            await d.host_proposals.accept("host-020000000f01")
        # Under the id of another one, by mistake of an operator:
        with pytest.raises(Conflict, match="id of host victim"):
            await d.host_proposals.accept(ids["h3"], "victim")
        # At the port of another one, nobody is heard at all:
        w.network.hosts["h1"].inject(advertisement(own, "fd00::3"))
        forger.inject(advertisement("02:00:00:00:0f:02", "fd00::4"))
        await until(lambda: any(one.id == "host-020000000f02" for one in views(d)))
        place = {one.id: (one.switch, one.port) for one in views(d)}
        at = w.network.topology.host("h3")
        assert place[ids["h3"]] == (at.switch, at.port)
        assert d.hosts.views() == before


def views(d: Dispatcher) -> list[ProposalView]:
    return d.host_proposals.views()


async def test_an_operator_accepts_a_host_only_where_he_has_seen_it(etcd_server: TestEtcd) -> None:
    async with learning(etcd_server) as (w, d):
        ids = [id_of(name, w) for name in ("h1", "h2", "h3")]
        await proposed(d, *ids)
        at = w.network.topology.host("h1")
        # A forger pretends that it has moved, just before it is accepted.
        w.network.hosts["h3"].inject(advertisement(mac_of("h1", w), "fd00::1"))
        await until(lambda: views(d)[0].switch == "s3")
        with pytest.raises(Conflict, match="look whether it has moved"):
            await d.host_proposals.accept(ids[0], at=(at.switch, at.port))
        assert d.hosts.views() == []
        # Two at one port are told.
        assert [one.id for one in views(d) if one.doubt] == sorted([ids[0], ids[2]])


async def test_what_is_proposed_follows_the_network(etcd_server: TestEtcd) -> None:
    async with learning(etcd_server) as (w, d):
        ids = {name: id_of(name, w) for name in ("h1", "h2", "h3")}
        await proposed(d, *ids.values())
        # One is declared:
        h1 = w.network.topology.host("h1")
        await d.hosts.put(Host("h1", h1.switch, h1.port))
        await proposed(d, ids["h2"], ids["h3"])
        # Its port goes down: it is not there any more.
        h2 = w.network.topology.host("h2")
        w.network.switches[h2.switch].set_port(h2.port, False)
        await proposed(d, ids["h3"])
        w.network.switches[h2.switch].set_port(h2.port, True)
        await proposed(d, ids["h2"], ids["h3"])
        # What is no longer declared is proposed again.
        await d.hosts.delete("h1")
        w.network.hosts["h1"].announce()
        await proposed(d, *ids.values())
        with pytest.raises(NotFound):
            await d.host_proposals.accept("host-000000000000")


async def test_rejections_are_kept_and_can_be_taken_back(etcd_server: TestEtcd) -> None:
    async with learning(etcd_server) as (w, d):
        ids = [id_of(name, w) for name in ("h1", "h2", "h3")]
        await proposed(d, *ids)
        assert (await d.host_proposals.reject(ids[1])).state == "rejected"
        assert (await d.host_proposals.reject(ids[1])).state == "rejected"
        async with w.dispatcher(hosts="propose") as other:
            await proposed(other, *ids)
            assert [one.state for one in views(other)] == ["proposed", "rejected", "proposed"]
            await other.host_proposals.accept(ids[1])
        await proposed(d, ids[0], ids[2])
        assert d.catalogue.rejected_hosts == ()
        with pytest.raises(NotFound):
            await d.host_proposals.reject("nobody")


async def test_hosts_join_by_themselves_if_there_is_no_doubt_about_them(
    etcd_server: TestEtcd,
) -> None:
    async with learning(etcd_server, "line:4", hosts="accept", accept_after=1.5) as (w, d):
        ids = {name: id_of(name, w) for name in ("h1", "h2", "h3", "h4")}
        await proposed(d, *ids.values())
        # At a port where two are heard, and if it was rejected, an operator decides.
        w.network.hosts["h1"].inject(advertisement("02:00:00:00:0f:01", "fd00::1"))
        await d.host_proposals.reject(ids["h2"])
        await until(lambda: {host.id for host in d.hosts.views()} == {ids["h3"], ids["h4"]})
        await proposed(d, ids["h1"], ids["h2"], "host-020000000f01")
        await d.host_proposals.accept(ids["h1"])
        await proposed(d, ids["h2"])
        # One that is removed does not come back, unless it is accepted.
        assert (await d.host_proposals.remove(ids["h3"])).id == ids["h3"]
        w.network.hosts["h3"].announce()
        await proposed(d, ids["h2"], ids["h3"])
        assert {one.state for one in views(d)} == {"rejected"}


async def test_a_host_with_records_that_cannot_be_removed_is_not_rejected(
    etcd_server: TestEtcd,
) -> None:
    async with learning(etcd_server, "line:2", hosts="accept", accept_after=0.0) as (w, d):
        ids = [id_of(name, w) for name in ("h1", "h2")]
        await until(lambda: [host.id for host in d.hosts.views()] == ids)
        await d.put_space("stocks", SCHEMA)
        [made] = await d.begin("subscription", [RecordSpec(ids[0], "stocks", {})], wait=TIMEOUT)
        assert made.status == 201
        with pytest.raises(Conflict):
            await d.host_proposals.remove(ids[0])
        assert d.catalogue.rejected_hosts == ()
        assert [host.id for host in d.hosts.views()] == ids


async def test_several_southbound_processes_propose_their_hosts_and_one_moves_between_them(
    etcd_server: TestEtcd,
) -> None:
    async with learning(etcd_server, southbound=2) as (w, d):
        ids = [id_of(name, w) for name in ("h1", "h2", "h3")]
        await proposed(d, *ids)
        w.network.hosts["h2"].inject(advertisement(mac_of("h1", w), "fd00::1"))
        await until(lambda: views(d)[0].switch == "s2")
        await proposed(d, *ids)
        view, _ = await d.host_proposals.accept(ids[0])
        assert view.switch == "s2"


async def test_strangers_fill_no_more_than_their_own_port(etcd_server: TestEtcd) -> None:
    async with learning(etcd_server, hosts="accept", accept_after=0.3) as (w, d):
        await until(lambda: len(d.status.topology().links) == 2)  # hosts are asked later
        for number in range(200):
            w.network.hosts["h1"].inject(advertisement(f"02:00:00:00:0e:{number:02x}"))
        h2, h3 = id_of("h2", w), id_of("h3", w)
        await until(lambda: {host.id for host in d.hosts.views()} == {h2, h3})
        assert 2 <= len(views(d)) <= 8
        assert all(one.doubt for one in views(d))
        w.network.hosts["h1"].inject(advertisement(mac_of("h2", w)))  # nothing of the others
        assert {host.id for host in d.hosts.views()} == {h2, h3}
