"""A whole control plane in miniature: index, partitions, engines and a simulated network."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from random import Random

from msgspec.structs import replace

from configurators.engine.engine import Engine, Ordering
from configurators.engine.map_planner import plan_map
from configurators.engine.partials import Kind, Partial, Request
from configurators.engine.partition_map import PartitionMap, route, route_removal
from configurators.engine.validation import validate
from dzflow.address import Scope
from dzflow.region import Region
from sdn.network.routes import Routes
from sdn.network.topology import Topology
from sdn.network.trees import Tree, spanning_trees
from sdn.tables.flows import Batch
from sdn.tables.pipeline import OtherTraffic, Pipeline, PlanName
from sdn.tables.plans import Plan, make_plan
from sdn.tables.simulate import SimulatedNetwork
from tests.oracle import expected_entries
from tests.recut import recut

Watch = Callable[[], None]


class Plant:
    """Takes requests, has them decided by the engines, and applies the operations."""

    def __init__(
        self,
        topology: Topology,
        plan: PlanName,
        trees: int | Mapping[int, Tree] = 1,
        partition_map: PartitionMap | None = None,
        ordering: Ordering = "net",
        other_traffic: OtherTraffic = "leave",
    ) -> None:
        self.ordering: Ordering = ordering
        self.scope = Scope(7, 1)
        self.pipeline = Pipeline(plan=plan, other_traffic=other_traffic).extended(topology)
        if isinstance(trees, int):
            trees = dict(enumerate(spanning_trees(topology, trees)))
        self.plan: Plan = make_plan(Routes(topology, trees), self.pipeline, self.scope)
        self.map = partition_map or PartitionMap(plan)
        self.engines = {name: Engine(self.plan) for name in self.map.leaves()}
        self.network = SimulatedNetwork(topology, self.pipeline)
        self.active: dict[str, Request] = {}
        self.watch: Watch | None = None  # called after each single operation
        self.operations = 0

    @property
    def topology(self) -> Topology:
        return self.plan.routes.topology

    @property
    def trees(self) -> dict[int, Tree]:
        return self.plan.routes.trees

    # Requests

    def add(self, *requests: Request) -> None:
        """Make requests (all subscriptions or all advertisements) active, as one slice."""
        self.active |= {request.id: request for request in requests}
        self._decide([route(self.map, request) for request in requests])

    def remove(self, *names: str) -> None:
        requests = [self.active.pop(name) for name in names]
        self._decide([route_removal(self.map, request) for request in requests])

    def update(self, changed: Mapping[str, Iterable[Region]]) -> None:
        """Replace the regions of requests, all together."""
        self.mix(changed=changed)

    def mix(
        self,
        added: Iterable[Request] = (),
        removed: Iterable[str] = (),
        changed: Mapping[str, Iterable[Region]] | None = None,
    ) -> None:
        """Requests that begin, end and change, all at once; under `net` in one slice."""
        first = self.routed(added, removed)
        second = []
        for request in added:
            self.active[request.id] = request
        for name in removed:
            del self.active[name]
        for name, regions in (changed or {}).items():
            old = self.active[name]
            self.active[name] = new = _changed(old, regions)
            rounds = self._update_rounds(old, new)
            first.append(rounds[0])
            second.append(rounds[1])
        self._decide(first)
        self._decide(second)

    def _update_rounds(
        self, old: Request, new: Request
    ) -> tuple[dict[str, Partial], dict[str, Partial]]:
        """As the service does it: the old regions go when the new ones stand in all partitions."""
        before, after = route(self.map, old), route(self.map, new)
        if before.keys() == after.keys() and len(after) == 1:
            return route_update(self.map, old, new), {}  # here the engine can do it by itself
        both = _changed(old, (*old.regions, *new.regions))
        growing = route_update(self.map, old, both)
        shrinking = route_update(self.map, both, new)
        return {name: growing[name] for name in after}, shrinking

    def routed(
        self,
        added: Iterable[Request] = (),
        removed: Iterable[str] = (),
        changed: Mapping[str, Iterable[Region]] | None = None,
    ) -> list[dict[str, Partial]]:
        """The partials of requests that begin, end and change."""
        found = [route(self.map, request) for request in added]
        found += [route_removal(self.map, self.active[name]) for name in removed]
        for name, regions in (changed or {}).items():
            old = self.active[name]
            found.append(route_update(self.map, old, _changed(old, regions)))
        return found

    def decide_and_discard(self, routed: list[dict[str, Partial]]) -> None:
        """Let the engines decide, carry it out, and take it back again."""
        for name, slice_ in self._slices(routed):
            engine = self.engines[name]
            decision = engine.decide(slice_, self.ordering)
            self._apply(decision.rounds)
            self._apply(engine.discard(decision).rounds)

    # The network and the map

    def cut(self, sample: Sequence[Region], count: int) -> None:
        """Go over to a new partition map."""
        new_map = plan_map(sample, self.pipeline.plan, count)
        result = recut(self.plan, self.engines, self.active.values(), new_map)
        self._apply([result.batch])
        self.map, self.engines = new_map, result.engines

    def rewire(self, topology: Topology, trees: dict[int, Tree]) -> None:
        """Go over to another topology and other trees."""
        self.pipeline = self.pipeline.extended(topology)
        self.network.base(topology, self.pipeline)
        routes = Routes(topology, trees, after=self.plan.routes)
        self.plan = make_plan(routes, self.pipeline, self.scope)
        for engine in self.engines.values():
            decision = engine.rewire(self.plan)
            self._apply(decision.rounds)
            engine.commit(decision)

    def rewire_and_discard(self, topology: Topology) -> None:
        """Decide for another topology, carry it out, and take it back again."""
        tables = self.pipeline.extended(topology)
        self.network.base(topology, tables)
        plan = make_plan(Routes(topology, self.trees, after=self.plan.routes), tables, self.scope)
        for engine in self.engines.values():
            decision = engine.rewire(plan)
            self._apply(decision.rounds)
            self._apply(engine.discard(decision).rounds)
        self.network.base(self.topology, self.pipeline)

    # Checking

    def check(self) -> None:
        """Engines are valid, and the switches hold what the oracle says: no more, no less."""
        for engine in self.engines.values():
            validate(engine)
            self._check_parts(engine)
        expected = expected_entries(
            self.active.values(), self.map, self.topology, self.trees, self.pipeline, self.scope
        )
        assert self.network.entries(self.pipeline) == expected

    def _check_parts(self, engine: Engine) -> None:
        """The entries of one switch are those of all that are on it."""
        everything = engine.entries()
        assert engine.count() == sum(map(len, everything.values()))
        for switch in self.topology.switches:
            of_one = engine.entries([switch.id])
            assert of_one.keys() <= {switch.id}
            assert set(of_one.get(switch.id, ())) == set(everything.get(switch.id, ()))

    def reached(self, publisher: str, point: int, tree: int = 0) -> set[str]:
        """The hosts that an event reaches; once each, without loops."""
        journey = self.network.send(publisher, self.scope.event(point, tree))
        assert not journey.looped
        assert set(journey.hosts.values()) <= {1}
        assert set(journey.links.values()) <= {1}
        return set(journey.hosts)

    def _decide(self, routed: list[dict[str, Partial]]) -> None:
        for name, slice_ in self._slices(routed):
            engine = self.engines[name]
            decision = engine.decide(slice_, self.ordering)
            self._apply(decision.rounds)
            engine.commit(decision)

    def _slices(self, routed: list[dict[str, Partial]]) -> Iterator[tuple[str, list[Partial]]]:
        queues: dict[tuple[str, Kind | None], list[Partial]] = {}
        for partials in routed:
            for name, partial in partials.items():
                kind = None if self.ordering == "net" else partial.kind
                queues.setdefault((name, kind), []).append(partial)
        for (name, _), slice_ in queues.items():
            yield name, slice_

    def _apply(self, rounds: Iterable[Batch]) -> None:
        """Switches proceed each by itself; to see what that does, they take turns at random."""
        for batch in rounds:
            waiting = [(name, iter(ops)) for name, ops in batch.items()]
            random = Random(len(waiting))
            while waiting:
                turn = random.randrange(len(waiting))
                name, ops = waiting[turn]
                op = next(ops, None)
                if op is None:
                    waiting.pop(turn)
                    continue
                self.network.switches[name].apply(op)
                self.operations += 1
                if self.watch:
                    self.watch()


def _changed(request: Request, regions: Iterable[Region]) -> Request:
    return replace(request, regions=tuple(regions))


def route_update(partition_map: PartitionMap, old: Request, new: Request) -> dict[str, Partial]:
    """The partials that replace a request's regions, by partition.

    A partition that had nothing of the request gets a subscription (or advertisement), one that has
    nothing of it any more gets a removal, and the others get an update.
    """
    now, before = route(partition_map, new), route_removal(partition_map, old)
    partials = {name: partial for name, partial in before.items() if name not in now}
    for name, partial in now.items():
        partials[name] = replace(partial, kind=Kind.UPDATE) if name in before else partial
    return partials
