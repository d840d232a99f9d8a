"""Sections on single requests and their senders: sizes, churn, hosts, the most expensive ones."""

from collections.abc import Callable, Sequence

from spark.report.drawing.markup import Html, element
from spark.report.drawing.plots import Show, histogram, summary
from spark.report.drawing.tables import Column, Row, foldable, share_bar
from spark.report.drawing.text import (
    NOTHING,
    clock_time,
    count,
    folded,
    is_one_day,
    milliseconds,
    name,
    number,
    seconds,
    short,
    short_count,
    tick_seconds,
    utc,
)
from spark.report.model import Churn, ExpensiveRequest, Histogram, HostRow, Report
from spark.report.sections.section import Section, lead, nothing
from spark.report.sections.traffic import failed_text

_LIFETIMES = 6  # plots; the table has all


def sizes(report: Report) -> Section:
    """Partials per slice, and flow operations per request."""
    plots = []
    if report.slices is not None and report.slices.count:
        plots.append(_sized("Partials per slice", report.slices, "slice"))
    if report.operations is not None and report.operations.count:
        plots.append(_sized("Flow operations per request", report.operations, "request"))
    title = "Slices and flow operations"
    if not plots:
        return Section("sizes", title, [nothing("There are no slices and no flow operations.")])
    text = (
        "Partials that wait for the same partition are decided and pushed together, in a slice:"
        " large slices are a sign of load. The axis has the upper bound of each bar."
    )
    return Section("sizes", title, [lead(text), element("div", *plots, class_="side-by-side")])


def churn(report: Report) -> Section:
    """How subscriptions and advertisements come and go, and how long they live."""
    title = "Churn and lifetimes"
    if not report.churn:
        text = "No subscription or advertisement came or went."
        return Section("churn", title, [nothing(text)])
    columns = [
        Column("Space", "text"),
        Column("Kind", "text"),
        *(Column(title) for title in ("Begun", "Updated", "Ended")),
        Column("count", group="Lifetime", hint="of those that began and ended within the traces"),
        *(Column(title, group="Lifetime") for title in ("p50", "p90", "p99")),
    ]
    with_lifetime = [each for each in report.churn if each.lifetime_s and each.lifetime_s.count]
    plots = [_lifetime_plot(each) for each in with_lifetime[:_LIFETIMES]]
    parts = [
        lead(
            "A lifetime is known only if both its begin and its end are within the traces, so the"
            " longest are missing."
        ),
        foldable(title, columns, [_churn_row(each) for each in report.churn], "row"),
    ]
    if plots:
        parts.append(element("div", *plots, class_="side-by-side"))
    return Section("churn", title, parts)


def hosts(report: Report) -> Section:
    """Who sent the requests."""
    if not report.hosts:
        return Section("hosts", "Hosts", [nothing("There are no hosts.")])
    columns = [
        Column("Host", "text"),
        Column("Share of requests", "bar"),
        Column("Requests"),
        Column("Failed"),
        Column("Work", hint="time of deciding"),
    ]
    most = max((row.share for row in report.hosts if row.host), default=1.0)
    # All others together come last, whatever their share.
    ordered = sorted(report.hosts, key=lambda row: (not row.host, -row.share, row.host))
    rows = [_host_row(row, most) for row in ordered]
    return Section("hosts", "Hosts", [foldable("Hosts", columns, rows, "host")])


def expensive(report: Report) -> Section:
    """The requests that took most work."""
    title = "Most expensive requests"
    if not report.expensive:
        return Section("expensive", title, [nothing("No request took work.")])
    columns = [
        Column("Request", "text"),
        Column("Work"),
        Column("Latency"),
        *(Column(title) for title in ("Partials", "Regions", "Operations")),
        *(Column(title, "text") for title in ("Kind", "Space", "Host", "Arrived (UTC)")),
    ]
    source = report.source
    when = clock_time if is_one_day(source.begin_us, source.end_us) else utc
    rows = [_expensive_row(each, when) for each in report.expensive]
    text = (
        "Those that took longest to decide, each with its filter. Unfold a long"
        " filter to see the whole."
    )
    return Section("expensive", title, [lead(text), foldable(title, columns, rows, "request")])


def skipped(report: Report) -> Section | None:
    """Files that could not be used, if there are any."""
    if not report.source.skipped:
        return None
    rows = [Row([name(each.name, 64), name(each.why, 300)]) for each in report.source.skipped]
    columns = [Column("File", "text"), Column("Why", "text prose")]
    return Section("skipped", "Skipped files", [foldable("Skipped files", columns, rows, "file")])


def _sized(title: str, data: Histogram, one: str) -> Html:
    told = summary(data, one, number)
    return _plotted(title, data, told, short_count, whole=True)


def _plotted(title: str, data: Histogram, told: str, show: Show, whole: bool) -> Html:
    plot = histogram(data, f"{title}. {told}", show, whole)
    return element("figure", element("figcaption", element("h3", title), element("p", told)), plot)


def _lifetime_plot(each: Churn) -> Html:
    assert each.lifetime_s is not None
    told = summary(each.lifetime_s, "lifetime", seconds)
    title = f"Lifetimes in {short(each.space)}: {short(each.kind)}s"
    return _plotted(title, each.lifetime_s, told, tick_seconds, whole=False)


def _churn_row(each: Churn) -> Row:
    life = each.lifetime_s if each.lifetime_s and each.lifetime_s.count else None
    lifetimes: Sequence[str] = [NOTHING] * 4
    if life is not None:
        lifetimes = [count(life.count), *map(seconds, (life.p50, life.p90, life.p99))]
    cells = [
        name(each.space),
        name(each.kind),
        count(each.begun),
        count(each.updated),
        count(each.ended),
        *lifetimes,
    ]
    return Row(cells)


def _host_row(row: HostRow, most: float) -> Row:
    cells = [
        name(row.host, empty="all others"),
        share_bar(row.share, most),
        count(row.requests),
        failed_text(row.failed, row.requests),
        milliseconds(row.work_ms),
    ]
    return Row(cells)


def _expensive_row(each: ExpensiveRequest, when: Callable[[int], str]) -> Row:
    cells = [
        name(each.id, 24),
        milliseconds(each.work_ms),
        NOTHING if each.total_ms is None else milliseconds(each.total_ms),
        count(each.partials),
        count(each.regions),
        count(each.operations),
        name(each.kind),
        name(each.space, 24),
        name(each.host, 24),
        when(each.received_us),
    ]
    return Row(cells, folded(each.filter))
