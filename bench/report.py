"""What a benchmark writes: rows of measurements, and ratios of things measured in the same run."""

import json
import os
import platform
from pathlib import Path
from typing import Any

from msgspec import Struct, convert, field, to_builtins
from rich.console import Console
from rich.table import Table

Row = dict[str, Any]


class Report(Struct):
    """The result of one benchmark."""

    bench: str
    params: dict[str, Any]
    rows: list[Row] = field(default_factory=list)
    ratios: dict[str, float] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=lambda: machine())

    def write(self, path: Path) -> None:
        """Save as JSON."""
        path.write_text(json.dumps(to_builtins(self), indent=2) + "\n")

    def show(self, console: Console) -> None:
        """Print one table for each kind of row, and the ratios."""
        kinds: dict[str, list[Row]] = {}
        for row in self.rows:
            kinds.setdefault(row["measure"], []).append(row)
        for kind, rows in kinds.items():
            names = [name for name in rows[0] if name != "measure"]
            table = Table(title=f"{self.bench}: {kind}", title_justify="left")
            for name in names:
                number = all(isinstance(row[name], int | float | None) for row in rows)
                table.add_column(name.replace("_", " "), justify="right" if number else "left")
            for row in rows:
                table.add_row(*(_shown(row[name]) for name in names))
            console.print(table)
        table = Table(title=f"{self.bench}: ratios", title_justify="left")
        table.add_column("ratio")
        table.add_column("value", justify="right")
        for name, value in self.ratios.items():
            table.add_row(name, _shown(value))
        console.print(table)


def read(path: Path) -> Report:
    """What was saved."""
    return convert(json.loads(path.read_text()), Report)


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
