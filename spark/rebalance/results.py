"""From a proposal to what users see: figures before and after, and the plan. Pure."""

from collections.abc import Mapping

from msgspec import Struct

from configurators.state.trace_spaces import TraceVersion
from dzflow.index import Index
from spark.rebalance.assignment import Fleet
from spark.rebalance.model import Prediction, SpacePlan, SpaceResult
from spark.rebalance.planner import Candidate, Proposal
from spark.rebalance.prediction import Timing, partition_imbalance, waiting_ms
from spark.rebalance.reasons import find_reasons


class SpaceLoad(Struct, frozen=True):
    """What the traces say about a space; sums are of all its rows."""

    name: str
    version: int
    stored: TraceVersion
    work_us: float
    share: float  # of the work of all spaces
    pushed_us: float
    operations: int
    filters: int
    regions: int
    sampled: int
    damaged: int
    damaged_us: float


def space_result(
    space: SpaceLoad, index: Index, proposal: Proposal, fleet: Fleet, timing: Timing
) -> SpaceResult:
    """What was found out about a space."""
    present, best = proposal.present, proposal.best
    changed = present.load.regions ^ best.load.regions
    return SpaceResult(
        space=space.name,
        work_ms=space.work_us / 1_000,
        share=space.share,
        pushed_ms=space.pushed_us / 1_000,
        filters=space.filters,
        regions=space.regions,
        sampled=space.sampled,
        damaged=space.damaged,
        damaged_share=space.damaged_us / space.work_us if space.work_us else 0.0,
        before=_prediction(present, space.operations, 1.0, fleet, timing),
        after=_prediction(best, space.operations, _growth(proposal), fleet, timing),
        moved_share=best.moved,
        changed_entries=len(changed),
        plan=None if proposal.why else _plan(space, index, proposal, fleet),
        why=proposal.why,
    )


def _plan(space: SpaceLoad, index: Index, proposal: Proposal, fleet: Fleet) -> SpacePlan:
    return SpacePlan(
        space.name,
        space.version,
        space.stored.map_number,
        proposal.best.placement.map,
        {} if fleet.shared else _assignment(proposal, fleet.owners),
        find_reasons(proposal, index, fleet.shared),
    )


def _assignment(proposal: Proposal, owners: Mapping[str, str]) -> dict[str, str]:
    """The owners that change, and those of new partitions."""
    present, best = proposal.present, proposal.best
    return {
        leaf: owner
        for leaf, owner in sorted(best.assignment.owners.items())
        if owners.get(leaf) != owner
        # Who owns an idle partition is not in the traces; it can stay there.
        and (leaf in owners or leaf not in present.load.work or best.load.work[leaf])
    }


def _growth(proposal: Proposal) -> float:
    """How many flow operations there would be for each one that there was."""
    before = proposal.present.load.asking
    return proposal.best.load.asking / before if before else 1.0


def _prediction(
    candidate: Candidate, operations: int, growth: float, fleet: Fleet, timing: Timing
) -> Prediction:
    loads = candidate.assignment.loads
    total = sum(loads.values()) or 1.0
    waiting = waiting_ms(loads, fleet.speeds, timing)
    # A partial is done when its whole slice is, so it waits for the work on the others as well.
    rest = timing.decided_ms + timing.pushed_ms
    return Prediction(
        partitions=len(candidate.load.work),
        imbalance=candidate.assignment.imbalance,
        partition_imbalance=partition_imbalance(candidate.load.work),
        shares={} if fleet.shared else {name: load / total for name, load in loads.items()},
        entries=candidate.load.entries,
        operations=round(operations * growth),
        waiting_ms=waiting,
        latency_ms=None if waiting is None else waiting + rest,
    )
