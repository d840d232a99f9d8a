"""Measurements of the engine: throughput, state, partitions, orderings, and variants."""

import gc
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

from bench.engines.setup import EngineSetup, SliceRunner, by_partition
from bench.processes.forked import run_forked
from bench.report import Row
from bench.workload import HOSTS, PUBLISHERS, Distribution
from configurators.engine.engine import Ordering
from configurators.engine.partials import Request
from configurators.engine.partition_map import PartitionMap, route, route_removal
from dzflow.region import Region
from sdn.tables.pipeline import PlanName

ORDERINGS: tuple[Ordering, ...] = ("fifo", "ordered", "net")
BURSTS = 5  # of subscriptions and unsubscriptions in turn
SLICE = 100
PAGE = 4096  # bytes


class Scale(NamedTuple):
    """The extent of the benchmark."""

    active: tuple[int, ...]
    requests: int
    plans: tuple[PlanName, ...]
    distributions: tuple[Distribution, ...]
    partitions: int = 64
    slices: tuple[int, ...] = (1, 10, 100, 1_000)
    ordering_requests: int = 5_000  # as in thesis 6.6.4
    partitions_active: int = 20_000  # active subscriptions where numbers of partitions are compared
    filters: int = 1_000
    events: int = 500
    sample: int = 2_000  # filters that shapes are learned from
    variants: tuple[tuple[str, int, int], ...] = (  # name, publishers, shapes
        ("64 publishers", HOSTS, 64),
        ("256 shapes", PUBLISHERS, 256),
    )


def measure_throughput(
    scale: Scale, plan: PlanName, distribution: Distribution, active: int
) -> list[Row]:
    """Requests per second with each ordering, on top of the active subscriptions; and the state."""
    setup = EngineSetup(plan, distribution, scale.partitions, scale.sample)
    removable: list[Request] = []
    random = Random(2)

    def loaded() -> Iterator[Request]:
        # Only subscriptions that are removed later are kept: all of them would not fit in memory.
        share = scale.requests / 3 / active * 1.2
        for subscription in setup.subscriptions("s", active):
            if random.random() < share:
                removable.append(subscription)
            yield subscription

    setup.load(loaded())
    gc.collect()
    memory = _resident_mb()
    added = scale.requests * 2 // 3
    began = time.perf_counter()
    new = list(setup.subscriptions("n", added))
    indexing = (time.perf_counter() - began) / added
    began = time.perf_counter()
    additions = [by_partition(route(setup.map, r) for r in part) for part in _cut(new, BURSTS)]
    routing = (time.perf_counter() - began) / added
    removals = [
        by_partition(route_removal(setup.map, r) for r in part)
        for part in _cut(removable[: scale.requests // 3], BURSTS)
    ]
    requests = added + min(len(removable), scale.requests // 3)
    gc.freeze()

    def measure(ordering: Ordering) -> list[Row]:
        runner = SliceRunner(setup, ordering, SLICE)
        for addition, removal in zip(additions, removals, strict=True):
            runner.decide(addition)
            runner.decide(removal)
        return [
            {
                "measure": "throughput",
                "plan": plan,
                "distribution": distribution,
                "active": active,
                "ordering": ordering,
                "requests_per_s": requests / runner.seconds,
                "operations_per_s": runner.operations / runner.seconds,
                "operations_per_request": runner.operations / requests,
                "p50_us": runner.percentile(0.5),
                "p99_us": runner.percentile(0.99),
            }
        ]

    entries = setup.entries()
    state = {
        "measure": "state",
        "plan": plan,
        "distribution": distribution,
        "active": active,
        "partials_per_request": sum(map(len, additions[0].values())) / len(_cut(new, BURSTS)[0]),
        "entries_per_switch": sum(entries.values()) / len(entries),
        "entries_largest_switch": max(entries.values()),
        "memory_mb": memory,
        "index_us": indexing * 1e6,
        "route_us": routing * 1e6,
    }
    rows: list[Row] = []
    for ordering in ORDERINGS:
        rows += run_forked(lambda o=ordering: measure(o))  # type: ignore[misc]
    return [*rows, state]


def measure_partitions(scale: Scale, plan: PlanName, partitions: int) -> Row:
    """Work, entries and throughput with some number of partitions."""
    setup = EngineSetup(plan, "zipf", partitions, scale.sample)
    runner = SliceRunner(setup, "net", SLICE)
    new = setup.subscriptions("s", scale.partitions_active)
    runner.decide(by_partition(route(setup.map, r) for r in new))
    return {
        "measure": "partitions",
        "plan": plan,
        "wanted": partitions,
        "partitions": len(setup.map.leaves()),
        "active": scale.partitions_active,
        "largest_share_of_work": max(runner.seconds_by_partition.values()) / runner.seconds,
        "entries": sum(setup.entries().values()),
        "requests_per_s": scale.partitions_active / runner.seconds,
    }


def measure_orderings(scale: Scale, plan: PlanName, partitions: int) -> list[Row]:
    """Operations for subscriptions on an empty network, by size of slice (thesis 6.6.4)."""
    setup = EngineSetup(plan, "zipf", partitions, scale.sample)
    new = setup.subscriptions("s", scale.ordering_requests)
    queues = by_partition(route(setup.map, r) for r in new)
    whole = sum(
        partial.regions[0] in _region_of(setup.map, name)
        for name, queue in queues.items()
        for partial in queue
    )

    def operations(ordering: Ordering, size: int) -> list[Row]:
        runner = SliceRunner(setup, ordering, size)
        runner.decide(queues)
        return [{"operations": runner.operations}]

    rows: list[Row] = []
    for size in scale.slices:
        counts: dict[str, int] = {}
        for ordering in ORDERINGS:
            (row,) = run_forked(lambda o=ordering, s=size: operations(o, s))  # type: ignore[misc]
            counts[ordering] = row["operations"]
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


def _region_of(partition_map: PartitionMap, name: str) -> tuple[Region, ...]:
    """Under lpm, the partition's own region: no partial in it is coarser. Under legs, none."""
    if partition_map.plan == "legs":
        return ()
    return (Region.parse("" if name == "all" else name),)


def measure_variants(scale: Scale) -> list[Row]:
    """Cases that the main workload hides: many publishers, and many distinct regions."""
    active = scale.active[-1]
    requests = scale.requests // 5
    rows = []
    for name, publishers, shapes in scale.variants:
        setup = EngineSetup("legs", "zipf", scale.partitions, scale.sample, publishers, shapes)
        setup.load(setup.subscriptions("s", active))
        queues = by_partition(route(setup.map, r) for r in setup.subscriptions("n", requests))
        runner = SliceRunner(setup, "net", SLICE)
        runner.decide(queues)
        rows.append(
            {
                "measure": "variants",
                "variant": name,
                "active": active,
                "distinct_regions": sum(len(e.contributions()) for e in setup.engines.values()),
                "requests_per_s": requests / runner.seconds,
                "operations_per_request": runner.operations / requests,
                "memory_mb": _resident_mb(),
            }
        )
    return rows


def _cut(items: list[Request], parts: int) -> list[list[Request]]:
    size = -(-len(items) // parts)
    return [items[n * size : (n + 1) * size] for n in range(parts)]


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * PAGE / 2**20
