"""Unwanted traffic: the events that the regions of a filter let through beyond the filter."""

from collections.abc import Sequence
from typing import NamedTuple

from bench.engines.measures import Scale
from bench.report import Row
from bench.workload import Distribution, Workload, learned_index, make_index, make_space
from dzflow.filters import Filter
from dzflow.index import Index
from dzflow.intervals import Key

BUDGETS = (8, 7, 6, 5)


class Deliveries(NamedTuple):
    """How many regions some filters have, and the events that these let through."""

    entries: int
    delivered: int
    unwanted: int  # delivered, but not wanted by the filter


def count_deliveries(
    index: Index, filters: Sequence[Filter], events: Sequence[Sequence[Key]]
) -> Deliveries:
    """Count the events that reach each of the filters, one by one."""
    points = [(keys, index.point(keys)) for keys in events]
    entries = delivered = wanted = 0
    for one in filters:
        cover = index.regions(one)
        entries += len(cover)
        for keys, point in points:
            if any(region.holds(point) for region in cover):
                delivered += 1
                wanted += one.matches(keys)
    return Deliveries(entries, delivered, delivered - wanted)


def measure_unwanted(scale: Scale, distribution: Distribution) -> list[Row]:
    """For each index: entries per filter, and the share of delivered events that is unwanted."""
    space = make_space("fields")
    workload = Workload(space, distribution)
    filters = [subscription.filter for subscription in workload.subscriptions(scale.filters)]
    events = workload.events(scale.events)
    rows: list[Row] = []
    for name, index in _indexes(scale, distribution, filters).items():
        found = count_deliveries(index, filters, events)
        rows.append(
            {
                "measure": "unwanted",
                "index": name,
                "distribution": distribution,
                "entries_per_filter": found.entries / len(filters),
                "unwanted_share": found.unwanted / found.delivered,
                "unwanted_per_1000_events": 1000 * found.unwanted / len(events) / len(filters),
            }
        )
    return rows


def _indexes(
    scale: Scale, distribution: Distribution, filters: Sequence[Filter]
) -> dict[str, Index]:
    """The indexes to compare; the last one has no more entries per filter than `zorder`."""
    zorder = make_index(make_space("zorder"))
    indexes: dict[str, Index] = {
        "zorder": zorder,
        "fields, shapes from the schema": make_index(make_space("fields")),
        "fields, shapes learned": learned_index(distribution, scale.sample),
    }
    allowed = sum(len(zorder.regions(one)) for one in filters)
    for budget in BUDGETS:
        index = learned_index(distribution, scale.sample, budget)
        if sum(len(index.regions(one)) for one in filters) <= allowed:
            indexes[f"fields, learned, budget {budget}"] = index
            break
    return indexes
