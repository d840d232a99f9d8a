"""`dzflow trace report`: rates, latency, load, hot regions and churn, from request traces."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from dzflow.cli.option_groups import BadOption, with_option_groups
from dzflow.cli.trace.options import (
    Period,
    SparkChoice,
    Traces,
    check_folders,
)
from dzflow.cli.trace.results import SHOWN, print_table, show_source, write_json, write_result
from dzflow.cli.trace.session import open_traces, start_spark

if TYPE_CHECKING:
    from spark.report.model import LoadRow, Report


@with_option_groups
def report(
    *,
    path: Traces = "",
    state: Annotated[
        str, typer.Option(metavar="FOLDER", help="A history of `ingest`, instead of traces.")
    ] = "",
    html: Annotated[Path | None, typer.Option(help="Write the page to this file.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write the report as JSON to it.")] = None,
    period: Period,
    spark: SparkChoice,
) -> None:
    """Report on rates, latency, load, hot regions and churn: as tables, a page, and JSON."""
    options = spark.options()
    begin, end = period.times()
    check_folders(html, json)
    if bool(path) == bool(state):
        raise BadOption("name traces, or a history with --state")
    console = Console()
    if state:
        with start_spark(options, "report") as session:
            from spark.history.report import make_report as make_history_report

            found = make_history_report(session, state, begin, end)
    else:
        with open_traces(options, "report", path, begin, end) as (session, traces):
            from spark.report.job import make_report

            found = make_report(session, path, traces, begin, end)
    show(console, found)
    if json:
        write_json(console, json, found)
    if html:
        from spark.report.page import render

        write_result(console, html, render(found).encode())


def show(console: Console, found: "Report") -> None:
    """Print the most important parts of a report."""
    source = found.source
    if not show_source(console, source):
        return
    print_table(
        console,
        "Requests",
        ("kind", "requests", "failed", "per s", "peak per s", "operations each"),
        [
            (
                k.kind,
                f"{k.requests:,}",
                f"{k.failed:,}",
                f"{k.per_s:.1f}",
                f"{k.peak_per_s:.1f}",
                f"{k.adds + k.modifies + k.deletes:.1f}",
            )
            for k in found.kinds
        ],
    )
    print_table(
        console,
        "Latency in ms",
        ("stage", "mean", "p50", "p90", "p99", "max"),
        [
            (s.stage, *(f"{v:,.2f}" for v in (s.mean_ms, s.p50_ms, s.p90_ms, s.p99_ms, s.max_ms)))
            for s in found.latency
        ],
    )
    _print_loads(console, "Partitions with most work", found.partitions)
    _print_loads(console, "Configurators", found.configurators)
    print_table(
        console,
        "Hot regions",
        ("space", "region", "share of the work"),
        [(h.space, h.text, f"{h.share:.1%}") for h in found.hot[:SHOWN]],
    )
    for skew in found.skew:
        busiest = f"the busiest of {skew.count:,} has {skew.max_over_mean:.1f} times the mean"
        console.print(f"{skew.over}: {busiest}", highlight=False)


def _print_loads(console: Console, title: str, loads: "tuple[LoadRow, ...]") -> None:
    print_table(
        console,
        title,
        ("name", "partials", "work in ms", "share", "queued p99", "pushed p99"),
        [
            (
                f"{one.space} {one.name}".strip(),
                f"{one.partials:,}",
                f"{one.work_ms:,.1f}",
                f"{one.share:.1%}",
                f"{one.queued_p99_ms:,.2f}",
                f"{one.pushed_p99_ms:,.2f}",
            )
            for one in loads[:SHOWN]
        ],
    )
