"""The job `report`: from rows of traces to a report, with Spark's own operations only."""

import time
from typing import TYPE_CHECKING

from msgspec.structs import replace
from pyspark.sql import functions as sql

from configurators.state.trace_spaces import BadTraceSpaces, TraceSpace, decode_footer
from spark.reading import read_rows, vanished
from spark.report.churn import find_churn
from spark.report.histograms import histogram
from spark.report.hot import find_hot
from spark.report.loads import find_configurators, find_latency, find_partitions, find_slices
from spark.report.model import ExpensiveRequest, Report, Source
from spark.report.rates import find_hosts, find_kinds, find_timeline
from spark.traces import Traces
from spark.work import SECOND, requests_of, with_work

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_EXPENSIVE = 20


def make_report(
    spark: "SparkSession",
    path: str,
    traces: Traces,
    since_us: int | None = None,
    until_us: int | None = None,
) -> Report:
    """The report on the requests that arrived in a time."""
    rows = with_work(read_rows(spark, traces, since_us, until_us))
    requests = requests_of(rows).persist()
    try:
        source = _source(path, traces, rows, requests)
        if not source.rows:
            return Report(source)
        timeline = find_timeline(requests, source)
        hosts, host_skew = find_hosts(requests)
        partitions, partition_skew = find_partitions(rows)
        configurators, configurator_skew = find_configurators(rows)
        spaces, notices = _spaces(traces)
        hot, heat, more = find_hot(rows, spaces)
        report = Report(
            source,
            find_kinds(requests, timeline, source),
            timeline,
            hosts,
            find_latency(requests, rows),
            partitions,
            configurators,
            find_slices(rows),
            histogram(requests, "operations"),
            find_churn(requests),
            hot,
            heat,
            _expensive(requests, rows),
            tuple(skew for skew in (partition_skew, configurator_skew, host_skew) if skew),
        )
    finally:
        requests.unpersist()
    gone = vanished(spark, traces)
    skipped = (*source.skipped, *gone)
    return replace(report, source=replace(source, skipped=skipped, notices=(*notices, *more)))


def _source(path: str, traces: Traces, rows: "DataFrame", requests: "DataFrame") -> Source:
    about = rows.agg(
        sql.count("*").alias("rows"),
        sql.count_if("backwards").alias("backwards"),
        sql.min("received_us").alias("begin"),
        sql.max(sql.greatest("done_us", "received_us")).alias("end"),
    ).first()
    assert about is not None  # an aggregation without groups has one row
    return Source(
        path,
        round(time.time() * SECOND),
        about["begin"] or 0,
        about["end"] or 0,
        len(traces.files),
        about["rows"],
        requests.count() if about["rows"] else 0,
        traces.skipped,
        about["backwards"],
    )


def _spaces(traces: Traces) -> tuple[dict[str, TraceSpace], list[str]]:
    """The spaces that the newest file describes; if it does not, why."""
    footer = {key.encode(): value.encode() for key, value in traces.newest_footer.items()}
    try:
        return decode_footer(footer), []
    except BadTraceSpaces as error:
        return {}, [f"Hot regions cannot be put into words: {error}."]


def _expensive(requests: "DataFrame", rows: "DataFrame") -> tuple[ExpensiveRequest, ...]:
    """The requests that took most work. Their filters are looked up for these few only."""
    top = requests.orderBy(sql.desc("work_us"), "request_id").limit(MOST_EXPENSIVE).collect()
    wanted = rows.where(sql.col("request_id").isin([row["request_id"] for row in top]))
    filters = wanted.groupBy("request_id").agg(sql.any_value("filter").alias("filter")).collect()
    filter_of = {row["request_id"]: row["filter"] for row in filters}
    return tuple(
        ExpensiveRequest(
            row["request_id"],
            row["kind"],
            row["space"],
            row["host"],
            row["received_us"],
            (row["total_us"] or 0) / 1_000,
            row["work_us"] / 1_000,
            row["partials"],
            row["regions"],
            row["operations"],
            filter_of.get(row["request_id"]) or "",
        )
        for row in top
    )
