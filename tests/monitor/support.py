"""Judges PromQL by the metrics that the service really shows."""

from collections.abc import Mapping

from msgspec.structs import fields
from prometheus_client.core import Metric

from api.http.metrics.catalogue import LABELS, METRICS, MetricSpec
from dispatcher.errors import DispatcherError
from dzflow.sdk import Counters
from tests.promql import AGGREGATIONS, Expression, Series

ADDED = {"job", "instance"}  # labels that Prometheus adds
_SUFFIXES = ("_bucket", "_sum", "_count")


def spec_of(series: Series) -> MetricSpec:
    """The metric that a series belongs to; KeyError if there is none."""
    if series.name in METRICS:
        return METRICS[series.name]
    for suffix in _SUFFIXES:
        base = series.name.removesuffix(suffix)
        if base != series.name and METRICS[base].type == "histogram":
            return METRICS[base]
    raise KeyError(series.name)


def check_names(found: Expression, shown: Mapping[str, Metric]) -> None:
    """Fail unless all series, labels and values of an expression exist in what is shown."""
    assert found.series
    known: set[str] = set()
    for series in found.series:
        spec = spec_of(series)
        samples = shown[spec.name].samples
        labels = set(spec.labels) | ADDED | ({"le"} if series.name.endswith("_bucket") else set())
        for sample in samples:
            assert sample.labels.keys() <= labels | {"le"}
        if samples:
            assert series.name in {sample.name for sample in samples}
        for matcher in series.matchers:
            assert matcher.label in labels, f"{series.name} has no label {matcher.label}"
            if matcher.label in spec.labels and "$" not in matcher.value:
                for value in matcher.value.split("|"):
                    assert value in values_of(matcher.label), f"{matcher.label} is never {value}"
        known |= labels
    assert found.grouped <= known


def values_of(label: str) -> set[str]:
    """The values that a label can have, where these are fixed."""
    if label == "counter":
        return {field.name for field in fields(Counters)}
    if label == "type":
        return {kind.default_kind for kind in _subclasses(DispatcherError)}
    return set(LABELS[label].split("`")[1::2])


def _subclasses(kind: type[DispatcherError]) -> list[type[DispatcherError]]:
    return [each for one in kind.__subclasses__() for each in (one, *_subclasses(one))]


def check_aggregation(found: Expression) -> None:
    """Fail if an expression counts twice what several API processes know.

    Counters and histograms are read by their rate. What the whole system has is the same in each
    API process, so the maximum is taken first; what each process counts is added up.
    """
    for series in found.series:
        spec = spec_of(series)
        over_time = {"rate", "increase"} & set(series.within)
        assert series.ranged == bool(over_time | ({"changes"} & set(series.within)))
        assert (spec.type == "gauge") == (not over_time), series.name
        assert series.name.endswith("_bucket") == ("histogram_quantile" in series.within)
        around = [name for name in series.within if name in AGGREGATIONS]
        if spec.origin == "system":
            assert around[-1:] == ["max"] or series.within == ("absent",), series.name
        else:
            assert around == ["sum"] or (spec.unit == "0 or 1" and around == ["min"]), series.name


def unit_of(found: Expression) -> str:
    """The unit of what an expression gives, as the catalogue names it; `ratio` if it has none."""
    units = {spec_of(series).unit for series in found.series}
    names = [series.name for series in found.series]
    if "/" in found.operators:
        if len(names) == 2 and names[0].endswith("_sum") and names[1].endswith("_count"):
            return "seconds"  # a mean
        assert len(units) == 1, "only things of one kind can be divided"
        return "ratio"
    (unit,) = units
    rated = any("rate" in series.within for series in found.series)
    if rated and not any("histogram_quantile" in series.within for series in found.series):
        unit += " per minute" if "*" in found.operators else " per second"
    if any("changes" in series.within for series in found.series):
        unit = "changes"
    return unit
