"""Sections on what hosts asked for, and how long it took: timeline, kinds, latency."""

from spark.report.drawing.markup import element
from spark.report.drawing.plots import Range, legend, ranges
from spark.report.drawing.tables import Column, Row, share_bar, table
from spark.report.drawing.text import (
    count,
    milliseconds,
    name,
    number,
    plural,
    seconds,
    share,
    short,
    tick_milliseconds,
)
from spark.report.drawing.timeline import colour, timeline_plots
from spark.report.model import KindRow, Report, StageRow
from spark.report.sections.section import Section, lead, nothing

_STAGES = {
    "total": "from the arrival of the request to the end of its last partial",
    "queued": "waiting: for the partition, for its slice, and on the way",
    "decided": "computing the flow changes of the slice",
    "pushed": "until the switches have acknowledged the slice",
}
_MOST = 9  # characters of a stage's name beside its bar


def timeline(report: Report) -> Section:
    """Requests and latency over time."""
    data = report.timeline
    if not data.buckets:
        parts = [nothing("There is no timeline: no row has a time.")]
    else:
        text = (
            f"By the time of arrival (UTC), in {plural(len(data.buckets), 'bucket')} of"
            f" {seconds(data.bucket_s)}. Gaps are times without requests."
        )
        parts = [lead(text), timeline_plots(data)]
    return Section("timeline", "Timeline", parts)


def kinds(report: Report) -> Section:
    """The requests of each kind."""
    columns = [
        Column("Kind", "text"),
        Column("Requests"),
        Column("Share", "bar"),
        Column("Failed"),
        Column("mean", group="Requests per second"),
        Column("peak", group="Requests per second", hint="in the busiest bucket of the timeline"),
        Column("Partials", group="Per request"),
        Column("adds", group="Per request", hint="flow entries added"),
        Column("modifies", group="Per request", hint="flow entries modified"),
        Column("deletes", group="Per request", hint="flow entries deleted"),
    ]
    total = sum(row.requests for row in report.kinds)
    most = max((row.requests for row in report.kinds), default=0)
    rows = [_kind_row(row, total, most) for row in report.kinds]
    if not rows:
        return Section("kinds", "Kinds of requests", [nothing("There are no requests.")])
    return Section("kinds", "Kinds of requests", [table("Kinds of requests", columns, rows)])


def latency(report: Report) -> Section:
    """How long each stage took."""
    title = "Latency by stage"
    if not report.latency:
        return Section("latency", title, [nothing("There are no times of stages.")])
    plot = ranges(
        [
            Range(short(row.stage, _MOST), row.p50_ms, row.p90_ms, row.p99_ms, row.max_ms)
            for row in report.latency
        ],
        "Latency by stage: "
        + "; ".join(
            f"{short(row.stage)} p50 {milliseconds(row.p50_ms)}, p99 {milliseconds(row.p99_ms)}"
            for row in report.latency
        ),
        tick_milliseconds,
    )
    keys = legend(
        (
            ("middle", "p50"),
            ("usual", "up to p90"),
            ("seldom", "up to p99"),
            ("line whisker", "up to the largest"),
        )
    )
    columns = [
        Column("Stage", "text"),
        *(Column(title) for title in ("mean", "p50", "p90", "p99", "max")),
    ]
    numbers = table("Latency by stage", columns, [_stage_row(row) for row in report.latency])
    known = [
        f"“{row.stage}” is {_STAGES[row.stage]}" for row in report.latency if row.stage in _STAGES
    ]
    parts = [element("div", element("div", keys, plot), numbers, class_="beside")]
    if known:
        parts.insert(0, lead("; ".join(known), "."))
    return Section("latency", title, parts)


def failed_text(failed: int, requests: int) -> str:
    """How many requests failed, with their share."""
    return "0" if failed == 0 else f"{count(failed)} ({share(failed / max(requests, 1))})"


def _kind_row(row: KindRow, total: int, most: int) -> Row:
    part = row.requests / max(total, 1)
    cells = [
        name(row.kind),
        count(row.requests),
        share_bar(part, most / max(total, 1), colour(row.kind)),
        failed_text(row.failed, row.requests),
        number(row.per_s),
        number(row.peak_per_s),
        number(row.partials),
        number(row.adds),
        number(row.modifies),
        number(row.deletes),
    ]
    return Row(cells)


def _stage_row(row: StageRow) -> Row:
    times = (row.mean_ms, row.p50_ms, row.p90_ms, row.p99_ms, row.max_ms)
    return Row([name(row.stage), *map(milliseconds, times)])
