"""Latency by stage, and the work of partitions and configurators."""

from typing import TYPE_CHECKING

from pyspark.sql import functions as sql

from spark.report.histograms import SHARES, doubling_bins, quantiles
from spark.report.model import Histogram, LoadRow, Skew, StageRow
from spark.report.skew import skew_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

MOST_LOADS = 100
STAGES = ("queued", "decided", "pushed")


def find_latency(requests: "DataFrame", rows: "DataFrame") -> tuple[StageRow, ...]:
    """How long requests took as a whole, and their partials in each stage."""
    found = []
    for stage, of in (("total", requests), *((stage, rows) for stage in STAGES)):
        value = sql.col(f"{stage}_us") / 1_000
        about = of.agg(
            sql.avg(value).alias("mean"),
            quantiles(value).alias("shares"),
            sql.max(value).alias("max"),
        ).first()
        if about is not None and about["shares"]:
            p50, p90, p99 = about["shares"]
            found.append(StageRow(stage, about["mean"], p50, p90, p99, about["max"]))
    return tuple(found)


def find_partitions(rows: "DataFrame") -> tuple[tuple[LoadRow, ...], Skew | None]:
    """The partitions with most work, and how unevenly it is spread."""
    return _find_loads(rows, "partitions", "partition", "space")


def find_configurators(rows: "DataFrame") -> tuple[tuple[LoadRow, ...], Skew | None]:
    """The configurators with most work, and how unevenly it is spread."""
    return _find_loads(rows, "configurators", "configurator")


def _find_loads(
    rows: "DataFrame", over: str, *names: str
) -> tuple[tuple[LoadRow, ...], Skew | None]:
    """How many partitions and configurators there are does not depend on the traces' length."""
    stages = [quantiles(sql.col(f"{stage}_us") / 1_000).alias(stage) for stage in STAGES]
    found = rows.groupBy(*names).agg(
        sql.count("*").alias("partials"),
        (sql.sum("work_us") / 1_000).alias("work_ms"),
        sql.sum("operations").alias("operations"),
        *stages,
    )
    loads = sorted(found.collect(), key=lambda row: (-row["work_ms"], row[names[0]]))
    total = sum(row["work_ms"] for row in loads) or 1.0
    shown = tuple(_load_row(row, names, total) for row in loads[:MOST_LOADS])
    return shown, skew_of(over, (row["work_ms"] for row in loads))


def _load_row(row: "Row", names: tuple[str, ...], total: float) -> LoadRow:
    queued, decided, pushed = (row[stage] for stage in STAGES)
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
    p50, p90, p99 = (_share(counts, total * share) for share in SHARES)
    return Histogram(
        round(total),
        sum(size * count for size, count in counts.items()) / total,
        p50,
        p90,
        p99,
        float(max(counts)),
        doubling_bins({power: round(count) for power, count in bars.items()}),
    )


def _share(counts: dict[int, float], wanted: float) -> float:
    """The least value that so many are at most as large as."""
    seen = 0.0
    for value, count in sorted(counts.items()):
        seen += count
        if seen >= wanted - 1e-9:
            return float(value)
    return float(max(counts))
