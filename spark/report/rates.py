"""Requests over time, by kind and by host."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as sql

from spark.report.histograms import percentiles
from spark.report.model import Bucket, HostRow, KindRow, Skew, Timeline
from spark.report.skew import skew_of
from spark.traces import Source
from spark.work import SECOND

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MOST_BUCKETS = 240
MOST_HOSTS = 20
MOST_KINDS = 20  # there are five, and those of newer releases
_LENGTHS = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400)


def bucket_length(seconds: float) -> int:
    """The length of the timeline's buckets in seconds, for a time of this length."""
    for length in _LENGTHS:
        if seconds <= length * MOST_BUCKETS:
            return length
    days = -(-int(seconds) // (MOST_BUCKETS * _LENGTHS[-1]))
    return days * _LENGTHS[-1]


def find_rates(requests: "DataFrame", source: Source) -> tuple[tuple[KindRow, ...], Timeline]:
    """Requests by kind, the most frequent first; and requests and latency over time."""
    found = requests.groupBy("kind").agg(
        sql.count("*").alias("requests"),
        sql.count_if("failed").alias("failed"),
        sql.avg("partials").alias("partials"),
        sql.avg("adds").alias("adds"),
        sql.avg("modifies").alias("modifies"),
        sql.avg("deletes").alias("deletes"),
    )
    kinds = sorted(found.collect(), key=lambda row: (-row["requests"], row["kind"]))[:MOST_KINDS]
    timeline = _find_timeline(requests, source, sorted(row["kind"] for row in kinds))
    # Shorter than a bucket, the traces have no mean rate but that of the bucket.
    seconds = max((source.end_us - source.begin_us) / SECOND, timeline.bucket_s)
    rows = []
    for row in kinds:
        busiest = max(bucket.requests.get(row["kind"], 0) for bucket in timeline.buckets)
        rows.append(
            KindRow(
                row["kind"],
                row["requests"],
                row["failed"],
                row["requests"] / seconds,
                busiest / timeline.bucket_s,
                row["partials"],
                row["adds"],
                row["modifies"],
                row["deletes"],
            )
        )
    return tuple(rows), timeline


def _find_timeline(requests: "DataFrame", source: Source, kinds: Sequence[str]) -> Timeline:
    """Requests of each kind and latency in buckets of equal length."""
    length = bucket_length((source.end_us - source.begin_us) / SECOND)
    begin = sql.floor(sql.col("received_us") / (length * SECOND)) * (length * SECOND)
    counts = (sql.count_if(sql.col("kind") == kind) for kind in kinds)
    found = requests.groupBy(begin.cast("long").alias("begin_us")).agg(
        sql.array(*counts).alias("requests"),
        sql.count_if("failed").alias("failed"),
        percentiles(sql.col("total_us")).alias("percentiles"),
    )
    buckets = []
    for row in sorted(found.collect(), key=lambda row: row["begin_us"]):
        p50, _, p99 = row["percentiles"] or (0, 0, 0)
        by_kind = {kind: n for kind, n in zip(kinds, row["requests"], strict=True) if n}
        buckets.append(Bucket(row["begin_us"], by_kind, row["failed"], p50 / 1_000, p99 / 1_000))
    return Timeline(float(length), tuple(buckets))


def find_hosts(requests: "DataFrame") -> tuple[tuple[HostRow, ...], Skew | None]:
    """The hosts with most requests, all others as one, and how unevenly requests are spread.

    How many hosts there are depends on the network, not on the length of the traces.
    """
    found = requests.groupBy("host").agg(
        sql.count("*").alias("requests"),
        sql.count_if("failed").alias("failed"),
        (sql.sum("work_us") / 1_000).alias("work_ms"),
    )
    hosts = sorted(found.collect(), key=lambda row: (-row["requests"], row["host"]))
    total = sum(row["requests"] for row in hosts)
    rows = [
        HostRow(
            row["host"], row["requests"], row["requests"] / total, row["failed"], row["work_ms"]
        )
        for row in hosts[:MOST_HOSTS]
    ]
    if others := hosts[MOST_HOSTS:]:
        count = sum(row["requests"] for row in others)
        failed = sum(row["failed"] for row in others)
        work = sum(row["work_ms"] for row in others)
        rows.append(HostRow("", count, count / total, failed, work))
    return tuple(rows), skew_of("hosts", (row["requests"] for row in hosts))
