"""Sections on who had the work: partitions, configurators, and how evenly it is spread."""

from collections.abc import Sequence

from spark.report.drawing.markup import Html, element
from spark.report.drawing.tables import Column, Row, foldable, share_bar
from spark.report.drawing.text import count, in_words, milliseconds, name, share, short
from spark.report.model import LoadRow, Report, Skew
from spark.report.sections.section import Section, lead, nothing

_EVEN = 1.25  # the busiest to the mean: below this nobody gains from moving work
_SOME = 2.0
_TENTH = 10  # so many have a tenth


def partitions(report: Report) -> Section:
    """The work of each partition."""
    text = (
        "Work is the time of deciding; the time of a slice is shared among its partials."
        " Pushing is waiting for switches, and no work. Bars compare the shares of the work."
    )
    return _load("partitions", "Load by partition", report.partitions, report.skew, text)


def configurators(report: Report) -> Section:
    """The work of each configurator."""
    text = "The work of all partitions that a configurator owned at the time."
    return _load("configurators", "Load by configurator", report.configurators, report.skew, text)


def skew(report: Report) -> Section:
    """How evenly work is spread, in sentences."""
    if not report.skew:
        parts = [nothing("There is nothing to compare: no partition had work.")]
    else:
        parts = [element("ul", *(_skew_item(each) for each in report.skew), class_="sentences")]
    return Section("skew", "How evenly the work is spread", parts)


def _load(
    over: str, title: str, rows: Sequence[LoadRow], skews: Sequence[Skew], text: str
) -> Section:
    one = over.removesuffix("s")
    if not rows:
        return Section(over, title, [nothing(f"No {one} had work.")])
    ordered = sorted(rows, key=lambda row: (-row.share, -row.work_ms, row.space, row.name))
    with_space = any(row.space for row in rows)
    columns = [
        Column(one.capitalize(), "text"),
        *([Column("Space", "text")] if with_space else []),
        Column("Share of work", "bar"),
        Column("Work"),
        Column("Partials"),
        Column("Operations", hint="flow operations: adds, modifies and deletes"),
        *(
            Column(p, group=stage)
            for stage in ("Queued", "Decided", "Pushed")
            for p in ("p50", "p99")
        ),
    ]
    drawn = [_load_row(row, ordered[0].share, with_space) for row in ordered]
    parts: list[Html] = [lead(text, _left_out(over, len(rows), skews))]
    parts.append(foldable(title, columns, drawn, one))
    return Section(over, title, parts)


def _load_row(row: LoadRow, most: float, with_space: bool) -> Row:
    times = (
        *(row.queued_p50_ms, row.queued_p99_ms),
        *(row.decided_p50_ms, row.decided_p99_ms),
        *(row.pushed_p50_ms, row.pushed_p99_ms),
    )
    cells = [
        name(row.name, 24),
        *([name(row.space, 24)] if with_space else []),
        share_bar(row.share, most),
        milliseconds(row.work_ms),
        count(row.partials),
        count(row.operations),
        *map(milliseconds, times),
    ]
    return Row(cells)


def _left_out(over: str, shown: int, skews: Sequence[Skew]) -> str:
    total = next((skew.count for skew in skews if skew.over == over), shown)
    return f" These are the {count(shown)} busiest of {count(total)} {over}." * (total > shown)


def _skew_item(skew: Skew) -> Html:
    over = short(skew.over)
    one = over.removesuffix("s")
    title = element("strong", f"{over.capitalize()}: {_verdict(skew)}.")
    if skew.count <= 1:
        return element("li", title, f" Only one {one} had work.")
    mean, all_ = ("number of requests", "requests") if skew.over == "hosts" else ("work", "work")
    tenth = "tenth of them" if skew.count >= _TENTH else "one alone"
    return element(
        "li",
        title,
        f" The busiest of {count(skew.count)} {over}{_busy(skew)} has"
        f" {in_words(skew.max_over_mean)} the mean {mean}. The busiest {tenth} has"
        f" {share(skew.top_share)} of all {all_}.",
    )


def _busy(skew: Skew) -> str:
    """Traces name the partitions of a space, but not the configurators and hosts without work."""
    return "" if skew.over == "partitions" else " that had work"


def _verdict(skew: Skew) -> str:
    if skew.count <= 1:
        return "nothing to compare"
    if skew.max_over_mean < _EVEN:
        return "even"
    return "somewhat uneven" if skew.max_over_mean < _SOME else "uneven"
