"""The engines of all partitions on the benchmark's network, and the runner that decides slices."""

import time
from collections.abc import Iterable, Iterator
from itertools import islice

from bench.workload import (
    PUBLISHERS,
    Distribution,
    Workload,
    learned_index,
    make_index,
    make_request,
    make_space,
)
from configurators.engine.engine import Engine, Ordering
from configurators.engine.map_planner import first_map
from configurators.engine.partials import Partial, Request
from configurators.engine.partition_map import route
from dzflow.address import Scope
from dzflow.index import Index
from sdn.network.routes import Routes
from sdn.network.topologies import topology
from sdn.network.trees import spanning_tree
from sdn.tables.pipeline import Pipeline, PlanName
from sdn.tables.plans import make_plan

LOADED_TOGETHER = 5_000


class EngineSetup:
    """Index, partition map and one engine per partition, with the publishers already active."""

    def __init__(
        self,
        plan: PlanName,
        distribution: Distribution,
        partitions: int,
        sample: int,
        publishers: int = PUBLISHERS,
        shapes: int = 64,
    ) -> None:
        self.index: Index
        if plan == "legs":
            self.index = learned_index(distribution, sample, shapes=shapes)
        else:
            self.index = make_index(make_space("zorder"))
        self.space = self.index.space
        self.map = first_map(self.index, plan, partitions)
        network = topology("fat-tree:102")
        routes = Routes(network, {0: spanning_tree(network)})
        tables = make_plan(routes, Pipeline(plan=plan).extended(network), Scope(1))
        self.engines = {name: Engine(tables) for name in self.map.leaves()}
        self.workload = Workload(self.space, distribution)
        for n, publisher in enumerate(self.workload.publishers(publishers)):
            advertisement = make_request(self.index, f"p{n}", publisher, advertised=True)
            self._load([route(self.map, advertisement)])

    def subscriptions(self, prefix: str, count: int) -> Iterator[Request]:
        """New subscriptions, whose ids begin with the prefix."""
        for n, subscription in enumerate(self.workload.subscriptions(count)):
            yield make_request(self.index, f"{prefix}{n}", subscription)

    def load(self, requests: Iterable[Request]) -> None:
        """Make requests active without computing operations."""
        remaining = iter(requests)
        while chunk := [route(self.map, r) for r in islice(remaining, LOADED_TOGETHER)]:
            self._load(chunk)

    def _load(self, routed: list[dict[str, Partial]]) -> None:
        for name, partials in by_partition(routed).items():
            self.engines[name].load(partials)

    def entries(self) -> dict[str, int]:
        """The number of entries on each switch."""
        counts: dict[str, int] = {}
        for engine in self.engines.values():
            for switch, entries in engine.entries().items():
                counts[switch] = counts.get(switch, 0) + len(entries)
        return counts


def by_partition(routed: Iterable[dict[str, Partial]]) -> dict[str, list[Partial]]:
    """The queue of each partition, from routed requests."""
    queues: dict[str, list[Partial]] = {}
    for partials in routed:
        for name, partial in partials.items():
            queues.setdefault(name, []).append(partial)
    return queues


class SliceRunner:
    """Decides and commits queues slice by slice, and adds up time and operations."""

    def __init__(self, setup: EngineSetup, ordering: Ordering, slice_size: int) -> None:
        self.setup = setup
        self.ordering: Ordering = ordering
        self.slice_size = slice_size
        self.seconds = 0.0
        self.operations = 0
        self.partials = 0
        self.seconds_by_partition: dict[str, float] = {}
        # By request: its share of the slices in which it was decided, in seconds.
        self.seconds_by_request: dict[str, float] = {}

    def decide(self, queues: dict[str, list[Partial]]) -> None:
        """Decide and commit all partials of the queues."""
        clock = time.perf_counter
        for name, queue in queues.items():
            engine = self.setup.engines[name]
            for start in range(0, len(queue), self.slice_size):
                part = queue[start : start + self.slice_size]
                began = clock()
                decision = engine.decide(part, self.ordering)
                engine.commit(decision)
                self._count(name, part, clock() - began)
                self.operations += sum(len(o) for b in decision.rounds for o in b.values())

    def _count(self, partition: str, part: list[Partial], seconds: float) -> None:
        self.seconds += seconds
        self.partials += len(part)
        by_request, by_partition = self.seconds_by_request, self.seconds_by_partition
        for partial in part:
            by_request[partial.id] = by_request.get(partial.id, 0.0) + seconds / len(part)
        by_partition[partition] = by_partition.get(partition, 0.0) + seconds

    def percentile(self, share: float) -> float:
        """The cost that this share of the requests does not exceed, in microseconds."""
        costs = sorted(self.seconds_by_request.values())
        return 1e6 * costs[int(share * (len(costs) - 1))]
