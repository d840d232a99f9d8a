"""A report from the tables of a history: totals, timeline, latency, partitions, configurators.

What reaches the driver is bounded by the numbers of partitions, configurators and buckets.
"""

import time
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as sql

from spark.history.ingest import NoHistory, has_history, read_table
from spark.history.tables import INTERVAL_US, STAGES, TOTAL, bucket_end_ms
from spark.report.histograms import PERCENTILES
from spark.report.loads import MOST_LOADS
from spark.report.model import Bucket, KindRow, LoadRow, Report, Skew, StageRow, Timeline
from spark.report.rates import bucket_length
from spark.report.skew import skew_of
from spark.schema import REQUEST_TRACES
from spark.storage import Storage
from spark.traces import SkippedFile, Source
from spark.work import SECOND

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

MOST_SKIPPED = 1_000  # files that a report names
_NOTICE = (
    "This report is made from a history: it has no hosts, slices, churn, hot regions and single"
    " requests; percentiles are up to a tenth too high, and times are whole intervals of five"
    " minutes."
)
_Counts = dict[int, int]  # by bucket


def make_report(
    spark: "SparkSession", state: str, since_us: int | None = None, until_us: int | None = None
) -> Report:
    """The report on the intervals of a time; NoHistory if nothing was ever taken in."""
    if not has_history(Storage(spark, REQUEST_TRACES), state):
        raise NoHistory(f"{state} has no history: make one with `dzflow trace ingest`")
    tables = _Tables(spark, state, since_us, until_us)
    requests = tables.read("requests").persist()
    latencies = tables.read("latencies").persist()
    try:
        source = _source(state, tables, requests)
        if not source.rows:
            return Report(source)
        timeline = _timeline(requests, latencies, source)
        partitions, partition_skew = _loads(tables, latencies, ("partition", "space"))
        configurators, configurator_skew = _loads(tables, latencies, ("configurator",))
        return Report(
            source,
            _kinds(requests, timeline, source),
            timeline,
            latency=_latency(latencies),
            partitions=partitions,
            configurators=configurators,
            skew=tuple(skew for skew in (partition_skew, configurator_skew) if skew),
        )
    finally:
        requests.unpersist()
        latencies.unpersist()


class _Tables:
    """The tables, without what a run that did not end has left."""

    def __init__(
        self, spark: "SparkSession", state: str, since_us: int | None, until_us: int | None
    ) -> None:
        self._spark = spark
        self._state = state
        self._times = since_us, until_us
        self.files = read_table(spark, state, "files")

    def read(self, table: str) -> "DataFrame":
        """The rows of a table in the time that was chosen."""
        since_us, until_us = self._times
        rows = read_table(self._spark, self._state, table)
        rows = rows.join(self.files.select("batch").distinct(), "batch", "left_semi")
        if since_us is not None:
            rows = rows.where(sql.col("interval_us") + INTERVAL_US > since_us)
        if until_us is not None:
            rows = rows.where(sql.col("interval_us") < until_us)
        return rows


def _source(state: str, tables: _Tables, requests: "DataFrame") -> Source:
    about = requests.agg(
        sql.min("interval_us").alias("begin"),
        sql.max("interval_us").alias("end"),
        sql.sum("requests").alias("requests"),
    ).first()
    partials = tables.read("loads").agg(sql.sum("partials").alias("rows")).first()
    assert about is not None  # an aggregation without groups has one row
    assert partials is not None
    is_bad = sql.col("why") != ""
    skipped = tables.files.where(is_bad).orderBy(sql.desc("name")).limit(MOST_SKIPPED).collect()
    return Source(
        state,
        round(time.time() * SECOND),
        about["begin"] or 0,
        (about["end"] or 0) + (INTERVAL_US if about["end"] is not None else 0),
        tables.files.where(~is_bad).count(),
        partials["rows"] or 0,
        about["requests"] or 0,
        tuple(sorted(SkippedFile(row["name"], row["why"]) for row in skipped)),
        notices=(_NOTICE,) if about["requests"] else (),
    )


