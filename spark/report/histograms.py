"""How values are distributed: percentiles, and histograms with few bars."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as sql

from spark.report.model import Bin, Histogram

if TYPE_CHECKING:
    from pyspark.sql import Column, Row

PERCENTILES = (0.5, 0.9, 0.99)
_HIGHEST = 32  # the last bar of a histogram, as a power of two, has all that is above


def percentiles(value: "Column") -> "Column":
    """An array of the median, the 90th and the 99th percentile; null if there is no value."""
    return sql.percentile_approx(value, list(PERCENTILES), 1_000)


def histogram_of(value: "Column") -> "Column":
    """An aggregate for `read_histogram`: how values are distributed that are not null."""
    power = sql.when(value <= 1, 0).otherwise(sql.ceil(sql.log2(value)))
    # The least of a null and a number would be the number.
    bar = sql.when(value.isNotNull(), sql.least(power, sql.lit(_HIGHEST)).cast("int"))
    return sql.struct(
        sql.count(value).alias("number"),
        sql.avg(value).alias("mean"),
        percentiles(value).alias("percentiles"),
        sql.max(value).alias("highest"),
        sql.array(*(sql.count_if(bar == n) for n in range(_HIGHEST + 1))).alias("bars"),
    )


def read_histogram(found: "Row") -> Histogram | None:
    """The histogram, with bars that double in width; None if there was no value."""
    if not found["number"]:
        return None
    p50, p90, p99 = (float(each) for each in found["percentiles"])
    bins = doubling_bins({n: count for n, count in enumerate(found["bars"]) if count})
    return Histogram(
        found["number"], float(found["mean"]), p50, p90, p99, float(found["highest"]), bins
    )


def doubling_bins(counts: Mapping[int, int]) -> tuple[Bin, ...]:
    """Bars from counts by power of two, with those between that are empty."""
    return tuple(
        Bin(float(2**power), counts.get(power, 0)) for power in range(min(counts), max(counts) + 1)
    )


def counted_histogram(counts: Mapping[int, float]) -> Histogram | None:
    """How whole numbers are distributed, from the count of each; None if there is none."""
    if not counts:
        return None
    total = sum(counts.values())
    bars: dict[int, float] = {}
    for value, count in counts.items():
        power = min((value - 1).bit_length(), _HIGHEST) if value > 1 else 0
        bars[power] = bars.get(power, 0.0) + count
    p50, p90, p99 = (_value_at(counts, total * share) for share in PERCENTILES)
    return Histogram(
        max(1, round(total)),
        sum(value * count for value, count in counts.items()) / total,
        p50,
        p90,
        p99,
        float(max(counts)),
        doubling_bins({power: round(count) for power, count in bars.items()}),
    )


def _value_at(counts: Mapping[int, float], wanted: float) -> float:
    """The smallest value that at least `wanted` of the counted values do not exceed."""
    seen = 0.0
    for value, count in sorted(counts.items()):
        seen += count
        if seen >= wanted - 1e-9:
            return float(value)
    return float(max(counts))
