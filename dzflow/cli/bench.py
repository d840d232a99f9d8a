"""`dzflow bench`: run benchmarks and show what they measured."""

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from dzflow.errors import BadInput, DzflowError

if TYPE_CHECKING:
    from bench.report import Report

NAMES = ("engine", "southbound", "control", "end_to_end", "recovery")
WIDE = 240  # columns where no terminal limits them


class UnknownBench(BadInput):
    """A benchmark that does not exist."""


def bench(
    name: Annotated[str, typer.Argument(help=f"One of: {', '.join(NAMES)}; or all.")],
    json: Annotated[Path | None, typer.Option(help="Write the result to this file.")] = None,
    quick: Annotated[bool, typer.Option(help="A short pass, under a minute each.")] = False,
) -> None:
    """Run a benchmark; prints tables, and the ratios that matter."""
    if name not in (*NAMES, "all"):
        raise UnknownBench(f"there is no benchmark {name!r}; choose from {', '.join(NAMES)}, all")
    if name == "all" and json:
        raise UnknownBench("with --json, name one benchmark")
    console = Console() if sys.stdout.isatty() else Console(width=WIDE)
    if name != "all":
        report = _run(name, quick)
        report.show(console)
        if json:
            report.write(json)
            console.print(f"written to {json}")
        return
    from sdn.lab.errors import LabUnavailable

    failed = False
    for one in NAMES:
        try:
            _run(one, quick).show(console)
        except (LabUnavailable, BadInput) as error:
            console.print(f"[yellow]{one} cannot be run here:[/] {escape(str(error))}")
        except DzflowError as error:
            console.print(f"[red]{one} has failed:[/] {escape(str(error))}")
            failed = True
    if failed:
        raise typer.Exit(1)


def _run(name: str, quick: bool) -> "Report":
    with Console(stderr=True).status(f"{name}: starting") as status:
        report: Report = importlib.import_module(f"bench.{name}").run(
            quick, lambda what: status.update(f"{name}: {what}")
        )
    return report
