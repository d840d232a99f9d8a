"""What the engine costs: requests per second, operations, entries, memory, unwanted traffic.

Workload of thesis section 6.6 on `fat-tree:102`. Requests come in bursts, subscriptions and then
unsubscriptions, so that slices of one kind can fill up.
"""

import gc
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from bench.forked import forked
from bench.report import Report, Row
from bench.workload import (
    HOSTS,
    PUBLISHERS,
    Distribution,
    Workload,
    learned_index,
    make_index,
    make_space,
    request,
)
from configurators.engine.engine import Engine, Ordering
from configurators.engine.map_planner import first_map
from configurators.engine.partials import Partial, Request
from configurators.engine.partition_map import PartitionMap, route, route_removal
from dzflow.address import Scope
from dzflow.index import Index
from dzflow.region import Region
from sdn.pipeline import Pipeline, PlanName
from sdn.plans import make_plan
from sdn.routes import Routes
from sdn.topologies import topology
from sdn.trees import spanning_tree

Progress = Callable[[str], None]
ORDERINGS: tuple[Ordering, ...] = ("fifo", "ordered", "net")
BURSTS = 5
SLICE = 100


class Scale(NamedTuple):
    """How much is measured."""

    active: tuple[int, ...]
    requests: int
    plans: tuple[PlanName, ...]
    distributions: tuple[Distribution, ...]
    partitions: int = 64
    slices: tuple[int, ...] = (1, 10, 100, 1_000)
    ordering_requests: int = 5_000  # as in thesis 6.6.4
    cut_active: int = 20_000
    filters: int = 1_000
    events: int = 500
    sample: int = 2_000  # filters that shapes are learned from
    variants: tuple[tuple[str, int, int], ...] = (  # name, publishers, shapes
        ("64 publishers", HOSTS, 64),
        ("256 shapes", PUBLISHERS, 256),
    )


FULL = Scale((10_000, 100_000, 200_000), 50_000, ("legs", "lpm"), ("uniform", "zipf"))
QUICK = Scale(
    (5_000, 100_000),
    12_000,
    ("legs",),
    ("zipf",),
    slices=(SLICE,),
    ordering_requests=2_000,
    cut_active=2_000,
    filters=300,
    sample=500,
    variants=(),
)


def run(quick: bool, progress: Progress) -> Report:
    """Measure everything; `progress` is told what comes next."""
    scale = QUICK if quick else FULL
    for distribution in scale.distributions:
        progress(f"learning shapes, {distribution}")
        learned_index(distribution, scale.sample)  # once, for all copies of this process
    report = Report("engine", {"quick": quick, **scale._asdict(), "topology": "fat-tree:102"})
    for plan in scale.plans:
        for distribution in scale.distributions:
            for active in scale.active:
                progress(f"{plan}, {distribution}, {active:,} active")
                report.rows += forked(
                    lambda p=plan, d=distribution, a=active: {"rows": _throughput(scale, p, d, a)}  # type: ignore[misc]
                )["rows"]
    for plan in ("legs", "lpm"):
        for partitions in (1, 8, 64):
            progress(f"{plan}, {partitions} partitions")
            report.rows.append(
                forked(lambda p=plan, n=partitions: _partitions(scale, p, n))  # type: ignore[misc]
            )
        for partitions in (1, 64):
            progress(f"{plan}, orderings, {partitions} partitions")
            report.rows += forked(
                lambda p=plan, n=partitions: {"rows": _orderings(scale, p, n)}  # type: ignore[misc]
            )["rows"]
    if scale.variants:
        progress("many publishers, many shapes")
        report.rows += forked(lambda: {"rows": _variants(scale)})["rows"]
    for distribution in scale.distributions:
        progress(f"unwanted traffic, {distribution}")
        report.rows += _unwanted(scale, distribution)
    report.ratios = _ratios(scale, report.rows)
    return report


class Plant:
    """Index, partitions and engines on the benchmark's network, with the publishers in place."""

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
        for n, ask in enumerate(self.workload.publishers(publishers)):
            self._load([route(self.map, request(self.index, f"p{n}", ask, advertised=True))])

    def requests(self, prefix: str, count: int) -> Iterator[Request]:
        """New subscriptions."""
        for n, ask in enumerate(self.workload.asks(count)):
            yield request(self.index, f"{prefix}{n}", ask)

    def load(self, requests: Iterable[Request]) -> None:
        """Make requests active without operations, some thousands at a time."""
        waiting = iter(requests)
        while chunk := [route(self.map, r) for r in islice(waiting, 5_000)]:
            self._load(chunk)

    def _load(self, routed: list[dict[str, Partial]]) -> None:
        for name, partials in by_partition(routed).items():
            self.engines[name].load(partials)

    def entries(self) -> dict[str, int]:
        """How many entries each switch has."""
        found: dict[str, int] = {}
        for engine in self.engines.values():
            for switch, entries in engine.entries().items():
                found[switch] = found.get(switch, 0) + len(entries)
        return found