def _timeline(requests: "DataFrame", latencies: "DataFrame", source: Source) -> Timeline:
    length = max(bucket_length((source.end_us - source.begin_us) / SECOND), INTERVAL_US // SECOND)
    begin = _begin(length)
    kinds = requests.groupBy(begin, "kind").agg(
        sql.sum("requests").alias("requests"), sql.sum("failed").alias("failed")
    )
    counts: dict[int, dict[str, int]] = {}
    failed: _Counts = {}
    for row in kinds.collect():
        at = row["begin_us"]
        counts.setdefault(at, {})[row["kind"]] = row["requests"]
        failed[at] = failed.get(at, 0) + row["failed"]
    durations: dict[int, _Counts] = {}
    totals = latencies.where(sql.col("stage") == TOTAL).groupBy(begin, "bucket")
    for row in totals.agg(sql.sum("partials").alias("number")).collect():
        durations.setdefault(row["begin_us"], {})[row["bucket"]] = row["number"]
    buckets = []
    for at in sorted(counts):
        p50, _, p99 = percentiles(durations.get(at, {}))
        buckets.append(Bucket(at, dict(sorted(counts[at].items())), failed[at], p50, p99))
    return Timeline(float(length), tuple(buckets))


def _begin(length: int) -> "Column":
    """The beginning of a timeline's bucket, which is `length` seconds long."""
    begin = sql.floor(sql.col("interval_us") / (length * SECOND)) * (length * SECOND)
    return begin.cast("long").alias("begin_us")


def _kinds(requests: "DataFrame", timeline: Timeline, source: Source) -> tuple[KindRow, ...]:
    names = ("requests", "failed", "partials", "adds", "modifies", "deletes")
    found = requests.groupBy("kind").agg(*(sql.sum(name).alias(name) for name in names))
    seconds = (source.end_us - source.begin_us) / SECOND
    rows = []
    for row in found.collect():
        number = row["requests"]
        busiest = max(bucket.requests.get(row["kind"], 0) for bucket in timeline.buckets)
        each = (row[name] / number for name in names[2:])
        rows.append(
            KindRow(
                row["kind"],
                number,
                row["failed"],
                number / seconds,
                busiest / timeline.bucket_s,
                *each,
            )
        )
    return tuple(sorted(rows, key=lambda row: (-row.requests, row.kind)))


def _latency(latencies: "DataFrame") -> tuple[StageRow, ...]:
    found = latencies.groupBy("stage", "bucket").agg(
        sql.sum("partials").alias("number"), sql.sum("sum_us").alias("sum_us")
    )
    counts: dict[str, _Counts] = {}
    sums: dict[str, int] = {}
    for row in found.collect():
        counts.setdefault(row["stage"], {})[row["bucket"]] = row["number"]
        sums[row["stage"]] = sums.get(row["stage"], 0) + row["sum_us"]
    rows = []
    for stage in (TOTAL, *STAGES):
        if by_bucket := counts.get(stage):
            mean = sums[stage] / sum(by_bucket.values()) / 1_000
            rows.append(
                StageRow(stage, mean, *percentiles(by_bucket), bucket_end_ms(max(by_bucket)))
            )
    return tuple(rows)


def _loads(
    tables: _Tables, latencies: "DataFrame", names: tuple[str, ...]
) -> tuple[tuple[LoadRow, ...], Skew | None]:
    """The work of partitions or configurators, the busiest first."""
    key = names[0]
    sums = tables.read("loads").groupBy(*names)
    loads = sums.agg(
        sql.sum("partials").alias("partials"),
        (sql.sum("work_us") / 1_000).alias("work_ms"),
        sql.sum("operations").alias("operations"),
    ).collect()
    loads.sort(key=lambda row: (-row["work_ms"], row[key]))
    total = sum(row["work_ms"] for row in loads) or 1.0
    shown = loads[:MOST_LOADS]
    stages = _stages(latencies, key, [row[key] for row in shown])
    rows = tuple(_load_row(row, names, total, stages.get(row[key], {})) for row in shown)
    return rows, skew_of(f"{key}s", (row["work_ms"] for row in loads))


def _stages(
    latencies: "DataFrame", key: str, names: Collection[str]
) -> dict[str, dict[str, _Counts]]:
    """Counts by name, stage and bucket."""
    chosen = latencies.where(sql.col(key).isin(list(names)) & (sql.col("stage") != TOTAL))
    found: dict[str, dict[str, _Counts]] = {}
    grouped = chosen.groupBy(key, "stage", "bucket").agg(sql.sum("partials").alias("number"))
    for row in grouped.collect():
        by_stage = found.setdefault(row[key], {})
        by_stage.setdefault(row["stage"], {})[row["bucket"]] = row["number"]
    return found


def _load_row(
    row: "Row", names: tuple[str, ...], total: float, stages: Mapping[str, _Counts]
) -> LoadRow:
    (q50, _, q99), (d50, _, d99), (p50, _, p99) = (
        percentiles(stages.get(stage, {})) for stage in STAGES
    )
    return LoadRow(
        row[names[0]],
        row["space"] if "space" in names else "",
        row["partials"],
        row["work_ms"],
        row["work_ms"] / total,
        *(q50, q99, d50, d99, p50, p99),
        row["operations"],
    )


def percentiles(counts: Mapping[int, int]) -> tuple[float, float, float]:
    """The median, the 90th and the 99th percentile in milliseconds, from counts by bucket."""
    total = sum(counts.values())
    found = [0.0] * len(PERCENTILES)
    seen = 0
    for bucket, count in sorted(counts.items()):
        for place, share in enumerate(PERCENTILES):
            if seen < share * total <= seen + count:
                found[place] = bucket_end_ms(bucket)
        seen += count
    return found[0], found[1], found[2]
