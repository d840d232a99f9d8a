"""Decides whether a series of measurements stays flat; pure."""

from collections.abc import Iterable, Sequence
from itertools import combinations
from statistics import median
from typing import Literal

from msgspec import Struct

FEWEST = 5  # points that a slope needs

Direction = Literal["up", "down"]
Trend = Literal["flat", "worse", "better", "too short"]


class Point(Struct, frozen=True):
    """A measurement, and when it was made, in minutes from the begin."""

    minute: float
    value: float


class Verdict(Struct, frozen=True):
    """How a series changed from its begin to its end, by a slope that outliers do not change."""

    trend: Trend
    level: float = 0.0  # the median
    change: float = 0.0  # over the whole time
    share: float = 0.0  # the change as a share of the level


def judge(
    points: Sequence[Point],
    worse: Direction,
    tolerance: float,
    floor: float,
) -> Verdict:
    """Whether a series is flat.

    It is, if it changes by at most `tolerance` (a share of its median) or by at most `floor` from
    the first to the last point, both along the Theil-Sen slope: the median of the slopes between
    all pairs of points.
    """
    if len(points) < FEWEST:
        return Verdict("too short")
    level = median(point.value for point in points)
    change = slope(points) * (points[-1].minute - points[0].minute)
    share = change / level if level else 0.0
    if abs(change) <= max(floor, tolerance * abs(level)):
        return Verdict("flat", level, change, share)
    gets_worse = (change > 0) == (worse == "up")
    return Verdict("worse" if gets_worse else "better", level, change, share)


def slope(points: Sequence[Point]) -> float:
    """The Theil-Sen slope, per minute; 0 if all points were made at one time."""
    slopes = [
        (late.value - early.value) / (late.minute - early.minute)
        for early, late in combinations(points, 2)
        if late.minute != early.minute
    ]
    return median(slopes) if slopes else 0.0


def by_minute(points: Iterable[Point]) -> list[Point]:
    """The median of each minute, at the minute's middle."""
    minutes: dict[int, list[float]] = {}
    for point in points:
        minutes.setdefault(int(point.minute), []).append(point.value)
    return [Point(minute + 0.5, median(values)) for minute, values in sorted(minutes.items())]


def settled(points: Sequence[Point], begin: float, length: float) -> list[Point]:
    """The points that count: from the minute `begin` on, or the last two thirds of a short run."""
    start = begin if length > begin + FEWEST else length / 3
    return [point for point in points if point.minute >= start]
