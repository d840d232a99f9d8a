"""How evenly maps and owners spread a load: equal cuts, the balancer, a plan of `rebalance`. Pure.

The load is that of filters which are not in the traces, but of the same workload.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from bench.report import Row
from bench.trace_jobs.balancer_alone import settled_owners
from bench.trace_jobs.equal_maps import equal_map
from bench.trace_jobs.generator import ADVERTISED
from bench.trace_jobs.pool import Origin, owners_in_turn
from bench.workload import make_request
from configurators.engine.map_planner import first_map
from configurators.engine.partition_map import PartitionMap, route
from spark.rebalance.assignment import Fleet, assign, imbalance_of
from spark.rebalance.model import SpaceResult

BEFORE = "equal cuts, owners in turn"
BALANCED = "equal cuts, after the balancer"
EQUAL = "equal cuts, as many as the plan"
BEST_OWNERS = "equal cuts, as many as the plan, best owners"
SCHEMA = "cuts from the schema, owners in turn"
PLANNED = "plan of rebalance"


class Case(NamedTuple):
    """A map with its owners."""

    name: str
    map: PartitionMap
    owners: Mapping[str, str]


def load_of(origin: Origin, partition_map: PartitionMap) -> dict[str, float]:
    """The partials of a request in each partition, on average."""
    found = dict.fromkeys(partition_map.leaves(), 0.0)
    kinds = ((origin.others, False, 1 - ADVERTISED), (origin.publishers, True, ADVERTISED))
    for wanted, advertised, share in kinds:
        for each in wanted:
            request = make_request(origin.index, "", each, advertised)
            for leaf in route(partition_map, request):
                found[leaf] += share / len(wanted)
    return found


def compare(origin: Origin, result: SpaceResult) -> list[Row]:
    """The load of the busiest configurator in each case, and what the job has predicted."""
    names = sorted(set(origin.owners.values()))
    speeds = dict.fromkeys(names, 1.0)
    predicted = {BEFORE: result.before, PLANNED: result.after}
    rows = []
    for case in _cases(origin, result, names):
        work = load_of(origin, case.map)
        loads = dict.fromkeys(names, 0.0)
        for leaf, owner in case.owners.items():
            loads[owner] += work[leaf]
        told = predicted.get(case.name)
        rows.append(
            {
                "measure": "plans",
                "case": case.name,
                "configurators": len(names),
                "partitions": len(work),
                "imbalance": imbalance_of(loads, speeds),
                "heaviest_partition": max(work.values()) / sum(work.values()),
                "partials_per_request": sum(work.values()),
                "predicted_imbalance": told.imbalance if told else None,
                "predicted_waiting_ms": told.waiting_ms if told else None,
                "predicted_latency_ms": told.latency_ms if told else None,
            }
        )
    return rows


def _cases(origin: Origin, result: SpaceResult, names: list[str]) -> Iterator[Case]:
    present, owners = origin.map, origin.owners
    yield Case(BEFORE, present, owners)
    yield Case(BALANCED, present, settled_owners(load_of(origin, present), owners, names))
    planned, new_owners = present, dict(owners)
    if result.plan:
        planned = result.plan.map
        new_owners |= result.plan.assignment
    count = len(planned.leaves())
    equal = equal_map(origin.index, present.plan, count)
    in_turn = owners_in_turn(equal, names)
    yield Case(EQUAL, equal, in_turn)
    fleet = Fleet(dict.fromkeys(names, 1.0))
    yield Case(BEST_OWNERS, equal, assign(load_of(origin, equal), fleet).owners)
    schema = first_map(origin.index, present.plan, count)
    yield Case(SCHEMA, schema, owners_in_turn(schema, names))
    yield Case(PLANNED, planned, {leaf: new_owners[leaf] for leaf in planned.leaves()})


def plan_ratios(rows: list[Row]) -> dict[str, float]:
    """The imbalance with the plan, over that of the other cases; and the predicted latency."""
    by_case = {row["case"]: row for row in rows if row["measure"] == "plans"}
    if PLANNED not in by_case:
        return {}
    after = by_case[PLANNED]
    found = {
        f"imbalance_after_over_{name}": after["imbalance"] / by_case[case]["imbalance"]
        for name, case in (("before", BEFORE), ("balancer", BALANCED), ("equal_cuts", EQUAL))
    }
    before, then = by_case[BEFORE]["predicted_latency_ms"], after["predicted_latency_ms"]
    if before and then:
        found["predicted_latency_after_over_before"] = then / before
    return found
