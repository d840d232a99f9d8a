"""When requests arrive, how long they wait in a queue, and how latencies are summed up."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from random import Random
from typing import Literal

from bench.report import Row

Arrival = Literal["uniform", "poisson"]


def arrival_times(arrival: Arrival, rate: float, seconds: float, seed: int = 1) -> list[float]:
    """Times from 0 on: so many that the average is the rate, evenly spaced or as they come."""
    count = round(rate * seconds)
    if arrival == "uniform":
        return [n / rate for n in range(count)]
    random = Random(seed)
    return list(accumulate(random.expovariate(rate) for _ in range(count)))


def queued(arrivals: Iterable[float], services: Iterable[float]) -> Iterator[float]:
    """The latency of each request if one is served at a time, in the order of their arrival."""
    free = 0.0
    for at, service in zip(arrivals, services, strict=True):
        free = max(free, at) + service
        yield free - at


def continued(measured: Sequence[float], count: int, seed: int = 1) -> list[float]:
    """So many service times: those that were measured, and from there on drawn from them."""
    missing = max(0, count - len(measured))
    return [*measured[:count], *Random(seed).choices(measured, k=missing)]


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value that this share does not exceed; 0 if there are none."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def summary(latencies: Iterable[float]) -> Row:
    """Percentiles and mean, in milliseconds, as columns of a row."""
    ordered = sorted(latencies)
    return {
        "mean_ms": 1e3 * sum(ordered) / max(1, len(ordered)),
        "p50_ms": 1e3 * percentile(ordered, 0.5),
        "p99_ms": 1e3 * percentile(ordered, 0.99),
        "p999_ms": 1e3 * percentile(ordered, 0.999),
    }
