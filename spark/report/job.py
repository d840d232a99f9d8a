"""The job `report`: from rows of traces to a report, with Spark's own operations only."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace
from pyspark.sql import functions as sql

from configurators.state.trace_spaces import TraceSpace
from configurators.store.keys import PartitionName
from spark.reading import read_rows, vanished
from spark.report.churn import find_churn
from spark.report.hot import find_hot
from spark.report.loads import find_loads, find_operations, find_slices, find_total
from spark.report.model import ExpensiveRequest, Report
from spark.report.rates import count_requests, find_hosts, find_rates
from spark.source import find_source, with_notices
from spark.spaces import described_spaces
from spark.traces import Traces
from spark.work import requests_of, with_work

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
        groups = count_requests(requests)  # the first to ask for the requests, which are kept then
        source = find_source(path, traces, rows, lambda: sum(row["requests"] for row in groups))
        if not source.rows:
            return Report(with_notices(source, (), vanished(spark, traces)))
        kinds, timeline = find_rates(requests, groups, source)
        hosts, host_skew = find_hosts(groups)
        spaces, unknown = described_spaces(traces)
        notices = [f"Hot regions have no words: {unknown}."] if unknown else []
        loads = find_loads(rows, _partition_names(spaces))
        hot, heat, more = find_hot(rows, spaces)
        report = Report(
            source=source,
            kinds=kinds,
            timeline=timeline,
            hosts=hosts,
            latency=(*find_total(requests), *loads.stages),
            partitions=loads.partitions,
            configurators=loads.configurators,
            slices=find_slices(rows),
            operations=find_operations(requests),
            churn=find_churn(requests),
            hot=hot,
            heat=heat,
            expensive=_expensive(requests, rows),
            skew=tuple(skew for skew in (*loads.skew, host_skew) if skew),
        )
    finally:
        requests.unpersist()
    gone = vanished(spark, traces)
    return replace(report, source=with_notices(source, (*notices, *more), gone))


def _partition_names(spaces: Mapping[str, TraceSpace]) -> list[str]:
    """All partitions that the spaces have, also idle ones."""
    return [
        str(PartitionName(space.number, space.current, leaf))
        for space in spaces.values()
        for leaf in space.versions[space.current].map.leaves()
    ]


def _expensive(requests: "DataFrame", rows: "DataFrame") -> tuple[ExpensiveRequest, ...]:
    """The requests that took most work. Filters and regions are looked up for these few only."""
    top = requests.orderBy(sql.desc("work_us"), "request_id").limit(MOST_EXPENSIVE).collect()
    wanted = rows.where(sql.col("request_id").isin([row["request_id"] for row in top]))
    more = wanted.groupBy("request_id").agg(
        sql.any_value("filter").alias("filter"),
        sql.sum(sql.greatest(sql.size("regions"), sql.lit(0))).alias("regions"),
    )
    found = {row["request_id"]: row for row in more.collect()}
    return tuple(
        ExpensiveRequest(
            row["request_id"],
            row["kind"],
            row["space"],
            row["host"],
            row["received_us"],
            None if row["total_us"] is None else row["total_us"] / 1_000,
            row["work_us"] / 1_000,
            row["partials"],
            found[row["request_id"]]["regions"],
            row["operations"],
            found[row["request_id"]]["filter"] or "",
        )
        for row in top
        if row["request_id"] in found  # not if its file has vanished
    )
