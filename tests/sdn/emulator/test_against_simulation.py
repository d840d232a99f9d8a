"""What the engine decides, applied over TCP: emulated and simulated network deliver the same."""

from collections import Counter
from contextlib import ExitStack
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from configurators.engine.partials import Request
from dzflow.address import DELIVERY
from dzflow.filters import Filter, parse_filter
from sdn.emulator import EmulatedNetwork
from sdn.network.topologies import topology
from sdn.network.topology import Topology
from sdn.tables.flows import Change, GroupOp, difference
from sdn.tables.pipeline import PlanName
from tests.plant import Plant
from tests.sdn.emulator.support import Application, Controller, Peer
from tests.strategies import COMBINATIONS, INDEXES, SPACES, events, filters, topologies


class Twin:
    """A plant, and an emulated network that is kept the same over OpenFlow."""

    def __init__(self, plant: Plant, network: EmulatedNetwork, peers: dict[int, Peer]) -> None:
        self.plant = plant
        self.network = network
        self.peers = {s.id: peers[s.dpid] for s in plant.topology.switches}
        self.applied: dict[str, Any] = {name: {} for name in self.peers}

    async def set_up(self) -> None:
        for name, switch in self.plant.network.switches.items():
            groups = [GroupOp(Change.ADD, group) for group in switch.groups.values()]
            assert await self.peers[name].apply_groups(groups) == []

    async def follow(self) -> None:
        """Bring the emulated switches to what the simulated ones hold, and read it back."""
        now = {name: dict(switch.entries) for name, switch in self.plant.network.switches.items()}
        batch = difference(
            {name: found.values() for name, found in self.applied.items()},
            {name: found.values() for name, found in now.items()},
        )
        self.applied = now
        for name, ops in batch.items():
            assert await self.peers[name].apply(ops) == []
        for name, peer in self.peers.items():
            assert await peer.entries() == set(now[name].values())

    async def compare(self, sent: list[tuple[str, int]]) -> int:
        """Send events; each host gets what the simulation says, no more and no less: how many."""
        with ExitStack() as stack:
            applications = {
                host: stack.enter_context(Application(where))
                for host, where in self.network.endpoints().items()
            }
            for application in applications.values():
                assert await application.join()
            expected: dict[str, Counter[bytes]] = {host: Counter() for host in applications}
            for number, (publisher, address) in enumerate(sent):
                payload = f"event {number}".encode()
                applications[publisher].send(address, payload)
                for host, times in self.plant.network.send(publisher, address).hosts.items():
                    expected[host][payload] += times
            for host, application in applications.items():
                received: Counter[bytes] = Counter()
                for _ in range(expected[host].total()):
                    destination, payload = await application.received()
                    assert destination == DELIVERY
                    received[payload] += 1
                assert received == expected[host]
            # A wire is in order, and a packet takes its whole way in one step: after the first
            # round all events are delivered, in the second an event too many would be noticed.
            for application in [*applications.values()] * 2:
                assert await application.join()
            return sum(found.total() for found in expected.values())


def request(kind: str, number: int, advertised: bool, host: str, wanted: Filter) -> Request:
    return Request(advertised, f"r{number}", host, INDEXES[kind].regions(wanted))


def point(kind: str, event: dict[str, Any]) -> int:
    return INDEXES[kind].point(SPACES[kind].keys(event))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    topologies(max_switches=5, max_hosts=5).filter(lambda t: len(t.hosts) > 1),
    st.sampled_from(COMBINATIONS),
    st.integers(1, 2),
    st.data(),
)
async def test_every_host_gets_what_the_simulated_network_says(
    network: Topology, combination: tuple[PlanName, str], trees: int, data: st.DataObject
) -> None:
    plan, kind = combination
    hosts = [host.id for host in network.hosts]
    plant = Plant(network, plan, trees)
    async with Controller() as controller, EmulatedNetwork(network, [controller.address]) as twin:
        work = Twin(plant, twin, await controller.switches(len(network.switches)))
        await work.set_up()
        asked = data.draw(
            st.lists(
                st.tuples(st.booleans(), st.sampled_from(hosts), filters(SPACES[kind])),
                min_size=2,
                max_size=8,
            )
        )
        points = data.draw(
            st.lists(st.tuples(st.sampled_from(hosts), events()), min_size=1, max_size=8)
        )
        tree_count = len(plant.trees)
        sent = [
            (host, plant.scope.event(point(kind, event), number % tree_count))
            for number, (host, event) in enumerate(points)
        ]
        for number, (advertised, host, wanted) in enumerate(asked):
            plant.add(request(kind, number, advertised, host, wanted))
        await work.follow()
        await work.compare(sent)
        gone = data.draw(st.lists(st.sampled_from(sorted(plant.active)), unique=True))
        for name in gone:
            plant.remove(name)
        await work.follow()
        await work.compare(sent)


@pytest.mark.parametrize("plan", ["legs", "lpm"])
async def test_on_a_fat_tree_too(plan: PlanName) -> None:
    kind = "zorder"
    network = topology("fat-tree:10")
    random = Random(3)
    plant = Plant(network, plan, 2)
    hosts = [host.id for host in network.hosts]
    points = [{"x": x, "y": y / 16, "colour": "red"} for x in range(0, 16, 3) for y in (0, 9)]
    async with Controller() as controller, EmulatedNetwork(network, [controller.address]) as twin:
        work = Twin(plant, twin, await controller.switches(10))
        await work.set_up()
        for number in range(24):
            low = random.randrange(12)
            bounds = {"between": [low, low + random.randrange(1, 4)]}
            wanted = parse_filter(SPACES[kind], {"x": bounds})
            plant.add(request(kind, number, number % 3 == 0, random.choice(hosts), wanted))
        await work.follow()
        sent = [
            (random.choice(hosts), plant.scope.event(point(kind, event), number % 2))
            for number, event in enumerate(points * 3)
        ]
        assert await work.compare(sent) > 20
