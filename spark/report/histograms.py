"""How values are distributed: percentiles, and histograms with few bars."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as sql

from spark.report.model import Bin, Histogram

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PERCENTILES = (0.5, 0.9, 0.99)
_HIGHEST = 32  # the last bar of a histogram, as a power of two, has all that is above


def percentiles(value: "Column") -> "Column":
    """An array of the median, the 90th and the 99th percentile; null if there is no value."""
    return sql.percentile_approx(value, list(PERCENTILES), 1_000)


def histogram(values: "DataFrame", name: str) -> Histogram | None:
    """How a column is distributed; None if there is no value."""
    return histograms(values.withColumn("all", sql.lit("")), "all", name).get("")


def histograms(values: "DataFrame", group: str, name: str) -> dict[str, Histogram]:
    """How a column is distributed in each group, with bars that double in width."""
    value = sql.col(name)
    power = sql.when(value <= 1, 0).otherwise(sql.ceil(sql.log2(value)))
    bar = sql.least(power, sql.lit(_HIGHEST)).cast("int")
    about = (
        values.where(value.isNotNull())
        .groupBy(sql.col(group).alias("group"))
        .agg(
            sql.count(value).alias("number"),
            sql.avg(value).alias("mean"),
            percentiles(value).alias("percentiles"),
            sql.max(value).alias("highest"),
            sql.array(*(sql.count_if(bar == n) for n in range(_HIGHEST + 1))).alias("bars"),
        )
    )
    found = {}
    for row in about.collect():
        p50, p90, p99 = (float(each) for each in row["percentiles"])
        bins = doubling_bins({n: count for n, count in enumerate(row["bars"]) if count})
        found[row["group"]] = Histogram(
            row["number"], float(row["mean"]), p50, p90, p99, float(row["highest"]), bins
        )
    return found


def doubling_bins(counts: Mapping[int, int]) -> tuple[Bin, ...]:
    """Bars from counts by power of two, with those between that are empty."""
    return tuple(
        Bin(float(2**power), counts.get(power, 0)) for power in range(min(counts), max(counts) + 1)
    )
