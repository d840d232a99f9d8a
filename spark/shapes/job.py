"""The job `shapes`: from rows of traces to a dictionary for each space."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from configurators.state.trace_spaces import BadTraceSpaces, TraceVersion
from dzflow.index import FieldsIndex, Index
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
from spark.source import described_spaces, find_source
from spark.traces import Source, Traces
from spark.work import with_work

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_SPACES = 16  # for which shapes are learned: those with most subscriptions


class _Space(Struct, frozen=True):
    """A space that the traces describe: the version in force, and its index."""

    version: int
    stored: TraceVersion
    index: Index


def make_shapes(
    spark: "SparkSession", path: str, traces: Traces, options: ShapesOptions
) -> ShapesFound:
    """Dictionaries for the spaces of the traces, or the reasons why there is none.

    UnknownTraceSpace if the space that is asked for is not described.
    """
    rows = with_work(read_rows(spark, traces, options.since_us, options.until_us))
    source = find_source(path, traces, rows, lambda: rows.select("request_id").distinct().count())
    spaces, notices = _described(traces, options.space)
    if not source.rows:
        return ShapesFound(_told(source, notices))
    files = find_events(spark, path, options.since_us, options.until_us)
    source = replace(source, skipped=(*source.skipped, *files.skipped))
    filters = filters_of(rows).persist()
    events = events_of(read_events(spark, files, options.since_us, options.until_us)).persist()
    try:
        totals, published = filter_totals(filters), event_totals(events)
        notices += _left_out(totals, published, spaces, options.space)
        names = sorted(
            (name for name in spaces if name in totals),
            key=lambda name: (-totals[name].counted, name),
        )
        if len(names) > MOST_SPACES:
            text = f"{len(names) - MOST_SPACES} spaces with fewer subscriptions are not learned"
            notices.append(f"{text}; name one to get its shapes.")
        found = tuple(
            _learn(name, spaces[name], filters, totals[name], events, published.get(name, 0.0))
            for name in names[:MOST_SPACES]
        )
    finally:
        filters.unpersist()
        events.unpersist()
    gone = vanished(spark, traces)
    source = replace(source, skipped=(*source.skipped, *gone))
    return ShapesFound(_told(source, notices), found)


def _described(traces: Traces, wanted: str) -> tuple[dict[str, _Space], list[str]]:
    """The spaces that can be learned, and notices about the others."""
    described, unknown = described_spaces(traces, wanted)
    if unknown:
        return {}, [f"No shapes can be learned: {unknown}."]
    found = {}
    notices = []
    for name, space in sorted(described.items()):
        stored = space.versions[space.current]
        try:
            found[name] = _Space(space.current, stored, stored.index(name, space.current))
        except BadTraceSpaces as error:
            notices.append(f"The shapes of {name} cannot be learned: {error}.")
    return found, notices


def _left_out(
    totals: Mapping[str, FilterTotals],
    published: Mapping[str, float],
    spaces: Mapping[str, _Space],
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
    space: _Space,
    filters: "DataFrame",
    totals: FilterTotals,
    events: "DataFrame",
    published: float,
) -> SpaceShapes:
    """What there is to say about one space."""
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


def _told(source: Source, notices: list[str]) -> Source:
    return replace(source, notices=(*source.notices, *notices))
