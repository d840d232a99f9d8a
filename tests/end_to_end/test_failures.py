"""Switches, links and ports that fail and come back, while events flow and requests come."""

import threading
from typing import Any

import pytest

from dispatcher.changes.damping import Patience
from sdn.tables.pipeline import PlanName
from tests.end_to_end.harness import (
    WAIT,
    Network,
    Traffic,
    begun,
    control_plane,
    drain,
    numbers,
    until,
)
from tests.etcd import TestEtcd

SOON: dict[str, Any] = {
    "patience": Patience(down_after=0.3, absent_after=20.0, back_after=0.3),
    "grace": 3.0,  # publishers may hear late on a loaded machine
}


@pytest.mark.parametrize("plan", ["legs", "lpm"])
def test_a_cut_link_of_the_only_tree_is_gone_round_under_traffic(
    etcd_server: TestEtcd, plan: PlanName
) -> None:
    options: dict[str, Any] = {"topology": "ring:4", "plan": plan, "configurators": 2}
    with control_plane(etcd_server, **options, **SOON) as (stack, client, at):
        network = Network(stack, client)
        advertisement = at("h1").advertise("stocks", {})
        hosts = {host: at(host) for host in ("h2", "h3", "h4")}
        wanted = {host: place.subscribe("stocks", "price < 600") for host, place in hosts.items()}
        (tree,) = network.trees().values()
        ways = {h: tree.path("s1", h.replace("h", "s")) for h in hosts}
        far = max(ways, key=lambda h: len(ways[h]))
        cut = next(k for k in tree.links if {k.a, k.b} == set(ways[far][-2:]))
        unaffected = [h for h, way in ways.items() if not {cut.a, cut.b} <= set(way)]
        assert unaffected
        traffic = Traffic(advertisement, 250)
        first = numbers(wanted[far], 40)
        network.set_link(cut, False)
        network.settled_on(lambda tree: cut not in tree.links)
        until(lambda: list(advertisement.view.trees) == network.used())
        traffic.more(50)
        network.set_link(cut, True)
        traffic.more(200)
        sent = traffic.stop()
        for host in unaffected:
            assert drain(wanted[host], sent - 1) == list(range(sent)), host
        came = first + drain(wanted[far], sent - 1)
        assert came == sorted(set(came)), "none twice"
        assert set(came) >= {*range(40), *range(sent - 200, sent)}
        for place in hosts.values():
            assert place.counters()["stocks"].doubles == 0
        network.check_flows()
        network.check_no_loop()


def test_a_switch_that_dies_is_done_without_and_used_again_when_it_is_back(
    etcd_server: TestEtcd,
) -> None:
    options: dict[str, Any] = {"topology": "ring:5", "configurators": 2}
    with control_plane(etcd_server, **options, **SOON) as (stack, client, at):
        network = Network(stack, client)
        (tree,) = network.trees().values()
        victim = tree.path("s1", "s3")[1] if len(tree.path("s1", "s3")) == 3 else "s2"
        behind = victim.replace("s", "h")
        advertisement = at("h1").advertise("stocks", {})
        near, far, lost = (at(h).subscribe("stocks", {}) for h in ("h5", "h3", behind))
        traffic = Traffic(advertisement, 250)
        traffic.more(50)
        network.kill(victim)
        urls = [begun(client, host, {"price": {"lt": 100}}) for host in ("h4", behind)]
        until(lambda: client.get(urls[0]).json()["state"] == "active")
        network.settled_on(lambda tree: len(tree.links) == 3)
        # Nobody waits for it: hosts come, requests of others are served.
        body = {"switch": "s4", "port": 40}
        assert client.put("/hosts/new", json=body).status_code == 201
        made = client.post("/subscribe", json={"host": "new", "space": "stocks", "filter": {}})
        assert made.status_code == 201
        # Those behind it say so.
        until(lambda: victim in (client.get(urls[1]).json()["reason"] or ""))
        shown = {host["id"]: host for host in client.get("/hosts").json()["items"]}
        assert victim in shown[behind]["unreachable"]
        assert shown["h1"]["unreachable"] is None
        assert client.get(f"/subscriptions/{lost.id}").json()["state"] == "active"
        until(lambda: list(advertisement.view.trees) == network.used())
        traffic.more(50)
        meanwhile = traffic.sent
        network.revive(victim)
        network.settled_on(lambda tree: len(tree.links) == 4)
        until(lambda: client.get(urls[1]).json()["state"] == "active")
        assert client.get(urls[1]).json()["reason"] is None
        until(lambda: list(advertisement.view.trees) == network.used())
        resumed = traffic.sent
        traffic.more(100)
        sent = traffic.stop()
        assert drain(near, sent - 1) == list(range(sent)), "its way was never cut"
        came = drain(far, sent - 1)
        assert came == sorted(set(came))
        assert set(range(meanwhile - 40, sent)) <= set(came)
        came = drain(lost, sent - 1)
        assert came == sorted(set(came))
        assert set(range(resumed + 10, sent)) <= set(came)
        network.check_flows()
        network.check_no_loop()


