"""Latency by stage, and the work of partitions and configurators."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from pyspark.sql import functions as sql

from spark.report.histograms import PERCENTILES, doubling_bins, percentiles
from spark.report.model import Histogram, LoadRow, Skew, StageRow
from spark.report.skew import skew_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

MOST_LOADS = 100
STAGES = ("queued", "decided", "pushed")


def find_latency(requests: "DataFrame", rows: "DataFrame") -> tuple[StageRow, ...]:
    """How long requests took as a whole, and their partials in each stage."""
    found = []
    for of, stages in ((requests, ("total",)), (_decided(rows), STAGES)):
        columns = []
        for stage in stages:
            value = sql.col(f"{stage}_us") / 1_000
            columns.append(sql.avg(value).alias(f"{stage}_mean"))
            columns.append(percentiles(value).alias(f"{stage}_percentiles"))
            columns.append(sql.max(value).alias(f"{stage}_max"))
        about = of.agg(*columns).first()
        assert about is not None  # an aggregation without groups has one row
        for stage in stages:
            if each := about[f"{stage}_percentiles"]:
                mean, most = about[f"{stage}_mean"], about[f"{stage}_max"]
                found.append(StageRow(stage, mean, each[0], each[1], each[2], most))
    return tuple(found)


def _decided(rows: "DataFrame") -> "DataFrame":
    """The rows of slices: partials that failed before they were decided have no stages."""
    return rows.where(sql.col("slice") > 0)


def find_partitions(
    rows: "DataFrame", known: Collection[str]
) -> tuple[tuple[LoadRow, ...], Skew | None]:
    """The partitions with most work, and how unevenly it is spread over all that are known."""
    return _find_loads(rows, "partitions", ("partition", "space"), known)


def find_configurators(rows: "DataFrame") -> tuple[tuple[LoadRow, ...], Skew | None]:
    """The configurators with most work, and how unevenly it is spread over those that had some."""
    return _find_loads(rows, "configurators", ("configurator",), ())


def _find_loads(
    rows: "DataFrame", over: str, names: tuple[str, ...], known: Collection[str]
) -> tuple[tuple[LoadRow, ...], Skew | None]:
    """How many partitions and configurators there are does not depend on the traces' length."""
    was_decided = sql.col("slice") > 0
    stages = [
        percentiles(sql.when(was_decided, sql.col(f"{stage}_us") / 1_000)).alias(stage)
        for stage in STAGES
    ]
    found = rows.groupBy(*names).agg(
        sql.count("*").alias("partials"),
        (sql.sum("work_us") / 1_000).alias("work_ms"),
        sql.sum("operations").alias("operations"),
        *stages,
    )
    loads = sorted(found.collect(), key=lambda row: (-row["work_ms"], row[names[0]]))
    total = sum(row["work_ms"] for row in loads) or 1.0
    shown = tuple(_load_row(row, names, total) for row in loads[:MOST_LOADS])
    idle = set(known) - {row[names[0]] for row in loads}
    return shown, skew_of(over, [*(row["work_ms"] for row in loads), *(0.0 for _ in idle)])


def _load_row(row: "Row", names: tuple[str, ...], total: float) -> LoadRow:
    queued, decided, pushed = (row[stage] or (0.0, 0.0, 0.0) for stage in STAGES)
    return LoadRow(
        name=row[names[0]],
        space=row["space"] if "space" in names else "",
        partials=row["partials"],
        work_ms=row["work_ms"],
        share=row["work_ms"] / total,
        queued_p50_ms=queued[0],
        queued_p99_ms=queued[2],
        decided_p50_ms=decided[0],
        decided_p99_ms=decided[2],
        pushed_p50_ms=pushed[0],
        pushed_p99_ms=pushed[2],
        operations=row["operations"],
    )


def find_slices(rows: "DataFrame") -> Histogram | None:
    """How large slices were. A slice of n partials has n rows, so each row counts as 1/n of one."""
    sizes = rows.where(sql.col("slice_size") > 0).groupBy("slice_size").count().collect()
    counts = {row["slice_size"]: row["count"] / row["slice_size"] for row in sizes}
    if not counts:
        return None
    total = sum(counts.values())
    bars: dict[int, float] = {}
    for size, count in counts.items():
        power = (size - 1).bit_length()
        bars[power] = bars.get(power, 0.0) + count
    p50, p90, p99 = (_share(counts, total * share) for share in PERCENTILES)
    return Histogram(
        max(1, round(total)),
        sum(size * count for size, count in counts.items()) / total,
        p50,
        p90,
        p99,
        float(max(counts)),
        doubling_bins({power: round(count) for power, count in bars.items()}),
    )


def _share(counts: dict[int, float], wanted: float) -> float:
    """The smallest value that at least `wanted` of the counted values do not exceed."""
    seen = 0.0
    for value, count in sorted(counts.items()):
        seen += count
        if seen >= wanted - 1e-9:
            return float(value)
    return float(max(counts))
