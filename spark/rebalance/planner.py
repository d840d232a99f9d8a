"""Chooses a partition map and its owners for the load of a space. Pure.

The candidates are the present map, maps on the way from it to a better balanced one, and a map that
is planned from nothing. Each has a cost, in units of the mean load of a configurator:

    cost = load of the busiest configurator
           + ENTRY_PRICE * share of partials that newly need flow operations
           + MOVE_PRICE * share of work that is moved

The cheapest one is proposed if it is cheaper than the present map by `min_gain`. So a plan always
takes load off the busiest configurator. If another number of partitions is asked for, only the maps
that come nearest to it are candidates, and the cheapest of these is proposed in any case.
"""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from configurators.engine.map_draft import Placement
from configurators.engine.map_planner import adapt_map, place, plan_placement
from configurators.engine.partition_map import PartitionMap
from spark.rebalance.assignment import MOVE_PRICE, Assignment, Fleet, assign, busiest, keep
from spark.rebalance.prediction import LoadPredictor, MapLoad, RegionLoad

ENTRY_PRICE = 0.5
"""If a tenth of the partials lose their coverer, a twentieth of the mean load must be gained."""

MIN_GAIN = 0.1
"""What a plan must gain at least, in units of the mean load of a configurator."""

_ROUNDING = 1e-9


class Candidate(Struct, frozen=True):
    """A map with owners, and what it costs."""

    placement: Placement
    load: MapLoad
    assignment: Assignment
    moved: float  # share of the work whose partition is new or gets another owner
    uncovered: float  # share of partials that newly need flow operations; 0 if there are fewer
    cost: float


class Proposal(Struct, frozen=True):
    """The present map, the best candidate, and why it is not worth it (empty if it is)."""

    present: Candidate
    best: Candidate
    why: str = ""


def propose(
    current: PartitionMap,
    items: Sequence[RegionLoad],
    fleet: Fleet,
    partitions: int | None = None,
    min_gain: float = MIN_GAIN,
) -> Proposal:
    """What should become of a map under a load.

    With another number of `partitions` than the map has, it is changed in any case. It has as many
    then as any candidate reaches: fewer than asked for if the load cannot be cut further.
    """
    items = [by_partial(item, current) for item in items]
    predictor = LoadPredictor()
    here = place(current, items)
    load = predictor.predict(here)
    kept = keep(load.work, fleet)
    present = Candidate(here, load, kept, 0.0, 0.0, kept.imbalance)
    fleet = replace(fleet, owners=kept.owners)  # also of partitions whose owner is not known
    count = len(here.parts) if partitions is None else partitions
    is_asked = count != len(here.parts)
    if not is_asked and (why := _nothing_to_do(load.work, fleet)):
        return Proposal(present, present, why)
    found = [
        _candidate(placement, predictor.predict(placement), present, fleet)
        for placement in _placements(here, items, count, is_asked)
    ]
    others = [each for each in found if each.moved or each.placement.map != current]
    if is_asked:
        most = max((len(each.load.work) for each in others), default=0)
        others = [each for each in others if len(each.load.work) == most]
    best = min(others, key=lambda candidate: candidate.cost, default=present)
    if is_asked and not others:
        return Proposal(present, present, "the map cannot be cut further")
    if is_asked or present.cost - best.cost >= max(min_gain, _ROUNDING):
        return Proposal(present, best)
    return Proposal(present, present, _too_little(present, best, fleet, min_gain))


def by_partial(item: RegionLoad, current: PartitionMap) -> RegionLoad:
    """A region with the work of one partial: several partitions are told of it, or have a part."""
    parts = len(current.parts(item.region, item.advertised))
    return replace(item, weight=item.weight / parts, partials=item.partials / parts)


def _placements(
    here: Placement, items: Sequence[RegionLoad], count: int, is_asked: bool
) -> Iterator[Placement]:
    """The maps to choose from; if a number of partitions is asked for, the present one is not."""
    if not is_asked:
        yield here
    yield from adapt_map(here.map, items, count)
    fresh = plan_placement(items, here.map.plan, count)
    if fresh.map != here.map:
        yield fresh


def _candidate(placement: Placement, load: MapLoad, present: Candidate, fleet: Fleet) -> Candidate:
    assignment = assign(load.work, fleet)
    total = sum(load.work.values()) or 1.0
    more = (load.asking - present.load.asking) / (load.partials or 1.0)
    moved = assignment.moved
    if fleet.shared:
        moved = sum(work for leaf, work in load.work.items() if leaf not in present.load.work)
    # Loads are compared with the present mean: a map may make more work, or less.
    even = busiest(present.assignment, fleet) / present.assignment.imbalance or 1.0
    cost = busiest(assignment, fleet) / even
    cost += ENTRY_PRICE * max(0.0, more) + MOVE_PRICE * moved / total
    return Candidate(placement, load, assignment, moved / total, max(0.0, more), cost)


def _nothing_to_do(work: Mapping[str, float], fleet: Fleet) -> str:
    """Why no map could be better, whatever it is; empty if one could."""
    if not sum(work.values()):
        return "the traces have no work in this space"
    if len(fleet.speeds) == 1:
        return "there is one configurator only: work cannot be spread"
    return ""


def _too_little(present: Candidate, best: Candidate, fleet: Fleet, min_gain: float) -> str:
    """Why the best candidate is not worth it."""
    now = present.assignment.imbalance
    if now < 1 + min_gain:
        return f"the busiest configurator has {now:.2f} times the mean load: that is good enough"
    if busiest(best.assignment, fleet) >= busiest(present.assignment, fleet) * (1 - _ROUNDING):
        return _indivisible(present)
    return (
        f"the best plan would take the busiest configurator from {now:.2f} to"
        f" {best.assignment.imbalance:.2f} times the mean load, move {best.moved:.0%} of the work,"
        f" and {best.uncovered:.0%} of the requests would newly need flow operations: it gains"
        f" {present.cost - best.cost:.2f}, and {min_gain:.2f} is asked for"
    )


def _indivisible(present: Candidate) -> str:
    heaviest, work = max(present.load.work.items(), key=lambda item: (item[1], item[0]))
    share = work / (sum(present.load.work.values()) or 1.0)
    return (
        f"no map and no move would be better: {heaviest} has {share:.0%} of the work, and what"
        " lies there cannot be divided"
    )
