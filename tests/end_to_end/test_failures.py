"""Switches, links and ports that fail and come back, while events flow and requests come."""

import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from configurators.state.network import tree_of
from dispatcher.changes.damping import Patience
from dzflow.sdk import Subscription
from sdn.emulator import EmulatedNetwork
from sdn.pipeline import PlanName
from sdn.topology import Link
from sdn.trees import Tree
from tests.end_to_end.test_changes import WAIT, Traffic, control_plane, until
from tests.etcd import TestEtcd
from tests.stack import Stack

SOON: dict[str, Any] = {
    "patience": Patience(down_after=0.3, absent_after=20.0, back_after=0.3),
    "grace": 1.0,  # publishers may hear late on a loaded machine
}


class Network:
    """What the tests do to the switches, and see of them."""

    def __init__(self, stack: Stack, client: httpx.Client) -> None:
        self._stack = stack
        self._client = client

    @property
    def emulated(self) -> EmulatedNetwork:
        return self._stack.network

    def _do(self, work: Callable[[], None]) -> None:
        async def run() -> None:
            work()

        self._stack.run(run())

    def set_link(self, link: Link, up: bool) -> None:
        self._do(lambda: self.emulated.set_link(link, up))

    def kill(self, switch: str) -> None:
        """Power off: nothing is forwarded, neighbours see their ports go down."""

        def work() -> None:
            for link in self._links(switch):
                self.emulated.set_link(link, False)
            self.emulated.agents[switch].restart(seconds=None)

        self._do(work)

    def revive(self, switch: str) -> None:
        """Power on, with empty tables."""

        def work() -> None:
            for link in self._links(switch):
                self.emulated.set_link(link, True)
            self.emulated.agents[switch].come_back()

        self._do(work)

    def cut_off(self, switch: str) -> None:
        """The switch loses its connection, and goes on with what it holds."""
        self._do(self.emulated.agents[switch].drop)

    def _links(self, switch: str) -> list[Link]:
        return [link for link in self.emulated.topology.links if switch in (link.a, link.b)]

    def trees(self) -> dict[int, Tree]:
        doc = self._stack.dispatcher._catalogue.network_doc
        assert doc
        return {number: tree_of(tree) for number, tree in doc.trees.items()}

    def used(self) -> list[int]:
        found: list[int] = self._client.get("/spaces/stocks").json()["trees"]
        return found

    def settled_on(self, so: Callable[[Tree], bool]) -> None:
        """Wait until there is one tree, and it is so."""
        until(
            lambda: len(t := self.trees()) == 1 and self.used() == [*t] and all(map(so, t.values()))
        )

    def check_flows(self) -> None:
        """All switches hold what a rebuild from the records says."""
        for switch in self.emulated.switches:

            def shown(source: str, switch: str = switch) -> list[str]:
                params = {"source": source}
                answer = self._client.get(f"/switches/{switch}/flows", params=params)
                return sorted(map(str, answer.raise_for_status().json()["items"]))

            until(lambda shown=shown: shown("cp") == shown("dp"))  # type: ignore[misc]

    def check_no_loop(self) -> None:
        assert not any(s.counters.looped for s in self.emulated.switches.values())


def begun(client: httpx.Client, host: str, wanted: dict[str, Any]) -> str:
    """The URL of a subscription that is not waited for."""
    ask = {"host": host, "space": "stocks", "filter": wanted, "wait": 0}
    answer = client.post("/subscribe", json=ask)
    assert answer.status_code == 202, answer.text
    return f"/subscriptions/{answer.json()['id']}"


def drain(subscription: Subscription, until_number: int) -> list[int]:
    """All numbers up to one that must come."""
    found: list[int] = []
    while not found or found[-1] < until_number:
        found.append(subscription.get(WAIT)["n"])
    return found


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
        traffic.more(50)
        network.set_link(cut, False)
        network.settled_on(lambda tree: cut not in tree.links)
        until(lambda: list(advertisement.view.trees) == network.used())
        traffic.more(50)
        network.set_link(cut, True)
        traffic.more(200)
        sent = traffic.stop()
        for host in unaffected:
            assert drain(wanted[host], sent - 1) == list(range(sent)), host
        came = drain(wanted[far], sent - 1)
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
        network._do(switch.behave)
        network._do(network.emulated.agents[way[1]].come_back)
        network.settled_on(lambda tree: len(tree.links) == 3)
        network.check_flows()


def test_a_port_that_flaps_does_not_keep_the_network_busy(etcd_server: TestEtcd) -> None:
    # Longer than the port is up at a time, even if it takes its time between two changes.
    patience = Patience(down_after=0.3, absent_after=20.0, back_after=2.0)
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
            revision = stack.dispatcher._catalogue.network_revision
            goal = changes + 30
            until(lambda: changes >= goal)
            assert stack.dispatcher._catalogue.network_revision == revision
        finally:
            stop.set()
            flapping.join()
        until(lambda: not stack.dispatcher._catalogue.network_doc.lost.links)  # type: ignore[union-attr]
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
        until(lambda: list(other._handle.view.trees) == network.used())
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
