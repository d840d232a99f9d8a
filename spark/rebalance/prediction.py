"""Predicts what a partition map makes of the traced work: entries, operations, waiting. Pure.

The models are simple, and docs/how-to/traces.md states them.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from configurators.engine.map_draft import Placement, Weighted
from dzflow.region import Region
from dzflow.region_map import RegionMap


class RegionLoad(Weighted, frozen=True):
    """A region with its work in microseconds, and how many partials asked for it."""

    partials: float = 0.0


class Timing(Struct, frozen=True):
    """What the traces say about time."""

    seconds: float  # in which requests arrived
    work_ms: float  # mean work of a partial
    decided_ms: float  # mean time until the whole slice of a partial is decided
    pushed_ms: float  # mean time of the switches


class LeafLoad(Struct, frozen=True):
    """What lies in one partition: its work, and the regions that need an entry."""

    work: float
    entries: frozenset[Region]
    partials: float  # of subscriptions
    asking: float  # those for regions that need an entry: these cost flow operations


class MapLoad(Struct, frozen=True):
    """What a map makes of the load."""

    work: Mapping[str, float]  # by leaf
    entries: int
    partials: float
    asking: float
    regions: frozenset[Region]  # that need an entry, in any partition


class LoadPredictor:
    """Finds the load of maps that share most of their leaves: each leaf is computed once.

    The name of a leaf says which tests lead to it, and so what lies there.
    """

    def __init__(self) -> None:
        self._leaves: dict[str, LeafLoad] = {}

    def predict(self, placement: Placement) -> MapLoad:
        """The load under a map."""
        leaves = {leaf: self._leaf(leaf, items) for leaf, items in placement.parts.items()}
        return MapLoad(
            {leaf: found.work for leaf, found in leaves.items()},
            sum(len(found.entries) for found in leaves.values()),
            sum(found.partials for found in leaves.values()),
            sum(found.asking for found in leaves.values()),
            frozenset().union(*(found.entries for found in leaves.values())),
        )

    def _leaf(self, leaf: str, items: Sequence[Weighted]) -> LeafLoad:
        known = self._leaves.get(leaf)
        if known is None:
            known = self._leaves[leaf] = leaf_load(items)
        return known


def leaf_load(items: Sequence[Weighted]) -> LeafLoad:
    """The load of one partition. Advertisements have work, but their entries do not depend on it.

    All regions count as if they were wanted at the same time, for the same leg.
    """
    partials: dict[Region, float] = {}
    for item in items:
        if not item.advertised:
            asked = item.partials if isinstance(item, RegionLoad) else 1.0
            partials[item.region] = partials.get(item.region, 0.0) + asked
    known: RegionMap[Region] = RegionMap()
    for region in partials:
        known.add(region, region)
    entries = frozenset(region for region in partials if not known.coverers(region))
    work = sum(item.weight for item in items)
    asking = sum(partials[region] for region in sorted(entries))
    return LeafLoad(work, entries, sum(partials.values()), asking)


def partition_imbalance(work: Mapping[str, float]) -> float:
    """The work of the heaviest partition over the mean of all."""
    total = sum(work.values())
    return max(work.values()) * len(work) / total if total else 1.0


def waiting_ms(
    loads: Mapping[str, float], speeds: Mapping[str, float], timing: Timing
) -> float | None:
    """The mean time that a partial waits for its configurator; None if a queue grows without end.

    Each configurator is a queue of its own with random arrivals and service times (M/M/1): a
    partial waits for u / (1 - u) times the mean service time where the configurator is busy for a
    share u of the time.
    """
    total = sum(loads.values())
    if not total:
        return 0.0
    waiting = 0.0
    for name, load in loads.items():
        busy = load / speeds[name] / (timing.seconds * 1e6)
        if busy >= 1:
            return None
        waiting += load / total * busy / (1 - busy) * timing.work_ms / speeds[name]
    return waiting
