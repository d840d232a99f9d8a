"""The work of requests: the processor time of deciding, by row and by request.

Each row has the decision time of its whole slice, so a row's work is that time divided by the size
of the slice. A request that concerns several partitions has several rows: it is counted once, and
its work is added up. Pushing is waiting for switches, and no work.
"""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SECOND = 1_000_000  # microseconds


def with_work(rows: "DataFrame") -> "DataFrame":
    """The rows with `work_us`, `operations`, and `backwards`: it ended before it began.

    Rows of an earlier release do not say how large their slice was; they count as slices of one.
    """
    size = F.greatest(F.coalesce("slice_size", F.lit(1)), F.lit(1))
    return rows.withColumns(
        {
            "work_us": F.greatest(F.col("decided_us"), F.lit(0)) / size,
            "operations": F.col("adds") + F.col("modifies") + F.col("deletes"),
            "backwards": F.col("done_us") < F.col("received_us"),
        }
    )


def requests_of(rows: "DataFrame") -> "DataFrame":
    """One row per request. `total_us` is null if a clock was set back meanwhile."""
    total = F.max("done_us") - F.min("received_us")
    return rows.groupBy("request_id").agg(
        F.any_value("kind").alias("kind"),
        F.any_value("space").alias("space"),
        F.any_value("host").alias("host"),
        F.any_value("target_id").alias("target_id"),
        F.min("received_us").alias("received_us"),
        F.max("done_us").alias("done_us"),
        F.when(total >= 0, total).alias("total_us"),
        F.sum("work_us").alias("work_us"),
        F.count("*").alias("partials"),
        F.sum(F.greatest(F.size("regions"), F.lit(0))).alias("regions"),
        F.sum("adds").alias("adds"),
        F.sum("modifies").alias("modifies"),
        F.sum("deletes").alias("deletes"),
        F.sum("operations").alias("operations"),
        F.max(F.col("outcome") != "done").alias("failed"),
    )