def test_work_that_waits_for_a_switch_goes_on_without_it(etcd_server: TestEtcd) -> None:
    with control_plane(etcd_server, topology="ring:4", **SOON) as (stack, client, at):
        network = Network(stack, client)
        at("h1").advertise("stocks", {})
        (tree,) = network.trees().values()
        way = next(w for w in (tree.path("s1", f"s{n}") for n in (2, 3, 4)) if len(w) > 2)
        host = way[-1].replace("s", "h")
        switch = network.emulated.switches[way[1]]
        switch.ignore_barriers()  # it takes everything and never answers
        url = begun(client, host, {"price": {"lt": 100}})
        assert client.get(url).json()["state"] == "pending"
        network.cut_off(way[1])
        until(lambda: client.get(url).json()["state"] == "active")
        # An end is not held up either, also of a host behind the switch.
        behind = way[1].replace("s", "h")
        pending = begun(client, behind, {})
        until(lambda: client.get(pending).json()["reason"])
        assert client.delete(pending).status_code == 200
        network.call(switch.behave)
        network.call(network.emulated.agents[way[1]].come_back)
        network.settled_on(lambda tree: len(tree.links) == 3)
        network.check_flows()


def test_a_port_that_flaps_does_not_keep_the_network_busy(etcd_server: TestEtcd) -> None:
    # Longer than the port is up at a time, even if it takes its time between two changes.
    patience = Patience(down_after=0.3, absent_after=20.0, back_after=5.0)
    how = {**SOON, "patience": patience}
    with control_plane(etcd_server, topology="ring:4", **how) as (stack, client, at):
        network = Network(stack, client)
        at("h1").advertise("stocks", {})
        at("h3").subscribe("stocks", {})
        (tree,) = network.trees().values()
        link = min(tree.links, key=str)
        stop = threading.Event()
        changes = 0

        def flap() -> None:
            nonlocal changes
            while not stop.wait(0.05):
                network.set_link(link, bool(changes % 2))
                changes += 1
            network.set_link(link, True)

        flapping = threading.Thread(target=flap)
        flapping.start()
        try:
            network.settled_on(lambda tree: link not in tree.links)
            revision = network.stored()[1]
            goal = changes + 30
            until(lambda: changes >= goal)
            assert network.stored()[1] == revision
        finally:
            stop.set()
            flapping.join()
        until(lambda: not network.stored()[0].lost.links)
        network.check_flows()


def test_parts_that_are_cut_apart_go_on_each_by_itself(etcd_server: TestEtcd) -> None:
    with control_plane(etcd_server, topology="line:5", **SOON) as (stack, client, at):
        network = Network(stack, client)
        advertisement = at("h1").advertise("stocks", {})
        other = at("h5").advertise("stocks", {})
        mine = {h: at(h).subscribe("stocks", {}) for h in ("h2", "h4")}
        cut = next(k for k in network.emulated.topology.links if {k.a, k.b} == {"s2", "s3"})
        network.set_link(cut, False)

        def cut_off() -> set[str]:
            hosts = client.get("/hosts").json()["items"]
            return {host["id"] for host in hosts if host["unreachable"]}

        until(lambda: cut_off() == {"h1", "h2"})
        until(lambda: len(client.get("/topology").json()["trees"]) == 1)
        until(lambda: list(advertisement.view.trees) == network.used())
        until(lambda: list(other.view.trees) == network.used())
        advertisement.publish({"price": 1, "n": 1})
        other.publish({"price": 1, "n": 5})
        assert mine["h2"].get(WAIT)["n"] == 1
        assert mine["h4"].get(WAIT)["n"] == 5
        network.set_link(cut, True)
        until(lambda: not cut_off())
        network.settled_on(lambda tree: len(tree.links) == 4)
        until(lambda: list(advertisement.view.trees) == network.used())
        advertisement.publish({"price": 1, "n": 2})
        assert mine["h2"].get(WAIT)["n"] == 2
        assert mine["h4"].get(WAIT)["n"] == 2
        network.check_flows()
