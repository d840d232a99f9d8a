"""Latency by stage, and the work of partitions and configurators."""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from spark.report.histograms import doubling_bins, quantiles
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
        value = F.col(f"{stage}_us") / 1_000
        about = of.agg(
            F.avg(value).alias("mean"), quantiles(value).alias("shares"), F.max(value).alias("max")
        ).first()
        if about is not None and about["shares"]:
            found.append(StageRow(stage, about["mean"], *about["shares"], about["max"]))
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
    stages = [quantiles(F.col(f"{stage}_us") / 1_000).alias(stage) for stage in STAGES]
    found = rows.groupBy(*names).agg(
        F.count("*").alias("partials"),
        (F.sum("work_us") / 1_000).alias("work_ms"),
        F.sum("operations").alias("operations"),
        *stages,
    )
    loads = sorted(found.collect(), key=lambda row: (-row["work_ms"], row[names[0]]))
    total = sum(row["work_ms"] for row in loads) or 1.0
    shown = tuple(_load_row(row, names, total) for row in loads[:MOST_LOADS])
    return shown, skew_of(over, (row["work_ms"] for row in loads))


def _load_row(row: "Row", names: tuple[str, ...], total: float) -> LoadRow:
    spread = [row[stage][place] for stage in STAGES for place in (0, 2)]  # p50 and p99
    return LoadRow(
        row[names[0]],
        row["space"] if "space" in names else "",
        row["partials"],
        row["work_ms"],
        row["work_ms"] / total,
        *spread,
        row["operations"],
    )


def find_slices(rows: "DataFrame") -> Histogram | None:
    """How large slices were. A slice of n partials has n rows, so each row counts as 1/n of one."""
    sizes = rows.where(F.col("slice_size") > 0).groupBy("slice_size").count().collect()
    counts = {row["slice_size"]: row["count"] / row["slice_size"] for row in sizes}
    if not counts:
        return None
    total = sum(counts.values())
    bars: dict[int, float] = {}
    for size, count in counts.items():
        power = (size - 1).bit_length()
        bars[power] = bars.get(power, 0.0) + count
    return Histogram(
        round(total),
        sum(size * count for size, count in counts.items()) / total,
        *(_share(counts, total * share) for share in (0.5, 0.9, 0.99)),
        float(max(counts)),
        doubling_bins({power: round(count) for power, count in bars.items()}),
    )


def _share(counts: dict[int, float], wanted: float) -> float:
    """The least value that so many are at most as large as."""
    seen = 0.0
    for value, count in sorted(counts.items()):
        seen += count
        if seen >= wanted - 1e-9:
            break
    return float(value)
