"""The work of requests: the time that it took to decide them, by row and by request.

Each row has the decision time of its whole slice, so a row's work is that time divided by the size
of the slice. A request that concerns several partitions has several rows: it is counted once, and
its work is added up. Pushing is waiting for switches, and no work.
"""

from typing import TYPE_CHECKING

from pyspark.sql import functions as sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SECOND = 1_000_000  # microseconds


def with_work(rows: "DataFrame") -> "DataFrame":
    """The rows with `work_us`, `operations`, and `backwards`: it ended before it began.

    Rows of an earlier release do not say how large their slice was; they count as slices of one.
    """
    size = sql.greatest(sql.coalesce("slice_size", sql.lit(1)), sql.lit(1))
    return rows.withColumns(
        {
            "work_us": sql.greatest(sql.col("decided_us"), sql.lit(0)) / size,
            "operations": sql.col("adds") + sql.col("modifies") + sql.col("deletes"),
            "backwards": sql.col("done_us") < sql.col("received_us"),
        }
    )


_IDENTITY = ("request_id", "kind", "space", "host", "target_id")
"""The texts in which all rows of a request agree."""


def requests_of(rows: "DataFrame") -> "DataFrame":
    """One row per request. `total_us` is null if a clock was set back in between.

    The requests of a record are in one of Spark's partitions: sums by `target_id` move no data.
    """
    total = sql.max("done_us") - sql.min("received_us")
    # Texts are part of the key, and the rows of a request are together before they are grouped.
    # Spark then hashes the groups. An aggregate of a text, or a set of texts, would have it sort
    # all rows; and `count_distinct` would have it move them twice.
    return (
        rows.repartition("target_id")
        .groupBy(*_IDENTITY)
        .agg(
            sql.min("received_us").alias("received_us"),
            sql.max("done_us").alias("done_us"),
            sql.when(total >= 0, total).alias("total_us"),
            sql.sum("work_us").alias("work_us"),
            sql.count_distinct("partition").alias("partials"),
            sql.sum("adds").alias("adds"),
            sql.sum("modifies").alias("modifies"),
            sql.sum("deletes").alias("deletes"),
            sql.sum("operations").alias("operations"),
            sql.max(sql.col("outcome") != "done").alias("failed"),
        )
    )
