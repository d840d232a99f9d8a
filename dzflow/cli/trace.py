"""`dzflow trace`: what request traces say, by Spark jobs."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

import typer
from rich.console import Console
from rich.table import Table

from dzflow.cli.tables import plain
from dzflow.errors import BadInput
from dzflow.process.private_files import write_private

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark.report.model import LoadRow, Report
    from spark.session import SparkOptions
    from spark.traces import SkippedFile, Source
    from spark.traces import Traces as FoundTraces

app = typer.Typer(help="Analyse request traces with Spark.", no_args_is_help=True)

_SHOWN = 10  # rows of a table in the terminal; the page has more

Traces = Annotated[
    str,
    typer.Argument(
        metavar="PATH",
        help="The data folder of a service, or its traces: a folder, a file, or an address such as"
        " hdfs://… or s3a://… .",
    ),
]
Since = Annotated[
    str, typer.Option(metavar="TIME", help="Only requests from then on: 2026-01-31T12:00, UTC.")
]
Until = Annotated[str, typer.Option(metavar="TIME", help="Only requests before then.")]
Master = Annotated[str, typer.Option(help="The Spark master, such as spark://HOST:7077.")]
Setting = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="A setting of Spark (repeatable)."),
]


class BadOption(BadInput):
    """An option of `dzflow trace` that cannot be understood."""


@app.command()
def report(
    path: Traces = "",
    state: Annotated[
        str, typer.Option(metavar="FOLDER", help="A history of `ingest`, instead of traces.")
    ] = "",
    html: Annotated[Path | None, typer.Option(help="Write the page to this file.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write the report as JSON to it.")] = None,
    since: Since = "",
    until: Until = "",
    master: Master = "local[*]",
    setting: Setting = None,
) -> None:
    """Report on rates, latency, load, hot regions and churn: as tables, a page, and JSON."""
    options = spark_options(master, setting or [])
    begin, end = parse_time(since, "--since"), parse_time(until, "--until")
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
        import msgspec

        write_result(console, json, msgspec.json.encode(found))
    if html:
        from spark.report.page import render

        write_result(console, html, render(found).encode())


@contextmanager
def start_spark(options: "SparkOptions", command: str) -> "Iterator[SparkSession]":
    """A session of Spark for a command of `dzflow trace`; says on stderr that it starts."""
    from spark.session import open_session

    Console(stderr=True).print("starting Spark", highlight=False)
    with open_session(options, f"dzflow trace {command}") as session:
        yield session


@contextmanager
def open_traces(
    options: "SparkOptions", command: str, path: str, since_us: int | None, until_us: int | None
) -> "Iterator[tuple[SparkSession, FoundTraces]]":
    """A session of Spark, and the traces of a time; says on stderr how far it is."""
    with start_spark(options, command) as session:
        from spark.reading import find_traces

        progress = Console(stderr=True)
        progress.print("checking the files", highlight=False)
        traces = find_traces(session, path, since_us, until_us)
        rows = sum(file.rows for file in traces.files)
        progress.print(f"reading {rows:,} rows in {len(traces.files):,} files", highlight=False)
        yield session, traces


class OfSpace(Protocol):
    """A result that is about one space."""

    @property
    def space(self) -> str:
        """Its name."""


def write_per_space(console: Console, file: Path, what: str, results: Sequence[OfSpace]) -> None:
    """Write a result as JSON, or one file for each space if there are several."""
    import msgspec

    if not results:
        text = f"there is no {what}, so {plain(str(file))} is not written"
        console.print(text, highlight=False)
    for each in results:
        name = file if len(results) == 1 else file.with_stem(f"{file.stem}-{each.space}")
        write_result(console, name, msgspec.json.encode(each))


def check_folders(*files: Path | None) -> None:
    """BadOption if a file that is to be written has no folder."""
    for file in files:
        if file and not file.parent.is_dir():
            raise BadOption(f"{file} cannot be written: there is no folder {file.parent}")


def write_result(console: Console, file: Path, data: bytes) -> None:
    """Write a result that only its owner can read: it has hosts and filters of others."""
    try:
        write_private(file, data)
    except OSError as error:
        raise BadOption(f"{file} cannot be written: {error.strerror}") from None
    console.print(f"written to {plain(str(file))}", highlight=False)


def spark_options(master: str, given: list[str]) -> "SparkOptions":
    """The options of a session; BadOption if a setting is not KEY=VALUE."""
    from spark.session import SparkOptions

    settings = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise BadOption(f"--setting takes KEY=VALUE, got {text[:100]!r}")
        settings[key] = value
    return SparkOptions(master, settings)


def parse_time(text: str, option: str) -> int | None:
    """A time in microseconds since 1970; None if there is none. Without a zone it is UTC."""
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise BadOption(
            f"{option} takes a time such as 2026-01-31T12:00, got {text[:40]!r}"
        ) from None
    zoned = found if found.tzinfo else found.replace(tzinfo=UTC)
    return round(zoned.timestamp() * 1_000_000)


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
        [(h.space, h.text, f"{h.share:.1%}") for h in found.hot[:_SHOWN]],
    )
    for skew in found.skew:
        busiest = f"the busiest of {skew.count:,} has {skew.max_over_mean:.1f} times the mean"
        console.print(f"{skew.over}: {busiest}", highlight=False)


def show_source(console: Console, source: "Source") -> bool:
    """Print what was read, and what is wrong with it; whether there are any requests."""
    print_left_out(console, source.skipped, source.notices)
    if not source.rows:
        console.print("There are no requests in these traces and this time.")
        return False
    begin, end = (
        datetime.fromtimestamp(us / 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S")
        for us in (source.begin_us, source.end_us)
    )
    console.print(f"{source.requests:,} requests in {source.rows:,} rows, {begin} to {end} UTC")
    return True


def print_left_out(
    console: Console, skipped: "Sequence[SkippedFile]", notices: Sequence[str]
) -> None:
    """Print which files were left out, and what else is missing."""
    for file in skipped[:_SHOWN]:
        console.print(f"[yellow]left out {plain(file.name)}:[/] {plain(file.why)}", highlight=False)
    if len(skipped) > _SHOWN:
        console.print(f"[yellow]{len(skipped) - _SHOWN} more files are left out[/]")
    for notice in notices:
        console.print(f"[yellow]{plain(notice)}[/]", highlight=False)


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
            for one in loads[:_SHOWN]
        ],
    )


def print_table(
    console: Console, title: str, head: tuple[str, ...], rows: Sequence[tuple[str, ...]]
) -> None:
    """Print a table, if it has rows; all columns but the first are numbers."""
    if not rows:
        return
    table = Table(title=title, title_justify="left")
    for number, name in enumerate(head):
        table.add_column(name, justify="left" if not number else "right", overflow="fold")
    for row in rows:
        table.add_row(*(plain(cell) for cell in row))
    console.print(table)
