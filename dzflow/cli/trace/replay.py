"""`dzflow trace replay`: replay a workload from traces on the engine, also under a plan."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from dzflow.cli.option_groups import with_option_groups
from dzflow.cli.tables import plain
from dzflow.cli.trace.options import Period, SparkChoice, Traces, check_folders
from dzflow.cli.trace.results import SHOWN, print_left_out, print_table, write_json
from dzflow.cli.trace.session import open_traces

if TYPE_CHECKING:
    from bench.replay.model import MapFigures, ReplayReport
    from spark.session import SparkOptions
    from spark.traces import SkippedFile


@with_option_groups
def replay(
    *,
    path: Traces,
    plan: Annotated[
        Path | None, typer.Option(help="Replay under the map of this plan as well (JSON).")
    ] = None,
    topology: Annotated[
        str, typer.Option(help="The network: fat-tree:10, ring:5, … or a file.")
    ] = "fat-tree:10",
    slice_size: Annotated[
        int | None,
        typer.Option("--slice", min=1, help="Partials in a slice; by default as traced."),
    ] = None,
    workload: Annotated[
        Path | None, typer.Option(help="Write the requests to this file, for `dzflow bench`.")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Write the result as JSON to it.")] = None,
    period: Period,
    spark: SparkChoice,
) -> None:
    """Replay traced requests on the engine, under the traced map and under that of a plan."""
    options = spark.options()
    times = period.times()
    check_folders(workload, json)
    from bench.replay.replayer import ReplayOptions
    from bench.replay.replayer import replay as run_replay
    from bench.replay.spaces import load_spaces, read_plan
    from sdn.network.topologies import topology as find_topology
    from spark.workload.file import WorkloadFile

    find_topology(topology)  # a wrong name is refused before Spark starts
    how = ReplayOptions(topology, slice_size, read_plan(plan) if plan else None)
    console, progress = Console(), Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="dzflow-replay-") as folder:
        file = workload or Path(folder) / "workload.parquet"
        skipped = _rebuild(path, file, options, times)
        found = WorkloadFile(file)
        if found.about.total:
            progress.print(f"replaying {found.about.total:,} requests", highlight=False)
            spaces = load_spaces(found.spaces())
            report = run_replay(path, found.requests(), found.about, spaces, how, skipped)
        else:
            report = run_replay(path, (), found.about, {}, ReplayOptions(topology), skipped)
    show(console, report)
    if workload:
        console.print(f"written to {plain(str(workload))}", highlight=False)
    if json:
        write_json(console, json, report)


def _rebuild(
    path: str,
    file: Path,
    options: "SparkOptions",
    times: tuple[int | None, int | None],
) -> "tuple[SkippedFile, ...]":
    """Have Spark write the workload to a file; the trace files that were left out."""
    with open_traces(options, "replay", path, *times) as (session, traces):
        from spark.reading import vanished
        from spark.workload.file import write_workload
        from spark.workload.job import rebuild

        with rebuild(session, traces, *times) as rebuilt:
            write_workload(file, rebuilt.requests, rebuilt.about, traces.footer)
        return (*traces.skipped, *vanished(session, traces))


def show(console: Console, report: "ReplayReport") -> None:
    """Print what a replay says."""
    print_left_out(console, report.skipped, report.notices)
    out, unusable = report.left_out, report.unusable
    for count, what in (
        (out.refused, "requests were refused by a switch, and had no effect"),
        (out.began_before, "requests end records that began before the traces"),
        (out.unknown, "requests are of kinds that this release does not know"),
        (unusable.unknown_spaces, "requests are in spaces that the newest trace file lacks"),
        (unusable.unfit_filters, "filters do not fit the schema in the newest trace file"),
        (unusable.unmatched, "requests are about records that were left out, or come twice"),
    ):
        if count:
            console.print(f"[yellow]left out: {count:,} {what}[/]", highlight=False)
    if not report.requests:
        console.print("There are no requests to replay in these traces and this time.")
        return
    kinds = ", ".join(f"{number:,} {kind}" for kind, number in report.requests.items())
    text = f"{kinds}; on {report.topology}, in slices of up to {report.slice_size:,}"
    console.print(plain(text), highlight=False)
    maps = [each for each in (report.traced, report.planned) if each]
    names = ("traced map", "plan")[: len(maps)]
    print_table(
        console, "Replay", ("", *names), [(name, *map(f, maps)) for name, f in _FIGURES.items()]
    )
    for name, each in zip(names, maps, strict=True):
        _show_loads(console, name, each)
    if report.change:
        change = report.change
        console.print(
            f"To go over to the plan at the end takes {change.adds:,} adds, {change.modifies:,}"
            f" modifies and {change.deletes:,} deletes.",
            highlight=False,
        )


def _imbalance(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


_FIGURES: "dict[str, Callable[[MapFigures], str]]" = {
    "partitions": lambda m: f"{len(m.partitions):,}",
    "partials": lambda m: f"{m.partials:,}",
    "slices": lambda m: f"{m.slices:,}",
    "adds": lambda m: f"{m.operations.adds:,}",
    "modifies": lambda m: f"{m.operations.modifies:,}",
    "deletes": lambda m: f"{m.operations.deletes:,}",
    "entries at the end": lambda m: f"{m.entries:,}",
    "entries at most": lambda m: f"{m.most_entries:,}",
    "processor time in ms": lambda m: f"{m.work_ms:,.1f}",
    "busiest partition over mean": lambda m: _imbalance(m.partition_imbalance),
    "busiest configurator over mean": lambda m: _imbalance(m.configurator_imbalance),
}


def _show_loads(console: Console, name: str, figures: "MapFigures") -> None:
    total = figures.work_ms or 1.0
    print_table(
        console,
        f"Configurators, {name}",
        ("name", "partitions", "partials", "work in ms", "share", "operations"),
        [
            (
                each.name or "(not known)",
                f"{each.partitions:,}",
                f"{each.partials:,}",
                f"{each.work_ms:,.1f}",
                f"{each.work_ms / total:.1%}",
                f"{each.operations:,}",
            )
            for each in figures.configurators
        ],
    )
    print_table(
        console,
        f"Partitions with most work, {name}",
        ("name", "partials", "work in ms", "share", "operations", "entries"),
        [
            (
                f"{each.space} {each.name}",
                f"{each.partials:,}",
                f"{each.work_ms:,.1f}",
                f"{each.work_ms / total:.1%}",
                f"{each.operations.total:,}",
                f"{each.entries:,}",
            )
            for each in figures.partitions[:SHOWN]
        ],
    )
