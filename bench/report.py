"""The report of a benchmark: rows of measurements, and ratios between figures of one run."""

import json
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct, convert, field, to_builtins
from rich.console import Console
from rich.table import Table

Row = dict[str, Any]
"""One measurement: column names and values; `measure` names the table that it belongs to."""

Progress = Callable[[str], None]
"""Called with the name of each step before it begins."""


class Report(Struct):
    """The result of one benchmark."""

    bench: str
    params: dict[str, Any]
    rows: list[Row] = field(default_factory=list)
    ratios: dict[str, float] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=lambda: describe_machine())

    def write(self, path: Path) -> None:
        """Write the report as JSON."""
        path.write_text(json.dumps(to_builtins(self), indent=2) + "\n")

    def show(self, console: Console) -> None:
        """Print one table per measure, and the ratios."""
        by_measure: dict[str, list[Row]] = {}
        for row in self.rows:
            by_measure.setdefault(row["measure"], []).append(row)
        for measure, rows in by_measure.items():
            names = [name for name in rows[0] if name != "measure"]
            table = Table(title=f"{self.bench}: {measure}", title_justify="left")
            for name in names:
                numeric = all(isinstance(row[name], int | float | None) for row in rows)
                table.add_column(name.replace("_", " "), justify="right" if numeric else "left")
            for row in rows:
                table.add_row(*(_format(row[name]) for name in names))
            console.print(table)
        table = Table(title=f"{self.bench}: ratios", title_justify="left")
        table.add_column("ratio")
        table.add_column("value", justify="right")
        for name, value in self.ratios.items():
            table.add_row(name, _format(value))
        console.print(table)


def read(path: Path) -> Report:
    """Read a report that was written as JSON."""
    return convert(json.loads(path.read_text()), Report)


def describe_machine() -> dict[str, Any]:
    """The machine that the figures were measured on."""
    return {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def _format(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
