"""How values are distributed: percentiles, and histograms with few bars."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as sql

from spark.report.model import Bin, Histogram

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SHARES = (0.5, 0.9, 0.99)


def quantiles(value: "Column") -> "Column":
    """An array of the median, the 90th and the 99th percentile."""
    return sql.percentile_approx(value, list(SHARES), 1_000)


def histogram(values: "DataFrame", name: str) -> Histogram | None:
    """How a column is distributed, with bars that double in width; None if there is no value."""
    power = sql.when(sql.col(name) <= 1, 0).otherwise(sql.ceil(sql.log2(name))).cast("int")
    bars = values.where(sql.col(name).isNotNull()).groupBy(power.alias("power")).count().collect()
    if not bars:
        return None
    value = sql.col(name)
    about = values.agg(
        sql.count(value).alias("count"),
        sql.avg(value).alias("mean"),
        quantiles(value).alias("shares"),
        sql.max(value).alias("max"),
    ).first()
    assert about is not None  # an aggregation without groups has one row
    p50, p90, p99 = (float(share) for share in about["shares"])
    counts = {row["power"]: row["count"] for row in bars}
    bins = doubling_bins(counts)
    return Histogram(about["count"], float(about["mean"]), p50, p90, p99, float(about["max"]), bins)


def doubling_bins(counts: Mapping[int, int]) -> tuple[Bin, ...]:
    """Bars from counts by power of two, with those between that are empty."""
    return tuple(
        Bin(float(2**power), counts.get(power, 0)) for power in range(min(counts), max(counts) + 1)
    )
