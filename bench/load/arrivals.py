"""Arrival times, the latencies of a single-server queue, and percentiles of latencies."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from random import Random
from typing import Literal

from bench.report import Row

Arrival = Literal["uniform", "poisson"]


def arrival_times(arrival: Arrival, rate: float, seconds: float, seed: int = 1) -> list[float]:
    """Times in seconds from 0 on with this average rate: evenly spaced, or a Poisson process."""
    count = round(rate * seconds)
    if arrival == "uniform":
        return [n / rate for n in range(count)]
    random = Random(seed)
    return list(accumulate(random.expovariate(rate) for _ in range(count)))


def queueing_latencies(arrivals: Iterable[float], services: Iterable[float]) -> Iterator[float]:
    """The latency of each request if a server handles one at a time, in order of arrival."""
    free = 0.0
    for at, service in zip(arrivals, services, strict=True):
        free = max(free, at) + service
        yield free - at


def extrapolate(measured: Sequence[float], count: int, seed: int = 1) -> list[float]:
    """This many service times: the measured ones, then random draws from them."""
    missing = max(0, count - len(measured))
    return [*measured[:count], *Random(seed).choices(measured, k=missing)]


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value that this share does not exceed; 0 if there are none."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def latency_columns(latencies: Iterable[float]) -> Row:
    """Mean and percentiles in milliseconds, as columns of a row."""
    ordered = sorted(latencies)
    return {
        "mean_ms": 1e3 * sum(ordered) / max(1, len(ordered)),
        "p50_ms": 1e3 * percentile(ordered, 0.5),
        "p99_ms": 1e3 * percentile(ordered, 0.99),
        "p999_ms": 1e3 * percentile(ordered, 0.999),
    }
