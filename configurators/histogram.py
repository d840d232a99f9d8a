"""Counts durations by size, for metrics."""

from bisect import bisect_left
from collections.abc import Sequence

from msgspec import Struct

LATENCY_BOUNDS = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
"""Upper bounds of durations that users notice, in seconds; there is one more without a bound."""

STEP_BOUNDS = (0.0001, 0.00025, 0.0005, *LATENCY_BOUNDS)
"""The same for the steps of a request, of which some take less than a millisecond."""


class HistogramCounts(Struct, frozen=True, array_like=True):
    """How many durations there were up to each bound (and above the one before), and their sum.

    The last count is of durations above all bounds. Without any counts, there was no duration.
    """

    counts: tuple[int, ...] = ()
    sum: float = 0.0


class Histogram:
    """Counts durations; read it at any time."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float] = STEP_BOUNDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count a duration."""
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.sum += seconds

    def current(self) -> HistogramCounts:
        """What was counted so far."""
        return HistogramCounts(tuple(self.counts), self.sum)
