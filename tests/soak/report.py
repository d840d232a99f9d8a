"""Turns samples into series, verdicts, tables and a plot."""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path

import msgspec
from msgspec import Struct
from rich.table import Table

from tests.soak.flatness import Direction, Point, Verdict, by_minute, judge, settled
from tests.soak.sampling import Sample

_BARS = "▁▂▃▄▅▆▇█"
_SIZES = ("etcd size", "etcd in_use", "etcd revision")
_LOAD = "load"  # the load generator, which is not part of the service
_NOISE = 3.0  # times the tolerance, for time and rates
_COLUMNS, _WIDTH, _HEIGHT, _GAP = 3, 330, 120, 44


class Series(Struct, frozen=True):
    """One figure over time.

    A change below `floor` does not count; without a floor the series is not judged. `noise` widens
    the tolerance for figures that depend on what else the machine does.
    """

    name: str
    unit: str
    points: list[Point]
    worse: Direction = "up"
    floor: float | None = None
    noise: float = 1.0


def all_series(samples: Sequence[Sample]) -> list[Series]:
    """Every figure that the samples have."""

    def series(
        name: str,
        unit: str,
        value: Callable[[Sample], float],
        floor: float | None = None,
        worse: Direction = "up",
        noise: float = 1.0,
    ) -> Series:
        points = [Point(sample.minute, value(sample)) for sample in samples]
        return Series(name, unit, points, worse, floor, noise)

    def group(
        name: str, unit: str, part: str, floor: float | None, noise: float = 1.0
    ) -> list[Series]:
        figures: list[Mapping[str, float]] = [getattr(sample, part) for sample in samples]
        kinds = sorted({kind for figure in figures for kind in figure})
        return [
            series(
                f"{name} {kind}",
                unit,
                lambda sample, kind=kind: getattr(sample, part).get(kind, 0.0),  # type: ignore[misc]
                None if kind == _LOAD else floor,
                noise=noise,
            )
            for kind in kinds
        ]

    keys = [one for one in group("etcd", "", "etcd", 500.0) if one.name not in _SIZES]
    return [
        *group("memory", "MB", "memory", 10.0),
        series("memory all", "MB", _service_memory, 20.0),
        series("etcd size", "MB", lambda sample: sample.etcd["size"], 10.0),
        series("etcd in use", "MB", lambda sample: sample.etcd["in_use"], 10.0),
        *keys,
        series("etcd revision", "", lambda sample: sample.etcd["revision"]),
        *group("disk", "MB", "disk", 10.0),
        *group("processor", "µs/request", "cpu_us", 20.0, _NOISE),
        series("requests", "/s", lambda sample: sample.requests_per_s, 20.0, "down", _NOISE),
        series("p50", "ms", lambda sample: sample.p50_ms, 5.0, noise=_NOISE),
        series("p99", "ms", lambda sample: sample.p99_ms, 20.0, noise=_NOISE),
        series("refused", "", lambda sample: float(sample.refused)),
        series("failed", "", lambda sample: float(sample.failed)),
        series("active", "", lambda sample: float(sample.active)),
    ]


def _service_memory(sample: Sample) -> float:
    return sum(size for role, size in sample.memory.items() if role != _LOAD)


def verdicts(
    series: Iterable[Series], begin: float, tolerance: float
) -> list[tuple[Series, Verdict | None]]:
    """The verdict on each series from the minute `begin` on; None for one that is not judged."""
    found: list[tuple[Series, Verdict | None]] = []
    for one in series:
        length = one.points[-1].minute if one.points else 0.0
        points = settled(one.points, begin, length)
        if length > begin:
            points = by_minute(points)
        judged = None
        if one.floor is not None:
            judged = judge(points, one.worse, one.noise * tolerance, one.floor)
        found.append((one, judged))
    return found


def verdict_table(found: Iterable[tuple[Series, Verdict | None]]) -> Table:
    """One line for each series."""
    table = Table("series", "unit", "first", "median", "last", "change", "verdict", "course")
    for series, verdict in found:
        values = [point.value for point in series.points]
        change = f"{verdict.change:+.1f} ({verdict.share:+.1%})" if verdict else ""
        table.add_row(
            series.name,
            series.unit,
            _number(values[0]),
            _number(verdict.level) if verdict else "",
            _number(values[-1]),
            change,
            verdict.trend if verdict else "",
            sparkline(values),
        )
    return table


