"""The tables of a history: sums per interval, from which reports on a long time are made.

Durations are kept as counts per bucket: bucket b has those above 2^((b-1)/8) and up to 2^(b/8)
microseconds. So buckets of several runs can be added up, and a percentile is known to within a
tenth of its value.
"""

from typing import TYPE_CHECKING

from pyspark.sql import functions as sql
from pyspark.sql.types import (
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from spark.work import SECOND

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

INTERVAL_US = 300 * SECOND  # a trace file has at most five minutes
STAGES = ("queued", "decided", "pushed")
TOTAL = "total"
_OPERATIONS = ("adds", "modifies", "deletes")
PER_OCTAVE = 8  # buckets between a duration and its double

_TEXT, _LONG = StringType(), LongType()


def _schema(texts: str, numbers: str) -> StructType:
    fields = [StructField("interval_us", _LONG)]
    fields += [StructField(name, _TEXT) for name in texts.split()]
    return StructType([*fields, *(StructField(name, _LONG) for name in numbers.split())])


REQUESTS = _schema("space kind", "requests failed partials adds modifies deletes")
"""Requests by kind. `partials` are the partitions that they concern."""

LOADS = _schema("space partition configurator", "partials operations").add("work_us", DoubleType())
"""The work of partitions and configurators."""

LATENCIES = (
    _schema("stage partition configurator", "partials")
    .add("bucket", IntegerType())
    .add("sum_us", _LONG)
)
"""Durations by bucket: of requests as a whole (without a partition), and of partials by stage."""

FILES = StructType(
    [StructField("name", _TEXT), StructField("rows", _LONG), StructField("why", _TEXT)]
)
"""The files that were taken in; `why` says why one was left out, and is empty for the others."""

SCHEMAS = {"requests": REQUESTS, "loads": LOADS, "latencies": LATENCIES, "files": FILES}


def bucket_end_ms(bucket: int) -> float:
    """The longest duration in a bucket, in milliseconds."""
    return float(2 ** (bucket / PER_OCTAVE)) / 1_000


def aggregate(rows: "DataFrame") -> "dict[str, DataFrame]":
    """The tables of some rows, which have `work_us` and `operations` (`with_work`).

    A request counts once, unless its rows are taken in by different runs.
    """
    requests = rows.groupBy("request_id").agg(
        sql.any_value("kind").alias("kind"),
        sql.any_value("space").alias("space"),
        sql.min("received_us").alias("received_us"),
        (sql.max("done_us") - sql.min("received_us")).alias("total_us"),
        sql.count_distinct("partition").alias("partials"),
        sql.max(sql.col("outcome") != "done").alias("failed"),
        *(sql.sum(name).alias(name) for name in _OPERATIONS),
    )
    # Below zero if a clock was set back in between.
    totals = requests.where(sql.col("total_us") >= 0).select(
        _interval(),
        sql.lit(TOTAL).alias("stage"),
        sql.lit("").alias("partition"),
        sql.lit("").alias("configurator"),
        sql.col("total_us").alias("us"),
    )
    decided = rows.where(sql.col("slice") > 0)
    names = ", ".join(f"'{stage}', {stage}_us" for stage in STAGES)
    stages = decided.select(
        _interval(),
        "partition",
        "configurator",
        sql.expr(f"stack({len(STAGES)}, {names}) as (stage, us)"),
    )
    return {
        "requests": _ordered(
            requests.groupBy(_interval(), "space", "kind").agg(
                sql.count("*").alias("requests"),
                sql.count_if("failed").alias("failed"),
                *(sql.sum(name).alias(name) for name in ("partials", *_OPERATIONS)),
            ),
            REQUESTS,
        ),
        "loads": _ordered(
            rows.groupBy(_interval(), "space", "partition", "configurator").agg(
                sql.count("*").alias("partials"),
                sql.sum("operations").alias("operations"),
                sql.sum("work_us").alias("work_us"),
            ),
            LOADS,
        ),
        "latencies": _ordered(
            totals.unionByName(stages)
            .groupBy("interval_us", "stage", "partition", "configurator", _bucket())
            .agg(sql.count("*").alias("partials"), sql.sum("us").alias("sum_us")),
            LATENCIES,
        ),
    }


def _interval() -> "Column":
    begin = sql.floor(sql.col("received_us") / INTERVAL_US) * INTERVAL_US
    return begin.cast("long").alias("interval_us")


def _bucket() -> "Column":
    us = sql.greatest(sql.col("us"), sql.lit(1))
    return sql.ceil(sql.log2(us) * PER_OCTAVE).cast("int").alias("bucket")


def _ordered(found: "DataFrame", schema: StructType) -> "DataFrame":
    return found.select(*(sql.col(field.name).cast(field.dataType) for field in schema))
