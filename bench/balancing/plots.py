"""The plots of the benchmark `balance`: the thesis's figures 6.7 to 6.9, drawn from its rows.

Figures 6.8 a to d are those of 6.7 on several machines. Here all configurators share one machine,
and the plots of 6.7 stand for both.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from bench.balancing.cases import CONTENTS
from bench.report import Row
from dzflow.errors import DzflowError

_LATENCY = "mean_ms", "mean latency, ms"
_SLOWEST = "p999_ms", "latency of the slowest of 1,000, ms"
_RATE = "requests_per_s", "requests/s"
_OPERATIONS = "operations_per_request", "flow operations per request"
_WIDTH, _HEIGHT = 6.4, 4.2  # inches of one chart
_DPI = 100


class NoPlots(DzflowError):
    """The package that draws plots is not installed."""


class Chart(Struct, frozen=True):
    """One chart: for each line its values by place."""

    title: str
    place_name: str
    places: Sequence[int]
    lines: Mapping[str, Mapping[int, float]]
    logarithmic: bool


def charts(rows: Sequence[Row]) -> dict[str, list[Chart]]:
    """The charts of each figure, by its name; none for sections that were not measured."""
    by_section: dict[str, list[Row]] = {}
    for row in rows:
        by_section.setdefault(row["measure"], []).append(row)
    found: dict[str, list[Chart]] = {}
    measures: Sequence[tuple[str, str]]
    for section, some in by_section.items():
        if section.startswith("scaling"):
            over, measures = "configurators", (_RATE, _LATENCY)
            name = f"figure-6.7-{'default' if section.endswith('default') else 'at-once-1'}"
        elif section == "partitions":
            name, over, measures = "figure-6.8", "partitions", (_LATENCY, _OPERATIONS)
        elif section == "slices":
            # Large slices let requests wait: the thesis shows the slowest ones, too.
            name, over, measures = "figure-6.9", "slice_limit", (_OPERATIONS, _LATENCY, _SLOWEST)
        else:
            continue  # cases that could not be measured
        found[name] = _charts(some, over, measures)
    return found


def write(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Write the figures into a folder as PNG files; returns their paths. NoPlots if it cannot."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise NoPlots("plots need matplotlib: pip install 'dzflow-control[plots]'") from None
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, some in charts(rows).items():
        height = (len(some) + 1) // 2
        figure = Figure((2 * _WIDTH, _HEIGHT * height), dpi=_DPI, layout="constrained")
        for place, chart in enumerate(some, 1):
            axes = figure.add_subplot(height, 2, place)
            labels = [str(each) for each in chart.places]
            for line, values in chart.lines.items():
                along = [values.get(each, float("nan")) for each in chart.places]
                axes.plot(labels, along, marker="o", label=line)
            axes.set_title(chart.title)
            axes.set_xlabel(chart.place_name)
            if chart.logarithmic:
                axes.set_yscale("log")
            else:
                axes.set_ylim(bottom=0)
            axes.grid(alpha=0.3)
            axes.legend()
        path = folder / f"{name}.png"
        figure.savefig(path)
        paths.append(path)
    return paths


def _charts(rows: Sequence[Row], over: str, measures: Sequence[tuple[str, str]]) -> list[Chart]:
    """A chart for each measure and content, with a line for each system, or each ordering."""
    found = []
    for (column, title), content in ((m, c) for m in measures for c in CONTENTS):
        some = [row for row in rows if row["content"] == content]
        if not some:
            continue
        lines: dict[str, dict[int, float]] = {}
        for row in some:
            name = row["ordering"] if over == "slice_limit" else row["system"]
            lines.setdefault(name, {})[row[over]] = row[column]
        places = sorted({row[over] for row in some})
        name = f"{title}, {content}"
        found.append(Chart(name, over.replace("_", " "), places, lines, column.endswith("_ms")))
    return found
