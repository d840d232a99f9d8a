"""`dzflow top`: the load of a running control plane, live."""

import os
import select
import sys
import termios
import time
import tty
from types import TracebackType
from typing import Annotated, Any, Self

import typer
from rich.console import Console, ConsoleRenderable, Group
from rich.live import Live
from rich.text import Text

from dzflow.cli.option_groups import with_option_groups
from dzflow.cli.service.client import AsJson, ServiceOptions, interruptible
from dzflow.cli.service.load_screen import SORT_KEYS, LoadScreen, Sort
from dzflow.cli.service.rest import get, get_ready
from dzflow.cli.tables import json_line
from dzflow.errors import DzflowError
from dzflow.text import printable

_TIMEOUT = 10.0  # seconds for an answer
_SINCE = "-3"  # seconds: the newest interval ended after that, unless nothing is measured
_HELP = "  ".join(f"{key} {sort}" for key, sort in SORT_KEYS.items())


class NoLoad(DzflowError):
    """The service has measured nothing yet."""


@with_option_groups
def top(
    *,
    sort: Annotated[Sort, typer.Option(help="What the partitions are ordered by.")] = "load",
    interval: Annotated[
        float, typer.Option(min=0.2, help="Seconds between two looks at the load.")
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print the load once, and end.")] = False,
    json: AsJson = False,
    service: ServiceOptions,
) -> None:
    """Show the load of configurators and partitions, live; q ends it.

    Figures are those of the last second. With --json, each look is a line. Without a terminal, the
    load is printed once.
    """
    look = _Look(service)
    with interruptible():
        if json:
            _print_lines(look, interval, once)
        elif once or not sys.stdout.isatty():
            console = Console()
            console.print(LoadScreen(console, sort).draw(look.load(), look.ready()))
        else:
            _show_live(look, sort, interval)


class _Look:
    """Asks the service."""

    def __init__(self, service: ServiceOptions) -> None:
        self._service = service

    def load(self) -> dict[str, Any]:
        """The load of the last second."""
        items = get(self._service, "/load", timeout=_TIMEOUT, since=_SINCE)["items"]
        if not items:
            raise NoLoad("no load was measured in the last seconds; try again in a second")
        newest: dict[str, Any] = items[-1]
        return newest

    def ready(self) -> dict[str, Any]:
        """The state of the service."""
        found: dict[str, Any] = get_ready(self._service, timeout=_TIMEOUT)[1]
        return found


def _print_lines(look: _Look, interval: float, once: bool) -> None:
    while True:
        print(json_line(look.load()), flush=True)
        if once:
            return
        time.sleep(interval)


def _show_live(look: _Look, sort: Sort, interval: float) -> None:
    console = Console()
    load, ready = look.load(), look.ready()  # an error at the start ends the command
    problem = ""
    with _Keys() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            lines: list[ConsoleRenderable] = [Text(f"{_HELP}  q quit   by {sort}", style="dim")]
            if problem:
                lines.insert(0, Text(problem, style="bold red"))
            screen = LoadScreen(console, sort, console.height - len(lines))
            live.update(Group(*lines, screen.draw(load, ready)), refresh=True)
            key = keys.wait(interval)
            if key == "q":
                return
            if key in SORT_KEYS:
                sort = SORT_KEYS[key]
                continue
            try:
                load, ready = look.load(), look.ready()
                problem = ""
            except DzflowError as error:
                problem = printable(f"{error} The load below is from before.")


class _Keys:
    """Reads single keys from the terminal, if there is one."""

    def __init__(self) -> None:
        self._saved: Any = None

    def __enter__(self) -> Self:
        if sys.stdin.isatty():
            self._saved = termios.tcgetattr(sys.stdin)
            tty.setcbreak(sys.stdin)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self._saved is not None:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._saved)

    def wait(self, seconds: float) -> str:
        """The next key; empty if none is pressed in time. `q` if the terminal is gone."""
        if self._saved is None:
            time.sleep(seconds)
            return ""
        # Past the buffer of `sys.stdin`, which `select` does not know.
        ready, _, _ = select.select([sys.stdin], [], [], seconds)
        if not ready:
            return ""
        return os.read(sys.stdin.fileno(), 1).decode(errors="replace") or "q"
