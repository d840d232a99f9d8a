"""What a job reads: how many rows of which time, and the spaces that they speak of."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql import functions as sql

from configurators.state.trace_spaces import BadTraceSpaces, TraceSpace, decode_footer
from dzflow.errors import BadInput
from spark.traces import Source, Traces
from spark.work import SECOND

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class UnknownTraceSpace(BadInput):
    """A space that the traces do not describe."""


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
        sql.min("received_us").alias("begin"),
        sql.max(sql.greatest("done_us", "received_us")).alias("end"),
    ).first()
    assert about is not None  # an aggregation without groups has one row
    unsized = (
        f"{about['unsized']:,} rows are of a release that did not record how large slices were:"
        " each counts as a slice of its own, so their work is too high."
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
        (unsized,) if about["unsized"] else (),
    )


def described_spaces(traces: Traces, wanted: str = "") -> tuple[dict[str, TraceSpace], str]:
    """The spaces that the newest file describes; if none can be read, the reason as a text.

    If one is wanted, only this one; UnknownTraceSpace if it is not described.
    """
    if not traces.footer:
        return {}, "no file describes the spaces; files of earlier releases do not"
    footer = {key.encode(): value.encode() for key, value in traces.footer.items()}
    try:
        found = decode_footer(footer)
    except BadTraceSpaces as error:
        return {}, str(error)
    if wanted and wanted not in found:
        names = ", ".join(sorted(found)) or "none"
        raise UnknownTraceSpace(f"the traces do not describe a space {wanted!r}; there is {names}")
    return {wanted: found[wanted]} if wanted else found, ""
