"""The top of the page: what the report is about, what to be careful with, and the key figures."""

from collections.abc import Sequence
from dataclasses import dataclass

from spark.report.drawing.markup import Html, element, joined
from spark.report.drawing.text import (
    NOTHING,
    count,
    milliseconds,
    name,
    number,
    plural,
    share,
    short,
    span,
    times,
    utc,
)
from spark.report.model import LoadRow, Report
from spark.traces import Source

_NOTICE = 600  # characters


@dataclass(frozen=True)
class _Tile:
    title: str
    value: str
    note: str


def headline(report: Report) -> Html:
    """What was read, from when to when, and how many requests failed."""
    source = report.source
    made = element("p", "Report made ", utc(source.made_us), " from ", _path(source), class_="made")
    title = element("h1", "Request traces")
    if source.rows == 0:
        return element("header", title, made, *_notices(source))
    when = element("p", span(source.begin_us, source.end_us), class_="when")
    return element("header", title, when, _summary(report), made, *_notices(source))


def tiles(report: Report) -> Html:
    """The key figures, as a list of names and values."""
    drawn = [
        element(
            "div",
            element("dt", tile.title),
            element("dd", tile.value, class_="value"),
            element("dd", tile.note, class_="note"),
        )
        for tile in _tiles(report)
    ]
    return element("dl", *drawn, class_="tiles", aria_label="Key figures")


def whole_work(rows: Sequence[LoadRow]) -> float | None:
    """The work of all in milliseconds, also if only the busiest have a row; None if unknown."""
    return next((row.work_ms / row.share for row in rows if row.share > 0), None)


def _path(source: Source) -> Html:
    return element("code", name(source.path, 200))


def _summary(report: Report) -> Html:
    source = report.source
    parts = [
        element("strong", plural(source.requests, "request")),
        f" in {milliseconds(max(0, source.end_us - source.begin_us) / 1_000)}",
        f" ({plural(source.rows, 'partial')}, one row each, in {plural(source.files, 'file')}). ",
    ]
    failed, asked = _failed(report)
    if failed:
        told = f"{share(failed / max(asked, 1))} failed ({count(failed)})."
        parts.append(element("strong", told, class_="bad"))
    elif asked:
        parts.append("None failed.")
    return element("p", *parts, class_="summary")


def _notices(source: Source) -> list[Html]:
    notices = []
    if source.skipped:
        many = len(source.skipped)
        link = element("a", "which and why", href="#skipped")
        text = f"{plural(many, 'file was', 'files were')} skipped ("
        notices.append(joined([text, link, "). The figures lack what is in there."]))
    if source.backwards:
        text = (
            f"{plural(source.backwards, 'row ends', 'rows end')} before the request arrived: a"
            " clock was set back. They count in no latency of requests; check that the hosts of the"
            " API processes keep time (NTP)."
        )
        notices.append(joined([text]))
    notices += [joined([short(notice, _NOTICE)]) for notice in source.notices]
    return [element("p", notice, class_="notice", role="note") for notice in notices]


def _failed(report: Report) -> tuple[int, int]:
    return sum(kind.failed for kind in report.kinds), sum(kind.requests for kind in report.kinds)


def _tiles(report: Report) -> list[_Tile]:
    return [_rate(report), *_latency(report), _work(report), _operations(report), *_skew(report)]


def _rate(report: Report) -> _Tile:
    mean = sum(kind.per_s for kind in report.kinds)
    timeline = report.timeline
    if not timeline.buckets or timeline.bucket_s <= 0:
        return _Tile("Requests per second", number(mean), "")
    peak = max(sum(bucket.requests.values()) for bucket in timeline.buckets) / timeline.bucket_s
    return _Tile("Requests per second", number(mean), f"peak {number(peak)}/s")


def _latency(report: Report) -> list[_Tile]:
    total = next((row for row in report.latency if row.stage == "total"), None)
    if total is None:
        return []
    return [
        _Tile("Latency p50", milliseconds(total.p50_ms), "from arrival to the last switch"),
        _Tile("Latency p99", milliseconds(total.p99_ms), f"largest {milliseconds(total.max_ms)}"),
    ]


def _work(report: Report) -> _Tile:
    work = whole_work(report.partitions or report.configurators)
    requests = report.source.requests
    each = milliseconds(work / requests) if work is not None and requests else NOTHING
    note = "time of deciding" if work is None else f"{milliseconds(work)} in all"
    return _Tile("Work per request", each, note)


def _operations(report: Report) -> _Tile:
    if report.operations is None:
        return _Tile("Operations per request", NOTHING, "")
    data = report.operations
    note = f"changes of flow tables; p99 {number(data.p99)}"
    return _Tile("Operations per request", number(data.mean), note)


def _skew(report: Report) -> list[_Tile]:
    return [
        _Tile("Skew", times(skew.max_over_mean), "busiest partition to the mean")
        for skew in report.skew
        if skew.over == "partitions"
    ]
