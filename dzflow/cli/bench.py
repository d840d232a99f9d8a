"""`dzflow bench`: run benchmarks and show what they measured."""

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
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
    only: Annotated[
        list[str] | None,
        typer.Option(help="Only this section (may be repeated); control: centralised, sna, sea."),
    ] = None,
    keep: Annotated[
        bool, typer.Option(help="Keep what the file has of sections that are not measured now.")
    ] = False,
) -> None:
    """Run a benchmark; prints tables, and the ratios that matter."""
    if name not in (*NAMES, "all"):
        raise UnknownBench(f"there is no benchmark {name!r}; choose from {', '.join(NAMES)}, all")
    if name == "all" and (json or only):
        raise UnknownBench("with --json or --only, name one benchmark")
    if keep and not (json and only):
        raise UnknownBench("--keep goes with --only, and with --json for the file to keep from")
    console = Console() if sys.stdout.isatty() else Console(width=WIDE)
    if name != "all":
        _check_sections(name, only or [])
        earlier = _earlier(json, quick) if json and keep and json.exists() else None
        report = _run(name, quick, only)
        if earlier:
            report = importlib.import_module(f"bench.{name}").combined(earlier, report)
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


def _check_sections(name: str, only: Sequence[str]) -> None:
    known: Sequence[str] = getattr(importlib.import_module(f"bench.{name}"), "SECTIONS", ())
    for section in only:
        if section not in known:
            there = f"choose from {', '.join(known)}" if known else "it has none"
            raise UnknownBench(f"{name} has no section {section!r}; {there}")


def _earlier(path: Path, quick: bool) -> "Report":
    """What an earlier run has written; it must have measured as much as this one will."""
    from bench.report import read

    found = read(path)
    if found.params.get("quick") != quick:
        raise UnknownBench(f"{path} was measured {'without' if quick else 'with'} --quick")
    return found


def _run(name: str, quick: bool, only: Sequence[str] | None = None) -> "Report":
    more = {"only": only} if only else {}
    module = importlib.import_module(f"bench.{name}")
    with _telling(name) as tell:
        report: Report = module.run(quick, tell, **more)
    return report


@contextmanager
def _telling(name: str) -> Iterator[Callable[[str], None]]:
    """Say what is being done: in one line of a terminal, or in a line each, with the time."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda what: print(f"{datetime.now():%H:%M:%S} {name}: {what}", file=sys.stderr)
        return
    with console.status(f"{name}: starting") as status:
        yield lambda what: status.update(escape(f"{name}: {what}"))
