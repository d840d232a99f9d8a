"""Scales of plots: where a value lies between 0 and 1, and which values are written at the axis."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from math import ceil, floor, isfinite, log10

from spark.report.drawing.text import moment

_MOST = 1e18  # what lies above is drawn there: sums of such numbers stay finite
_LEAST = 1e-9  # what lies below is drawn as 0
_WIDE = 50.0  # from this ratio of the largest to the smallest on, small values need logarithms
_DECADES = 12  # of a logarithmic scale, at most
_SECOND = 1_000_000
_MINUTE, _HOUR, _DAY = 60 * _SECOND, 3_600 * _SECOND, 86_400 * _SECOND
_STEPS = (
    *(1_000 * step * scale for scale in (1, 10, 100) for step in (1, 2, 5)),
    *(_SECOND * step for step in (1, 2, 5, 10, 15, 30)),
    *(_MINUTE * step for step in (1, 2, 5, 10, 15, 30)),
    *(_HOUR * step for step in (1, 2, 3, 6, 12)),
    *(_DAY * step * scale for scale in (1, 10, 100, 1_000, 10_000) for step in (1, 2, 5)),
)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


@dataclass(frozen=True)
class Scale:
    """A scale from `low` to `high`, which are written at the axis along with what lies between."""

    low: float
    high: float
    ticks: tuple[float, ...]
    logarithmic: bool = False

    def at(self, value: float) -> float:
        """Where a value is drawn, from 0 to 1."""
        value = drawable(value)
        if self.logarithmic:
            part = log10(max(value, self.low) / self.low) / log10(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return min(max(part, 0.0), 1.0)


def drawable(value: float) -> float:
    """The value, or the nearest that can be drawn: no scale here has negative or endless values."""
    return min(value, _MOST) if isfinite(value) and value >= _LEAST else 0.0


def linear(values: Iterable[float], steps: int = 4, whole: bool = False) -> Scale:
    """A scale from 0 to a round number above all values. `whole`: steps are whole numbers."""
    most = max(map(drawable, values), default=0.0)
    step = _round_step(most / steps) if most > 0 else 1.0 / steps
    if whole:
        step = max(1.0, float(ceil(step)))
    number = max(1, ceil(most / step - 1e-9))
    return Scale(0.0, number * step, tuple(step * at for at in range(number + 1)))


def fitting(values: Iterable[float], steps: int = 4) -> Scale:
    """A scale of logarithms if the values differ much, otherwise one that begins at 0."""
    drawn = [drawable(value) for value in values]
    positive = [value for value in drawn if value > 0]
    if not positive or max(positive) < _WIDE * min(positive):
        return linear(drawn, steps)
    top = ceil(log10(max(positive)) - 1e-9)
    bottom = max(floor(log10(min(positive)) + 1e-9), top - _DECADES)
    every = ceil((top - bottom) / (steps + 1))
    ticks = tuple(10.0**power for power in range(bottom, top + 1, every))
    return Scale(10.0**bottom, 10.0**top, ticks, logarithmic=True)


@dataclass(frozen=True)
class TimeScale:
    """A scale of times in microseconds since 1970."""

    begin_us: int
    end_us: int

    def at(self, us: float) -> float:
        """Where a time is drawn, from 0 to 1."""
        return min(max((us - self.begin_us) / (self.end_us - self.begin_us), 0.0), 1.0)

    def ticks(self, most: int = 9) -> list[tuple[float, str]]:
        """Where times are written at the axis, and what is written there."""
        length = self.end_us - self.begin_us
        step = next((step for step in _STEPS if length <= step * most), length)
        first = -(-self.begin_us // step) * step
        years = length > 300 * _DAY
        return [
            (self.at(us), _tick_text(us, step, years)) for us in range(first, self.end_us + 1, step)
        ]


def _round_step(least: float) -> float:
    """The smallest of 1, 2, 5, 10, 20, 50… (and 0.5, 0.2…) that is at least this."""
    base = 10.0 ** floor(log10(least))
    return next((base * step for step in (1, 2, 5) if base * step >= least * (1 - 1e-9)), base * 10)


def _tick_text(us: int, step: int, years: bool) -> str:
    at = moment(us)
    if at is None:
        return ""
    if us % _DAY == 0:
        return _date(at, years)
    if step % _MINUTE == 0:
        return f"{at:%H:%M}"
    text = f"{at:%H:%M:%S}"
    return text if step % _SECOND == 0 else f"{text}.{at.microsecond // 1_000:03}"


def _date(at: datetime, years: bool) -> str:
    return f"{_MONTHS[at.month - 1]} {at.year}" if years else f"{at.day} {_MONTHS[at.month - 1]}"
