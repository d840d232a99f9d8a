"""Latency by stage, and the work of partitions and configurators."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as sql

from spark.report.histograms import counted_histogram, percentiles
from spark.report.model import Histogram, LoadRow, Skew, StageRow
from spark.report.skew import skew_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

MOST_LOADS = 100
STAGES = ("queued", "decided", "pushed")


class Loads(NamedTuple):
    """The time of partials in each stage, and the partitions and configurators with most work."""

    stages: tuple[StageRow, ...]
    partitions: tuple[LoadRow, ...]
    configurators: tuple[LoadRow, ...]
    skew: tuple[Skew | None, ...]


def find_total(requests: "DataFrame") -> tuple[StageRow, ...]:
    """How long requests took as a whole, if that is known."""
    about = requests.agg(*_stage_columns("total", sql.col("total_us") / 1_000)).first()
    assert about is not None  # an aggregation without groups has one row
    return _stage_rows(about, ("total",))


def find_operations(requests: "DataFrame") -> Histogram | None:
    """The flow operations of requests. How many a request can have depends on the network."""
    counts = requests.groupBy("operations").count().collect()
    return counted_histogram({row["operations"]: row["count"] for row in counts})


def find_loads(rows: "DataFrame", known: Collection[str]) -> Loads:
    """Stages, partitions and configurators, and how unevenly work is spread.

    It is spread over all partitions that are `known`, and over the configurators that had some. How
    many of either there are does not depend on the length of the traces.
    """
    # Partials that failed before they were decided have no stages.
    was_decided = sql.col("slice") > 0
    stages = [
        column
        for stage in STAGES
        for column in _stage_columns(stage, sql.when(was_decided, sql.col(f"{stage}_us") / 1_000))
    ]
    sums = [
        sql.count("*").alias("partials"),
        (sql.sum("work_us") / 1_000).alias("work_ms"),
        sql.sum("operations").alias("operations"),
        *stages,
    ]
    by_partition = rows.groupBy("partition", "space").agg(*sums).collect()
    whole = sql.grouping("configurator") == 1
    found = rows.rollup("configurator").agg(whole.alias("whole"), *sums).collect()
    of_all = [row for row in found if row["whole"]]
    by_configurator = [row for row in found if not row["whole"]]
    idle = set(known) - {row["partition"] for row in by_partition}
    return Loads(
        tuple(row for about in of_all for row in _stage_rows(about, STAGES)),
        _load_rows(by_partition, ("partition", "space")),
        _load_rows(by_configurator, ("configurator",)),
        (
            skew_of("partitions", [*_work(by_partition), *(0.0 for _ in idle)]),
            skew_of("configurators", _work(by_configurator)),
        ),
    )


def _stage_columns(stage: str, value: "Column") -> "tuple[Column, ...]":
    return (
        sql.avg(value).alias(f"{stage}_mean"),
        percentiles(value).alias(f"{stage}_percentiles"),
        sql.max(value).alias(f"{stage}_max"),
    )


def _stage_rows(about: "Row", stages: Sequence[str]) -> tuple[StageRow, ...]:
    """Stages that nothing has reached are left out."""
    return tuple(
        StageRow(stage, about[f"{stage}_mean"], each[0], each[1], each[2], about[f"{stage}_max"])
        for stage in stages
        if (each := about[f"{stage}_percentiles"])
    )


def _work(rows: "Sequence[Row]") -> list[float]:
    return [row["work_ms"] for row in rows]


def _load_rows(rows: "Sequence[Row]", names: tuple[str, ...]) -> tuple[LoadRow, ...]:
    """Those with most work."""
    loads = sorted(rows, key=lambda row: (-row["work_ms"], row[names[0]]))
    total = sum(_work(rows)) or 1.0
    return tuple(_load_row(row, names, total) for row in loads[:MOST_LOADS])


def _load_row(row: "Row", names: tuple[str, ...], total: float) -> LoadRow:
    queued, decided, pushed = (row[f"{stage}_percentiles"] or (0.0, 0.0, 0.0) for stage in STAGES)
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
    return counted_histogram({row["slice_size"]: row["count"] / row["slice_size"] for row in sizes})
