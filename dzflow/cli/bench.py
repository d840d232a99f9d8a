"""`dzflow bench`: run benchmarks and show the results."""

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from dzflow.cli.tables import plain, plain_lines
from dzflow.errors import BadInput, DzflowError

if TYPE_CHECKING:
    from bench.report import Report

NAMES = (
    *("engine", "southbound", "control", "end_to_end", "recovery", "balance", "spark"),
    "dashboard",
)
WIDE = 240  # columns if the output is not a terminal


class UnknownBench(BadInput):
    """The benchmark or section does not exist, or the options do not fit together."""


def bench(
    name: Annotated[str, typer.Argument(help=f"One of: {', '.join(NAMES)}; or all.")],
    json: Annotated[Path | None, typer.Option(help="Write the result to this file.")] = None,
    quick: Annotated[
        bool, typer.Option(help="A short run: under a minute for each benchmark, some for spark.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Run this section only (repeatable); control and balance have some."),
    ] = None,
    keep: Annotated[
        bool, typer.Option(help="Keep the results in the file of sections not run now.")
    ] = False,
    plots: Annotated[
        Path | None, typer.Option(help="Draw the figures as PNG in this folder (balance).")
    ] = None,
    workload: Annotated[
        Path | None,
        typer.Option(help="A workload of `dzflow trace replay --workload` instead (engine)."),
    ] = None,
) -> None:
    """Run a benchmark, and print its tables and ratios."""
    if name not in (*NAMES, "all"):
        raise UnknownBench(f"there is no benchmark {name!r}; choose from {', '.join(NAMES)}, all")
    if name == "all" and (json or only):
        raise UnknownBench("with --json or --only, name one benchmark")
    if plots and name != "balance":
        raise UnknownBench("only balance has plots")
    if workload and name != "engine":
        raise UnknownBench("only engine takes a workload")
    if keep and not (json and only):
        raise UnknownBench("--keep needs --only, and --json for the file with the earlier results")
    console = Console() if sys.stdout.isatty() else Console(width=WIDE)
    if name != "all":
        _check_sections(name, only or [])
        earlier = _earlier(json, quick) if json and keep and json.exists() else None
        report = _run(name, quick, only, workload)
        if earlier:
            report = importlib.import_module(f"bench.{name}").combined(earlier, report)
        report.show(console)
        if json:
            report.write(json)
            console.print(f"written to {json}")
        if plots:
            for path in importlib.import_module(f"bench.{name}").write_plots(report, plots):
                console.print(f"written to {path}")
        return
    from sdn.lab.errors import LabUnavailable

    failed = False
    for one in NAMES:
        try:
            _run(one, quick).show(console)
        except (LabUnavailable, BadInput) as error:
            console.print(f"[yellow]{one} cannot run here:[/] {plain_lines(str(error))}")
        except DzflowError as error:
            console.print(f"[red]{one} failed:[/] {plain_lines(str(error))}")
            failed = True
    if failed:
        raise typer.Exit(1)


def _check_sections(name: str, only: Sequence[str]) -> None:
    known: Sequence[str] = getattr(importlib.import_module(f"bench.{name}"), "SECTIONS", ())
    for section in only:
        if section not in known:
            there = f"choose from {', '.join(known)}" if known else "it has no sections"
            raise UnknownBench(f"{name} has no section {section!r}; {there}")


def _earlier(path: Path, quick: bool) -> "Report":
    """The results of an earlier run, which must have used the same --quick."""
    from bench.report import read

    found = read(path)
    if found.params.get("quick") != quick:
        raise UnknownBench(
            f"the results in {path} are from a run {'without' if quick else 'with'} --quick"
        )
    return found


def _run(
    name: str, quick: bool, only: Sequence[str] | None = None, workload: Path | None = None
) -> "Report":
    more: dict[str, object] = {"only": only} if only else {}
    if workload:
        more["workload"] = workload
    module = importlib.import_module(f"bench.{name}")
    with _progress(name) as report_progress:
        report: Report = module.run(quick, report_progress, **more)
    return report


@contextmanager
def _progress(name: str) -> Iterator[Callable[[str], None]]:
    """A function that shows progress: in one line of a terminal, else in lines with the time."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda what: print(f"{datetime.now():%H:%M:%S} {name}: {what}", file=sys.stderr)
        return
    with console.status(f"{name}: starting") as status:
        yield lambda what: status.update(plain(f"{name}: {what}"))
