"""Print and write the results of jobs."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec
from rich.console import Console
from rich.table import Table

from dzflow.cli.option_groups import BadOption
from dzflow.cli.tables import plain
from dzflow.process.private_files import write_private

if TYPE_CHECKING:
    from spark.traces import SkippedFile, Source

SHOWN = 10  # rows of a table in the terminal; pages and files have more


def show_source(console: Console, source: "Source") -> bool:
    """Print what was read, and what is wrong with it; whether there are any requests."""
    print_left_out(console, source.skipped, source.notices)
    if not source.rows:
        console.print(
            "There are no requests in these traces and this time. A service completes a file every"
            " five minutes, and when it stops: wait, or stop it."
        )
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
    for file in skipped[:SHOWN]:
        console.print(f"[yellow]left out {plain(file.name)}:[/] {plain(file.why)}", highlight=False)
    if len(skipped) > SHOWN:
        console.print(f"[yellow]{len(skipped) - SHOWN} more files are left out[/]")
    for notice in notices:
        console.print(f"[yellow]{plain(notice)}[/]", highlight=False)


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


def write_json(console: Console, file: Path, result: object) -> None:
    """Write a result as JSON."""
    write_result(console, file, msgspec.json.encode(result))


class OfSpace(Protocol):
    """A result that is about one space."""

    @property
    def space(self) -> str:
        """Its name."""


def write_per_space(console: Console, file: Path, what: str, results: Sequence[OfSpace]) -> None:
    """Write a result as JSON, or one file for each space if there are several."""
    if not results:
        text = f"there is no {what}, so {plain(str(file))} is not written"
        console.print(text, highlight=False)
    for each in results:
        name = file if len(results) == 1 else file.with_stem(f"{file.stem}-{each.space}")
        write_json(console, name, each)


def write_result(console: Console, file: Path, data: bytes) -> None:
    """Write a result that only its owner can read: it has hosts and filters of others."""
    try:
        write_private(file, data)
    except OSError as error:
        raise BadOption(f"{file} cannot be written: {error.strerror}") from None
    console.print(f"written to {plain(str(file))}", highlight=False)
