"""The job `shapes`: from rows of traces to a dictionary for each space."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from dzflow.index import FieldsIndex
from spark.reading import find_events, read_events, read_rows, vanished
from spark.shapes.learning import find_reasons, learn
from spark.shapes.model import Change, Proposal, ShapesFound, SpaceShapes
from spark.shapes.options import ShapesOptions
from spark.shapes.workload import (
    FilterTotals,
    event_totals,
    events_of,
    filter_totals,
    filters_of,
    sample_events,
    sample_filters,
)
from spark.source import count_requests, find_source, with_notices
from spark.spaces import IndexedSpace, heaviest_spaces, indexed_spaces
from spark.traces import Traces
from spark.work import with_work

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def make_shapes(
    spark: "SparkSession", path: str, traces: Traces, options: ShapesOptions
) -> ShapesFound:
    """Dictionaries for the spaces of the traces, or the reasons why there is none.

    UnknownTraceSpace if the space that is asked for is not described.
    """
    rows = with_work(read_rows(spark, traces, options.since_us, options.until_us))
    source = find_source(path, traces, rows, lambda: count_requests(rows))
    spaces, notices = indexed_spaces(
        traces, options.space, "No shapes can be learned", "The shapes of {} cannot be learned"
    )
    if not source.rows:
        return ShapesFound(with_notices(source, notices, vanished(spark, traces)))
    files = find_events(spark, path, options.since_us, options.until_us)
    source = with_notices(source, (), files.skipped)
    filters = filters_of(rows).persist()
    events = events_of(read_events(spark, files, options.since_us, options.until_us)).persist()
    try:
        totals, published = filter_totals(filters), event_totals(events)
        notices += _left_out(totals, published, spaces, options.space)
        counts = {name: totals[name].counted for name in spaces if name in totals}
        names, more = heaviest_spaces(
            counts, "with fewer subscriptions are not learned; name one to get its shapes"
        )
        notices += more
        found = tuple(
            _learn(name, spaces[name], filters, totals[name], events, published.get(name, 0.0))
            for name in names
        )
    finally:
        filters.unpersist()
        events.unpersist()
    gone = [*vanished(spark, traces), *vanished(spark, files)]
    return ShapesFound(with_notices(source, notices, gone), found)


def _left_out(
    totals: Mapping[str, FilterTotals],
    published: Mapping[str, float],
    spaces: Mapping[str, IndexedSpace],
    wanted: str,
) -> list[str]:
    """Notices about subscriptions and events of unknown spaces."""
    if wanted:
        return []
    notices = []
    for name in sorted({*totals, *published}.difference(spaces)):
        subscriptions = totals[name].subscriptions if name in totals else 0
        about = f"{subscriptions:,} subscriptions and {published.get(name, 0.0):,.0f} events"
        notices.append(f"{name} is left out ({about}): no file describes the space.")
    return notices


def _learn(
    name: str,
    space: IndexedSpace,
    filters: "DataFrame",
    totals: FilterTotals,
    events: "DataFrame",
    published: float,
) -> SpaceShapes:
    """The result for one space."""
    result = SpaceShapes(
        space=name,
        subscriptions=totals.counted,
        active=totals.by_active,
        filters=totals.active_filters if totals.by_active else totals.filters,
        sampled=0,
        damaged=0,
        events=0,
        damaged_events=0,
        basis="uniform",
        before=None,
        after=None,
        change=Change(),
        proposal=None,
        why="",
    )
    index = space.index
    if not isinstance(index, FieldsIndex):
        why = "its index is of kind zorder, whose regions are prefixes: it has no shapes"
        return replace(result, why=why)
    readable = sample_filters(filters, index.space, totals)
    result = replace(
        result, sampled=len(readable.filters) + readable.damaged, damaged=readable.damaged
    )
    if not readable.filters:
        return replace(result, why="no filter of its subscriptions can be read, or fits the schema")
    sampled = sample_events(events, index.space, published)
    learned = learn(index, readable.filters, sampled.events)
    result = replace(
        result,
        events=len(sampled.events),
        damaged_events=sampled.damaged,
        basis=learned.basis,
        before=learned.before,
        after=learned.after,
        change=learned.change,
        why=learned.why,
    )
    if learned.why:
        return result
    reasons = find_reasons(learned)
    proposal = Proposal(name, space.version, learned.shapes, reasons)
    return replace(result, proposal=proposal)
