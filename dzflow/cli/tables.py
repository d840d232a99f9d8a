"""Prints lists as tables, which also fit narrow terminals, or as JSON."""

from collections.abc import Collection, Sequence
from typing import Any, Literal

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from dzflow.text import printable, printable_json

_COLOURS = {
    "up": "green",
    "ready": "green",
    "active": "green",
    "waiting": "yellow",
    "starting": "yellow",
    "leaving": "yellow",
    "down": "red",
    "unreachable": "red",
}
_LONG = {"actions", "attributes", "filter", "match", "reason"}  # may be folded
_ENOUGH = 20  # characters of a folded column
_BOUNDLESS = 10_000


def show_list(
    items: Sequence[dict[str, Any]], columns: Sequence[str], lesser: Sequence[str] = ()
) -> None:
    """Print a table. If it is too wide, columns are omitted: empty ones, then those of `lesser`.

    If that is not enough, all columns are folded; no text is cut off.
    """
    console = Console()
    rows = [{name: cell(name, item.get(name)) for name in columns} for item in items]
    table, omitted = fitting_table(console, rows, columns, lesser)
    console.print(table)
    if omitted:
        console.print(f"omitted: {', '.join(omitted)}; --json shows all", highlight=False)


def fitting_table(
    console: Console,
    rows: Sequence[dict[str, str]],
    columns: Sequence[str],
    lesser: Sequence[str],
    numbers: Collection[str] | None = None,
) -> tuple[Table, list[str]]:
    """A table of cells that fits the console, and the columns that it omits (see `show_list`).

    With `numbers`, the columns that are aligned to the right, it has no lines.
    """
    empty = [name for name in columns if rows and not any(row[name] for row in rows)]
    shown, omitted = list(columns), []
    for column in (*empty, *(name for name in lesser if name not in empty)):
        if _fits(console, rows, shown, numbers):
            break
        shown.remove(column)
        if column not in empty:
            omitted.append(column)
    folding = _LONG if _fits(console, rows, shown, numbers) else columns
    return _table(rows, shown, folding, numbers), omitted


def plain(value: object) -> str:
    """A text of others, for `rich`: without markup, and without characters that are not visible."""
    return escape(printable(str(value)))


def plain_lines(text: str) -> str:
    """A text of our own that may contain texts of others; its lines stay."""
    return "\n".join(map(plain, text.split("\n")))


def cell(name: str, value: Any) -> str:
    """The text of a value in the column of this name."""
    if value is None:
        return ""
    if isinstance(value, list):
        return plain(", ".join(map(str, value)))
    return state(value) if name == "state" else plain(value)


def state(name: str) -> str:
    """A state in its colour."""
    colour = _COLOURS.get(name)
    return f"[{colour}]{name}[/]" if colour else plain(name)


def json_line(found: Any) -> str:
    """JSON in one line; it can be printed whatever it contains."""
    return printable_json(msgspec.json.encode(found).decode())


def print_json(found: Any) -> None:
    """Print indented JSON."""
    print(msgspec.json.format(json_line(found)))


def _fits(
    console: Console,
    rows: Sequence[dict[str, str]],
    columns: Sequence[str],
    numbers: Collection[str] | None,
) -> bool:
    table = _table(rows, columns, _LONG, numbers, _ENOUGH)
    boundless = console.options.update(width=_BOUNDLESS)
    return Measurement.get(console, boundless, table).maximum <= console.width


def _table(
    rows: Sequence[dict[str, str]],
    columns: Sequence[str],
    folding: Collection[str],
    numbers: Collection[str] | None,
    longest: int | None = None,
) -> Table:
    table = Table() if numbers is None else Table(box=None, pad_edge=False, header_style="reverse")
    for name in columns:
        justify: Literal["left", "right"] = "right" if name in (numbers or ()) else "left"
        if name in folding:
            table.add_column(name, overflow="fold", max_width=longest, justify=justify)
        else:
            table.add_column(name, no_wrap=True, justify=justify)
    for row in rows:
        table.add_row(*(row[name] for name in columns))
    return table
