"""What a job reads: how many rows of which time, and what is wrong with them."""

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace
from pyspark.sql import functions as sql

from spark.traces import SkippedFile, Source, Traces
from spark.work import SECOND

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FIRST_US = 1_577_836_800 * SECOND
"""The beginning of 2020, before any service: earlier times are of clocks that were wrong."""


def find_source(
    path: str, traces: Traces, rows: "DataFrame", count_requests: Callable[[], int]
) -> Source:
    """What a job reads: how much, of what time, and what is wrong with it.

    `rows` are those of `with_work`; `count_requests` is asked if there are any.
    """
    about = rows.agg(
        sql.count("*").alias("rows"),
        sql.count_if("backwards").alias("backwards"),
        sql.count_if(sql.col("slice_size").isNull()).alias("unsized"),
        sql.count_if(sql.col("received_us") < FIRST_US).alias("timeless"),
        sql.min("received_us").alias("begin"),
        sql.max(sql.greatest("done_us", "received_us")).alias("end"),
    ).first()
    assert about is not None  # an aggregation without groups has one row
    notices = []
    if about["unsized"]:
        notices.append(
            f"{about['unsized']:,} rows are of a release that did not record how large slices were:"
            " each counts as a slice of its own, so their work is too high."
        )
    if about["timeless"]:
        notices.append(
            f"{about['timeless']:,} rows are from before 2020, so a clock was wrong, and the time"
            " of the traces is too long: leave these rows out with --since."
        )
    return Source(
        path,
        round(time.time() * SECOND),
        about["begin"] or 0,
        about["end"] or 0,
        len(traces.files),
        about["rows"],
        count_requests() if about["rows"] else 0,
        traces.skipped,
        about["backwards"],
        tuple(notices),
    )


def count_requests(rows: "DataFrame") -> int:
    """The number of distinct requests in the rows."""
    return rows.select("request_id").distinct().count()


def with_notices(
    source: Source, notices: Sequence[str], skipped: Sequence[SkippedFile] = ()
) -> Source:
    """The source with further notices, and further files that could not be used."""
    return replace(
        source,
        skipped=(*source.skipped, *skipped),
        notices=(*source.notices, *notices),
    )