def by_partition(routed: Iterable[dict[str, Partial]]) -> dict[str, list[Partial]]:
    """The queue of each partition."""
    queues: dict[str, list[Partial]] = {}
    for partials in routed:
        for name, partial in partials.items():
            queues.setdefault(name, []).append(partial)
    return queues


class Work:
    """Decides queues in slices and keeps account."""

    def __init__(self, plant: Plant, ordering: Ordering, slice_size: int) -> None:
        self.plant = plant
        self.ordering: Ordering = ordering
        self.slice_size = slice_size
        self.seconds = 0.0
        self.operations = 0
        self.partials = 0
        self.per_partition: dict[str, float] = {}
        self.costs: dict[str, float] = {}  # by request: its share of the slices it was in

    def decide(self, queues: dict[str, list[Partial]]) -> None:
        """Decide and commit everything that waits."""
        clock = time.perf_counter
        for name, queue in queues.items():
            engine = self.plant.engines[name]
            for start in range(0, len(queue), self.slice_size):
                part = queue[start : start + self.slice_size]
                began = clock()
                decision = engine.decide(part, self.ordering)
                engine.commit(decision)
                spent = clock() - began
                self.seconds += spent
                self.partials += len(part)
                for partial in part:
                    self.costs[partial.id] = self.costs.get(partial.id, 0.0) + spent / len(part)
                self.per_partition[name] = self.per_partition.get(name, 0.0) + spent
                self.operations += sum(len(o) for b in decision.rounds for o in b.values())

    def percentile(self, share: float) -> float:
        """The cost that this share of the requests does not exceed, in microseconds."""
        costs = sorted(self.costs.values())
        return 1e6 * costs[int(share * (len(costs) - 1))]


