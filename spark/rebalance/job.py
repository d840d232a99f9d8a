"""The job `rebalance`: from rows of traces to a plan for each space."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace
from pyspark.sql import functions as sql

from spark.reading import read_rows, vanished
from spark.rebalance.assignment import Fleet
from spark.rebalance.loads import (
    RegionTotals,
    SpaceTotals,
    find_owners,
    find_timing,
    find_totals,
    is_known,
    load_by_region,
    region_totals,
    sample_regions,
)
from spark.rebalance.model import Rebalance, SpaceResult
from spark.rebalance.options import RebalanceOptions
from spark.rebalance.planner import propose
from spark.rebalance.prediction import Timing
from spark.rebalance.results import SpaceLoad, space_result
from spark.source import count_requests, find_source, with_notices
from spark.spaces import IndexedSpace, heaviest_spaces, indexed_spaces, with_shapes
from spark.traces import Traces
from spark.work import with_work
from spark.workers.indexing import IndexSource
from spark.workers.shipping import shipped_code

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NOTICE = 0.001  # the share of the work that may be left out without a notice


def make_rebalance(
    spark: "SparkSession", path: str, traces: Traces, options: RebalanceOptions
) -> Rebalance:
    """Plans for the spaces of the traces, or the reasons why there is none.

    UnknownTraceSpace if the space that is asked for is not described; UnfitShapes if the shapes
    that are given do not fit.
    """
    rows = with_work(read_rows(spark, traces, options.since_us, options.until_us))
    source = find_source(path, traces, rows, lambda: count_requests(rows))
    spaces, notices = indexed_spaces(
        traces, options.space, "No space can be planned", "{} cannot be planned"
    )
    spaces = with_shapes(spaces, options.shapes)
    if not source.rows:
        return Rebalance(with_notices(source, notices, vanished(spark, traces)))
    decided = rows.where(sql.col("slice") > 0)
    totals, mode = find_totals(decided, is_known(_scopes(spaces)))
    notices += _left_out(totals, spaces, options.space)
    work = {
        name: total.work_us for name, total in totals.items() if name in spaces and total.work_us
    }
    busy, more = heaviest_spaces(work, "with less work have no plan; name one to get it")
    notices += more
    speeds = dict(options.speeds) or _equal_speeds(totals)
    timing = find_timing(decided)
    result = Rebalance(source, mode, speeds)
    if busy and speeds:
        chosen = {name: spaces[name] for name in busy}
        with shipped_code(spark):
            planned = _plan(decided, chosen, totals, result, timing, options)
        result = replace(result, spaces=planned)
    gone = vanished(spark, traces)
    return replace(result, source=with_notices(source, notices, gone))


def _scopes(spaces: Mapping[str, IndexedSpace]) -> dict[str, str]:
    """How the names of the partitions of each space begin."""
    return {name: space.partition("").partition("/")[0] for name, space in spaces.items()}


def _left_out(
    totals: Mapping[str, SpaceTotals], spaces: Mapping[str, IndexedSpace], wanted: str
) -> list[str]:
    """Notices about work that cannot be planned: of unknown spaces, or of other versions."""
    found = []
    for name, total in sorted(totals.items()):
        whole = total.work_us + total.unknown_us
        if name not in spaces:
            if not wanted:
                found.append(f"{name} is left out: no file describes the space.")
        elif whole and total.unknown_us / whole > _NOTICE:
            share = f"{total.unknown_us / whole:.1%}"
            text = "was done under other versions of its index than the one that is described"
            found.append(f"{share} of the work in {name} is left out: it {text}.")
    return found


def _equal_speeds(totals: Mapping[str, SpaceTotals]) -> dict[str, float]:
    """All configurators that have worked, as if they were equal."""
    names = {name for total in totals.values() for name in total.by_configurator}
    return dict.fromkeys(sorted(names), 1.0)


def _plan(
    decided: "DataFrame",
    spaces: Mapping[str, IndexedSpace],
    totals: Mapping[str, SpaceTotals],
    about: Rebalance,
    timing: Timing,
    options: RebalanceOptions,
) -> tuple[SpaceResult, ...]:
    """A result for each space, those with most work first."""
    own = decided.where(is_known(_scopes(spaces)))
    sources = [
        IndexSource(name, space.version, space.stored.schema, space.stored.shapes)
        for name, space in spaces.items()
    ]
    owners = options.owners
    if owners is None:
        names = [s.partition(leaf) for s in spaces.values() for leaf in s.stored.map.leaves()]
        owners = find_owners(own, names)
    # How the work of each space is spread; those that were planned before count as planned.
    spread = {name: dict(total.by_configurator) for name, total in totals.items()}
    all_work = sum(sum(loads.values()) for loads in spread.values()) or 1.0
    regions = load_by_region(own, sources).persist()
    found = []
    try:
        indexed = region_totals(regions)
        for name, space in spaces.items():
            total, part = totals[name], indexed[name]
            usable = total.work_us - part.damaged_us
            items = sample_regions(regions, name, usable, options.most_regions)
            others = [loads for other, loads in spread.items() if other != name]
            fleet = _fleet(space, about, owners, others)
            proposal = propose(space.stored.map, items, fleet, options.partitions, options.min_gain)
            best = proposal.best
            spread[name] = dict.fromkeys(best.assignment.loads, 0.0)
            for leaf, owner in best.assignment.owners.items():
                spread[name][owner] += best.load.work[leaf]
            load = _space_load(name, space, total, part, len(items), all_work)
            found.append(space_result(load, space.index, proposal, fleet, timing))
    finally:
        regions.unpersist()
    return tuple(found)


def _fleet(
    space: IndexedSpace, about: Rebalance, owners: Mapping[str, str], others: list[dict[str, float]]
) -> Fleet:
    """The configurators, as they are for one space; `others` is the work of the other spaces."""
    speeds = about.configurators
    shared = about.mode == "sea"
    loads = other_loads(others, speeds, shared)
    leaves = {leaf: owners.get(space.partition(leaf)) for leaf in space.stored.map.leaves()}
    return Fleet(speeds, loads, {leaf: who for leaf, who in leaves.items() if who}, shared)


def other_loads(
    others: Sequence[Mapping[str, float]], speeds: Mapping[str, float], shared: bool
) -> dict[str, float]:
    """The work that each configurator has from other spaces.

    In mode sea, whatever is idle takes work over: each has as much as its speed allows. In mode sna
    this holds for the work of configurators that are gone, because it is not known who has it now.
    """
    own = {name: 0.0 if shared else sum(each.get(name, 0.0) for each in others) for name in speeds}
    rest = sum(
        work for each in others for name, work in each.items() if shared or name not in speeds
    )
    even = rest / sum(speeds.values())
    return {name: work + even * speeds[name] for name, work in own.items()}


def _space_load(
    name: str,
    space: IndexedSpace,
    total: SpaceTotals,
    part: RegionTotals,
    sampled: int,
    all_work: float,
) -> SpaceLoad:
    return SpaceLoad(
        name=name,
        version=space.version,
        stored=space.stored,
        work_us=total.work_us,
        share=total.work_us / all_work,
        pushed_us=total.pushed_us,
        operations=total.operations,
        filters=part.filters,
        regions=part.regions,
        sampled=sampled,
        damaged=part.damaged,
        damaged_us=part.damaged_us,
    )
