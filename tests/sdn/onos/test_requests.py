"""Generated requests through engine, driver, ONOS and switches: tables and events are as expected.

While rules arrive in any order, no host misses an event that it wants before and after.
"""

from collections.abc import Iterable
from random import Random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from configurators.engine.partials import Request
from sdn.network.topology import Topology
from sdn.outcomes import Acknowledged
from sdn.tables.flows import Batch
from tests.oracle import receivers
from tests.plant import Plant
from tests.sdn.onos.support import QUICK, Stage, stage
from tests.strategies import INDEXES, SPACES, events, filters, topologies

SPACE, INDEX = SPACES["zorder"], INDEXES["zorder"]


class Recording(Plant):
    """A plant that keeps the batches that it decided on."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.batches: list[Batch] = []

    def _apply(self, rounds: Iterable[Batch]) -> None:
        rounds = list(rounds)
        self.batches += rounds
        super()._apply(rounds)


class Play:
    """Requests drawn one after another, and what they lead to."""

    def __init__(self, data: st.DataObject, plant: Recording, on: Stage) -> None:
        self.data = data
        self.plant = plant
        self.on = on
        self.names = 0
        hosts = [host.id for host in on.topology.hosts]
        sample = st.tuples(st.sampled_from(hosts), events(), st.sampled_from(sorted(plant.trees)))
        self.samples = data.draw(st.lists(sample, min_size=4, max_size=8))

    async def step(self) -> None:
        """Some requests of one kind, or their end."""
        before = [self.reached(*sample) for sample in self.samples]
        self.change()
        after = [self.expected(publisher, event) for publisher, event, _ in self.samples]

        seen: list[list[set[str]]] = []

        def record() -> None:
            seen.append([self.reached(*sample) for sample in self.samples])

        with self.on.onos.watched(record):
            for batch in self.plant.batches:
                outcomes = await self.on.driver.apply("p7", 1, batch)
                assert set(outcomes.values()) <= {Acknowledged()}
        self.plant.batches.clear()
        for reached in seen:
            for was, now, will in zip(before, reached, after, strict=True):
                assert was & will <= now <= was | will
        await self.check()

    def change(self) -> None:
        active = [*self.plant.active]
        if not active or self.data.draw(st.integers(0, 3)):
            advertised = self.data.draw(st.booleans())
            self.plant.add(*(self.request(advertised) for _ in range(3)))
            return
        kind = self.plant.active[self.data.draw(st.sampled_from(active))].advertised
        gone = [name for name in active if self.plant.active[name].advertised is kind]
        self.plant.remove(*gone[:4])

    def request(self, advertised: bool) -> Request:
        self.names += 1
        host = self.data.draw(st.sampled_from(self.plant.topology.hosts)).id
        regions = INDEX.regions(self.data.draw(filters(SPACE)))
        return Request(advertised, f"r{self.names}", host, regions)

    async def check(self) -> None:
        for name, switch in self.plant.network.switches.items():
            read = await self.on.driver.read(name)
            assert len(read) == len(switch.entries)
            assert set(read) == set(switch.entries.values())
        for publisher, event, tree in self.samples:
            assert self.reached(publisher, event, tree) == self.expected(publisher, event)

    def expected(self, publisher: str, event: dict[str, Any]) -> set[str]:
        point = INDEX.point(SPACE.keys(event))
        return receivers(self.plant.active.values(), publisher, point)

    def reached(self, publisher: str, event: dict[str, Any], tree: int) -> set[str]:
        point = INDEX.point(SPACE.keys(event))
        found = self.on.reached(publisher, self.plant.scope.event(point, tree))
        assert set(found.values()) <= {1}
        return set(found)


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    topologies(max_switches=4, max_hosts=4).filter(lambda t: len(t.hosts) > 1),
    st.integers(1, 2),
    st.sampled_from(["fifo", "ordered", "net"]),
    st.data(),
)
async def test_whatever_is_requested_tables_and_events_are_as_expected(
    topology: Topology, trees: int, ordering: Any, data: st.DataObject
) -> None:
    plant = Recording(topology, "lpm", trees, ordering=ordering)
    options = replace(QUICK, trees=tuple(plant.trees))
    async with stage(topology, options, plant.pipeline, delay=0.005) as on:
        play = Play(data, plant, on)
        for _ in range(5):
            await play.step()
        # Whatever is lost in between, a new look brings it back.
        random = Random(len(topology.switches))
        for switch in topology.switches:
            on.onos.drop_rules(switch.id, lambda _: random.random() < 0.5)
        await on.driver.audit(*plant.network.switches)
        await play.check()