def _throughput(scale: Scale, plan: PlanName, distribution: Distribution, active: int) -> list[Row]:
    plant = Plant(plan, distribution, scale.partitions, scale.sample)
    loaded: list[Request] = []
    random = Random(2)

    def kept() -> Iterator[Request]:
        # Those that will be unsubscribed later are remembered; all of them would not fit.
        share = scale.requests / 3 / active * 1.2
        for r in plant.requests("s", active):
            if random.random() < share:
                loaded.append(r)
            yield r

    plant.load(kept())
    gc.collect()
    memory = _resident_mb()
    subscribe = scale.requests * 2 // 3
    began = time.perf_counter()
    new = list(plant.requests("n", subscribe))
    indexing = (time.perf_counter() - began) / subscribe
    began = time.perf_counter()
    bursts = [by_partition(route(plant.map, r) for r in part) for part in _cut(new, BURSTS)]
    routing = (time.perf_counter() - began) / subscribe
    gone = [
        by_partition(route_removal(plant.map, r) for r in part)
        for part in _cut(loaded[: scale.requests // 3], BURSTS)
    ]
    done = subscribe + min(len(loaded), scale.requests // 3)
    gc.freeze()

    def measure(ordering: Ordering) -> Row:
        work = Work(plant, ordering, SLICE)
        for coming, going in zip(bursts, gone, strict=True):
            work.decide(coming)
            work.decide(going)
        return {
            "measure": "throughput",
            "plan": plan,
            "distribution": distribution,
            "active": active,
            "ordering": ordering,
            "requests_per_s": done / work.seconds,
            "operations_per_s": work.operations / work.seconds,
            "operations_per_request": work.operations / done,
            "p50_us": work.percentile(0.5),
            "p99_us": work.percentile(0.99),
        }

    entries = plant.entries()
    state = {
        "measure": "state",
        "plan": plan,
        "distribution": distribution,
        "active": active,
        "partials_per_request": sum(map(len, bursts[0].values())) / len(_cut(new, BURSTS)[0]),
        "entries_per_switch": sum(entries.values()) / len(entries),
        "entries_largest_switch": max(entries.values()),
        "memory_mb": memory,
        "index_us": indexing * 1e6,
        "route_us": routing * 1e6,
    }
    return [*(forked(lambda o=ordering: measure(o)) for ordering in ORDERINGS), state]  # type: ignore[misc]


def _partitions(scale: Scale, plan: PlanName, partitions: int) -> Row:
    plant = Plant(plan, "zipf", partitions, scale.sample)
    work = Work(plant, "net", SLICE)
    work.decide(by_partition(route(plant.map, r) for r in plant.requests("s", scale.cut_active)))
    return {
        "measure": "partitions",
        "plan": plan,
        "wanted": partitions,
        "partitions": len(plant.map.leaves()),
        "active": scale.cut_active,
        "largest_share_of_work": max(work.per_partition.values()) / work.seconds,
        "entries": sum(plant.entries().values()),
        "requests_per_s": scale.cut_active / work.seconds,
    }


def _orderings(scale: Scale, plan: PlanName, partitions: int) -> list[Row]:
    """Operations for subscriptions on an empty network, by size of slice (thesis 6.6.4)."""
    plant = Plant(plan, "zipf", partitions, scale.sample)
    wanted = list(plant.requests("s", scale.ordering_requests))
    queues = by_partition(route(plant.map, r) for r in wanted)
    whole = sum(p.regions[0] in _own(plant.map, n) for n, q in queues.items() for p in q)

    def spent(size: int) -> dict[str, Any]:
        counts: dict[str, Any] = {}
        for ordering in ORDERINGS:
            work = Work(plant, ordering, size)
            counts[ordering] = forked(lambda w=work: w.decide(queues) or {"n": w.operations})["n"]  # type: ignore[misc]
        return counts

    rows = []
    for size in scale.slices:
        counts = spent(size)
        rows.append(
            {
                "measure": "orderings",
                "plan": plan,
                "partitions": partitions,
                "slice": size,
                **counts,
                "ordered_saving": 1 - counts["ordered"] / counts["fifo"],
                "net_saving": 1 - counts["net"] / counts["fifo"],
                "for_whole_partition": whole / sum(map(len, queues.values())),
            }
        )
    return rows


def _own(partition_map: PartitionMap, name: str) -> tuple[Region, ...]:
    """Under lpm, the region of the partition itself: nothing coarser can be asked of it."""
    if partition_map.plan == "legs":
        return ()
    return (Region.parse("" if name == "all" else name),)


def _variants(scale: Scale) -> list[Row]:
    """What the main workload hides: many publishers, and many distinct regions."""
    active = scale.active[-1]
    rows = []
    for name, publishers, shapes in scale.variants:
        plant = Plant("legs", "zipf", scale.partitions, scale.sample, publishers, shapes)
        plant.load(plant.requests("s", active))
        queues = by_partition(route(plant.map, r) for r in plant.requests("n", scale.requests // 5))
        work = Work(plant, "net", SLICE)
        work.decide(queues)
        rows.append(
            {
                "measure": "variants",
                "variant": name,
                "active": active,
                "distinct_regions": sum(len(e.contributions()) for e in plant.engines.values()),
                "requests_per_s": scale.requests // 5 / work.seconds,
                "operations_per_request": work.operations / (scale.requests // 5),
                "memory_mb": _resident_mb(),
            }
        )
    return rows


def _unwanted(scale: Scale, distribution: Distribution) -> list[Row]:
    """What each filter's regions let through, and how much of it the filter wants."""
    rows: list[Row] = []
    space = make_space("fields")
    workload = Workload(space, distribution)
    filters = [ask.filter for ask in workload.asks(scale.filters)]
    events = workload.events(scale.events)
    zorder = make_index(make_space("zorder"))
    indexes: list[tuple[str, Index]] = [
        ("zorder", zorder),
        ("fields, shapes from the schema", make_index(space)),
        ("fields, shapes learned", learned_index(distribution, scale.sample)),
    ]
    # Compared are indexes with no more entries per filter: the largest budget that gives that.
    allowed = sum(len(zorder.regions(one)) for one in filters)
    for budget in (8, 7, 6, 5):
        equal = learned_index(distribution, scale.sample, budget)
        if sum(len(equal.regions(one)) for one in filters) <= allowed:
            indexes.append((f"fields, learned, budget {budget}", equal))
            break
    for name, index in indexes:
        points = [(keys, index.point(keys)) for keys in events]
        through = wanted = regions = 0
        for one in filters:
            cover = index.regions(one)
            regions += len(cover)
            for keys, point in points:
                if any(region.holds(point) for region in cover):
                    through += 1
                    wanted += one.matches(keys)
        rows.append(
            {
                "measure": "unwanted",
                "index": name,
                "distribution": distribution,
                "entries_per_filter": regions / len(filters),
                "unwanted_share": 1 - wanted / through,
                "unwanted_per_1000_events": 1000 * (through - wanted) / len(events) / len(filters),
            }
        )
    return rows


def _ratios(scale: Scale, rows: list[Row]) -> dict[str, float]:
    def pick(measure: str, **wanted: Any) -> Row:
        return next(
            row
            for row in rows
            if row["measure"] == measure and all(row[k] == v for k, v in wanted.items())
        )

    net = {"plan": "legs", "distribution": "zipf", "ordering": "net"}
    small, large = scale.active[0], scale.active[-1]
    reference = 100_000 if 100_000 in scale.active else large
    cost = {n: 1 / pick("throughput", active=n, **net)["requests_per_s"] for n in (small, large)}
    many, one = (pick("orderings", plan="lpm", partitions=n, slice=SLICE) for n in (64, 1))
    through = [
        row["unwanted_per_1000_events"]
        for row in rows
        if row["measure"] == "unwanted" and row["distribution"] == "zipf"
    ]
    return {
        "requests_per_s": pick("throughput", active=reference, **net)["requests_per_s"],
        "growth": cost[large] / cost[small],
        "ordered_saving": many["ordered_saving"],
        "net_saving": many["net_saving"],
        "ordered_saving_one_partition": one["ordered_saving"],
        "net_saving_one_partition": one["net_saving"],
        "unwanted_legs_over_lpm": through[-1] / through[0],
        "unwanted_legs_over_lpm_from_schema": through[1] / through[0],
    }


def _cut(items: list[Request], parts: int) -> list[list[Request]]:
    size = -(-len(items) // parts)
    return [items[n * size : (n + 1) * size] for n in range(parts)]


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20
