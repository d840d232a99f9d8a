"""Turns values into the metrics of the Prometheus library."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from api.http.metrics.catalogue import METRICS
from configurators.histogram import Histogram, HistogramCounts

L = TypeVar("L", bound=tuple[str, ...])  # the values of the labels


def family(name: str, values: Mapping[L, float] | float) -> Metric:
    """A counter or a gauge of the catalogue, with values by label; one if it has no labels."""
    spec = METRICS[name]
    make = CounterMetricFamily if spec.type == "counter" else GaugeMetricFamily
    found = make(name.removesuffix("_total"), spec.text, labels=spec.labels)
    if isinstance(values, Mapping):
        for labels, value in values.items():
            found.add_metric(labels, value)
    else:
        found.add_metric((), values)
    return found


def histogram(
    name: str,
    counts: Mapping[L, Histogram | HistogramCounts],
    bounds: Sequence[float],
) -> Metric:
    """A histogram of the catalogue, with these bounds."""
    spec = METRICS[name]
    found = HistogramMetricFamily(name, spec.text, labels=spec.labels)
    names = [*map(str, bounds), "+Inf"]
    for labels, one in counts.items():
        if len(one.counts) != len(names):
            continue  # nothing was counted; or a process of another version has other bounds
        below, buckets = 0, []
        for bound, count in zip(names, one.counts, strict=True):
            below += count
            buckets.append((bound, below))
        found.add_metric(labels, buckets, one.sum)
    return found
