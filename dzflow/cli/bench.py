"""`dzflow bench`: run benchmarks and show what they measured."""

import importlib
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from dzflow.errors import BadInput

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
    for one in NAMES if name == "all" else (name,):
        with Console(stderr=True).status(f"{one}: starting") as status:
            report = importlib.import_module(f"bench.{one}").run(
                quick, lambda what, one=one: status.update(f"{one}: {what}")
            )
        report.show(console)
        if json:
            report.write(json)
            console.print(f"written to {json}")
