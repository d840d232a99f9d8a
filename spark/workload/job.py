"""The job: from rows of traces to requests in the order in which they came, by Spark alone.

Rows are gathered by request, then requests by record, to see which of them had an effect, and which
concern records that began before the traces. Then they are sorted, and reach the driver piece by
piece: its memory does not grow with the traces.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import Window
from pyspark.sql import functions as sql

from configurators.store.keys import LETTERS
from spark.reading import read_rows
from spark.traces import Traces
from spark.workload.model import (
    BEGINS,
    ENDS,
    UPDATE,
    LeftOut,
    WorkloadAbout,
    WorkloadRequest,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PIECE = 50_000  # rows of traces, so at most as many requests, that reach the driver together
_ORDER = ("at_us", "target_id", "seq")
_COLUMNS = WorkloadRequest.__struct_fields__


class Workload(NamedTuple):
    """A workload: what is known about it, and its requests, which can be read once."""

    about: WorkloadAbout
    requests: Iterator[WorkloadRequest]


@contextmanager
def rebuild(
    spark: "SparkSession",
    traces: Traces,
    since_us: int | None = None,
    until_us: int | None = None,
) -> Iterator[Workload]:
    """The workload of the requests that arrived in a time; its requests are read in the block."""
    rows = read_rows(spark, traces, since_us, until_us)
    requests = judge(rows).persist()
    pieces = -(-sum(file.rows for file in traces.files) // PIECE)
    try:
        about = _about(rows, requests)
        yield Workload(about, _in_order(requests, max(1, pieces)))
    finally:
        requests.unpersist()


def judge(rows: "DataFrame") -> "DataFrame":
    """One row per request, with its `fate`: replayed, first_seen, refused, began_before, unknown.

    `at_us` is when it arrived, but not before an earlier request of the same record. A change of a
    record that began before the traces has all that is needed to begin it: it becomes its begin.
    """
    told = sql.coalesce(sql.size("regions") > 0, sql.lit(False))
    requests = rows.groupBy("request_id").agg(
        *(sql.any_value(name).alias(name) for name in ("kind", "space", "host")),
        *(sql.any_value(name).alias(name) for name in ("target_id", "filter")),
        sql.min("received_us").alias("received_us"),
        sql.max(sql.col("outcome") != "done").alias("failed"),
        sql.max(told).alias("told"),
    )
    kind = sql.col("kind")
    ends = kind.isin(*ENDS)
    known = kind.isin(*BEGINS, *ENDS, UPDATE)
    # A refused end is tried again until it succeeds, unless it was taken back: then partitions
    # were told the record's regions again.
    refused = sql.col("failed") & (~ends | sql.col("told"))
    number = sql.substring_index("request_id", ".", -1).try_cast("long")
    numbered = requests.withColumn("seq", sql.coalesce(number, sql.lit(0)))
    of_record = Window.partitionBy("target_id").orderBy("seq", "received_us", "request_id")
    until_now = of_record.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    earlier = of_record.rowsBetween(Window.unboundedPreceding, -1)
    last = sql.last(sql.when(known & ~refused, kind), ignorenulls=True).over(earlier)
    is_active = sql.coalesce(~sql.col("last").isin(*ENDS), sql.lit(False))
    fate = (
        sql.when(~known, "unknown")
        .when(refused, "refused")
        .when(kind.isin(*BEGINS) | is_active, "replayed")
        .when((kind == UPDATE) & sql.col("last").isNull(), "first_seen")
        .otherwise("began_before")
    )
    advertised = sql.col("target_id").startswith(LETTERS["advertisement"])
    begun = sql.when(advertised, "advertise").otherwise("subscribe")
    return (
        numbered.withColumns({"last": last, "at_us": sql.max("received_us").over(until_now)})
        .withColumn("fate", fate)
        .withColumn("kind", sql.when(sql.col("fate") == "first_seen", begun).otherwise(kind))
        .select(
            *_COLUMNS, "seq", "fate", (sql.col("at_us") > sql.col("received_us")).alias("moved")
        )
    )


def _in_order(requests: "DataFrame", pieces: int) -> Iterator[WorkloadRequest]:
    """The requests that are replayed, in their order; one piece is in the driver's memory."""
    chosen = _replayed(requests)
    pieced = chosen.repartitionByRange(pieces, *_ORDER).sortWithinPartitions(*_ORDER)
    for row in pieced.select(*_COLUMNS).toLocalIterator():
        yield WorkloadRequest(*row)


def _replayed(requests: "DataFrame") -> "DataFrame":
    return requests.where(sql.col("fate").isin("replayed", "first_seen"))


def _about(rows: "DataFrame", requests: "DataFrame") -> WorkloadAbout:
    """Counts, hosts and owners: as many as there are kinds, hosts and partitions."""
    kind = sql.when(sql.col("fate") != "unknown", sql.col("kind")).alias("kind")
    counted = requests.groupBy("fate", kind).agg(
        sql.count("*").alias("requests"), sql.count_if("moved").alias("moved")
    )
    kinds: dict[str, int] = {}
    fates: dict[str, int] = {}
    moved = 0
    for row in counted.collect():
        fates[row["fate"]] = fates.get(row["fate"], 0) + row["requests"]
        if row["fate"] in ("replayed", "first_seen"):
            kinds[row["kind"]] = kinds.get(row["kind"], 0) + row["requests"]
            moved += row["moved"]
    hosts = _replayed(requests).select("host").distinct().collect()
    size, owners = _slices_and_owners(rows)
    return WorkloadAbout(
        dict(sorted(kinds.items())),
        LeftOut(fates.get("refused", 0), fates.get("began_before", 0), fates.get("unknown", 0)),
        fates.get("first_seen", 0),
        moved,
        tuple(sorted(row["host"] for row in hosts)),
        size,
        owners,
    )


def _slices_and_owners(rows: "DataFrame") -> tuple[int, dict[str, str]]:
    """The mean size of slices, and the configurator that was last to work on each partition."""
    sized = sql.col("slice_size") > 0
    found = (
        rows.groupBy("partition", "configurator")
        .agg(
            sql.max("done_us").alias("done_us"),
            sql.max(sql.col("mode") == "sea").alias("shared"),
            sql.count_if(sized).alias("partials"),
            # A slice of n partials has n rows.
            sql.sum(sql.when(sized, 1 / sql.col("slice_size"))).alias("slices"),
        )
        .collect()
    )
    slices = sum(row["slices"] or 0.0 for row in found)
    size = round(sum(row["partials"] for row in found) / slices) if slices else 1
    shared = any(row["shared"] for row in found)
    by_time = sorted(found, key=lambda row: (row["done_us"], row["configurator"]))
    owners = {} if shared else {row["partition"]: row["configurator"] for row in by_time}
    return max(1, size), dict(sorted(owners.items()))
