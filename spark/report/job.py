"""The job `report`: from rows of traces to a report, with Spark's own operations only."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace
from pyspark.sql import functions as sql

from configurators.state.trace_spaces import BadTraceSpaces, TraceSpace, decode_footer
from configurators.store.keys import PartitionName
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
        spaces, notices = _spaces(traces)
        partitions, partition_skew = find_partitions(rows, _partition_names(spaces))
        configurators, configurator_skew = find_configurators(rows)
        hot, heat, more = find_hot(rows, spaces)
        report = Report(
            source=source,
            kinds=find_kinds(requests, timeline, source),
            timeline=timeline,
            hosts=hosts,
            latency=find_latency(requests, rows),
            partitions=partitions,
            configurators=configurators,
            slices=find_slices(rows),
            operations=histogram(requests, "operations"),
            churn=find_churn(requests),
            hot=hot,
            heat=heat,
            expensive=_expensive(requests, rows),
            skew=tuple(skew for skew in (partition_skew, configurator_skew, host_skew) if skew),
        )
    finally:
        requests.unpersist()
    gone = vanished(spark, traces)
    skipped = (*source.skipped, *gone)
    told = (*source.notices, *notices, *more)
    return replace(report, source=replace(source, skipped=skipped, notices=told))


def _source(path: str, traces: Traces, rows: "DataFrame", requests: "DataFrame") -> Source:
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
        requests.count() if about["rows"] else 0,
        traces.skipped,
        about["backwards"],
        (unsized,) if about["unsized"] else (),
    )


def _spaces(traces: Traces) -> tuple[dict[str, TraceSpace], list[str]]:
    """The spaces that the newest file describes; if it does not, why."""
    if not traces.footer:
        text = "no file describes the spaces; files of earlier releases do not"
        return {}, [f"Hot regions have no words: {text}."]
    footer = {key.encode(): value.encode() for key, value in traces.footer.items()}
    try:
        return decode_footer(footer), []
    except BadTraceSpaces as error:
        return {}, [f"Hot regions have no words: {error}."]


def _partition_names(spaces: Mapping[str, TraceSpace]) -> list[str]:
    """All partitions that the spaces have, also idle ones."""
    return [
        str(PartitionName(space.number, space.current, leaf))
        for space in spaces.values()
        for leaf in space.versions[space.current].map.leaves()
    ]


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