def minute_table(samples: Sequence[Sample]) -> Table:
    """The main figures minute by minute: the last sample of each minute."""
    last = {int(sample.minute): sample for sample in samples}
    roles = sorted({role for sample in samples for role in sample.memory})
    table = Table(
        *("minute", "requests/s", "p50 ms", "p99 ms", "refused", "failed", "active"),
        *(f"{role} MB" for role in roles),
        *("etcd db MB", "in use MB", "keys", "disk MB"),
    )
    for minute, sample in sorted(last.items()):
        keys = sum(sample.etcd.get(kind, 0.0) for kind in ("records", "finished", "idempotency"))
        figures = (
            *(sample.requests_per_s, sample.p50_ms, sample.p99_ms),
            *(sample.refused, sample.failed, sample.active),
            *(sample.memory.get(role, 0.0) for role in roles),
            *(sample.etcd["size"], sample.etcd["in_use"], keys, sum(sample.disk.values())),
        )
        table.add_row(str(minute), *map(_number, figures))
    return table


def sparkline(values: Sequence[float], width: int = 30) -> str:
    """The course of some values in a line of text."""
    if not values:
        return ""
    step = max(1, -(-len(values) // width))
    picked = [max(values[at : at + step]) for at in range(0, len(values), step)]
    low, high = min(picked), max(picked)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BARS[int((value - low) * scale)] for value in picked)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}"


def write(folder: Path, samples: Sequence[Sample], begin: float) -> None:
    """Write the samples as JSON and CSV, and a plot of all series."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "samples.json").write_bytes(msgspec.json.format(msgspec.json.encode(samples)))
    series = all_series(samples)
    (folder / "samples.csv").write_text(as_csv(series))
    (folder / "soak.svg").write_text(as_svg(series, begin))


def as_csv(series: Sequence[Series]) -> str:
    """A line for each sample, a column for each series."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["minute", *(f"{one.name} {one.unit}".strip() for one in series)])
    for row in zip(*(one.points for one in series), strict=True):
        writer.writerow([f"{row[0].minute:.3f}", *(f"{point.value:.3f}" for point in row)])
    return out.getvalue()


def as_svg(series: Sequence[Series], begin: float) -> str:
    """A small plot for each series; a line marks the minute from which on it should be flat."""
    rows = -(-len(series) // _COLUMNS)
    width, height = _COLUMNS * (_WIDTH + _GAP), rows * (_HEIGHT + _GAP)
    panels = ""
    for place, one in enumerate(series):
        row, column = divmod(place, _COLUMNS)
        panels += _panel(one, column * (_WIDTH + _GAP), row * (_HEIGHT + _GAP), begin)
    style = "text{font:11px sans-serif}polyline{fill:none;stroke:#06c}line{stroke:#bbb}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-8 -8 {width} {height}">'
        f"<style>{style}</style>{panels}</svg>\n"
    )


def _panel(series: Series, left: float, top: float, begin: float) -> str:
    points = series.points
    highest = max((point.value for point in points), default=0.0) or 1.0
    end = max((point.minute for point in points), default=0.0) or 1.0

    def x(minute: float) -> str:
        return f"{minute / end * _WIDTH:.1f}"

    line = " ".join(f"{x(p.minute)},{_HEIGHT - p.value / highest * _HEIGHT:.1f}" for p in points)
    title = f"{series.name}: up to {_number(highest)} {series.unit}, {end:.0f} minutes"
    mark = f'<line x1="{x(begin)}" x2="{x(begin)}" y1="0" y2="{_HEIGHT}"/>' if begin < end else ""
    return (
        f'<g transform="translate({left} {top + 14})"><text y="-3">{escape(title)}</text>'
        f'<line x1="0" x2="{_WIDTH}" y1="{_HEIGHT}" y2="{_HEIGHT}"/>{mark}'
        f'<polyline points="{line}"/></g>'
    )
