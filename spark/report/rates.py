"""Requests over time, by kind and by host."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as sql

from spark.report.histograms import percentiles
from spark.report.model import Bucket, HostRow, KindRow, Skew, Timeline
from spark.report.skew import skew_of
from spark.traces import Source
from spark.work import SECOND

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

MOST_BUCKETS = 240
MOST_HOSTS = 20
MOST_KINDS = 20  # there are five, and those of newer releases
_MEANS = ("partials", "adds", "modifies", "deletes")
_SUMS = (*_MEANS, "work_us")
_LENGTHS = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400)


def bucket_length(seconds: float) -> int:
    """The length of the timeline's buckets in seconds, for a time of this length."""
    for length in _LENGTHS:
        if seconds <= length * MOST_BUCKETS:
            return length
    days = -(-int(seconds) // (MOST_BUCKETS * _LENGTHS[-1]))
    return days * _LENGTHS[-1]


def count_requests(requests: "DataFrame") -> "list[Row]":
    """Counts and sums of the requests by kind and host.

    How many groups there are depends on the network, not on the length of the traces.
    """
    return (
        requests.groupBy("kind", "host")
        .agg(
            sql.count("*").alias("requests"),
            sql.count_if("failed").alias("failed"),
            *(sql.sum(name).alias(name) for name in _SUMS),
        )
        .collect()
    )


def find_rates(
    requests: "DataFrame", groups: "Iterable[Row]", source: Source
) -> tuple[tuple[KindRow, ...], Timeline]:
    """Requests by kind, the most frequent first; and requests and latency over time."""
    sums = _sums(groups, "kind")
    kinds = sorted(sums, key=lambda kind: (-sums[kind]["requests"], kind))[:MOST_KINDS]
    timeline = _find_timeline(requests, source, sorted(kinds))
    # Shorter than a bucket, the traces have no mean rate but that of the bucket.
    seconds = max((source.end_us - source.begin_us) / SECOND, timeline.bucket_s)
    rows = []
    for kind in kinds:
        total = sums[kind]
        requests_of_kind = int(total["requests"])
        busiest = max(bucket.requests.get(kind, 0) for bucket in timeline.buckets)
        rows.append(
            KindRow(
                kind,
                requests_of_kind,
                int(total["failed"]),
                requests_of_kind / seconds,
                busiest / timeline.bucket_s,
                *(total[name] / requests_of_kind for name in _MEANS),
            )
        )
    return tuple(rows), timeline


def _sums(groups: "Iterable[Row]", name: str) -> dict[str, Counter[str]]:
    """The sums of all groups that have the same kind, or the same host."""
    found: dict[str, Counter[str]] = {}
    for row in groups:
        sums = found.setdefault(row[name], Counter())
        for column in ("requests", "failed", *_SUMS):
            sums[column] += row[column] or 0
    return found


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


def find_hosts(groups: "Iterable[Row]") -> tuple[tuple[HostRow, ...], Skew | None]:
    """The hosts with most requests, all others as one, and how unevenly requests are spread."""
    sums = _sums(groups, "host")
    hosts = sorted(sums, key=lambda host: (-sums[host]["requests"], host))
    total = sum(each["requests"] for each in sums.values())
    rows = [_host_row(host, sums[host], total) for host in hosts[:MOST_HOSTS]]
    if others := hosts[MOST_HOSTS:]:
        rest: Counter[str] = Counter()
        for host in others:
            rest.update(sums[host])
        rows.append(_host_row("", rest, total))
    return tuple(rows), skew_of("hosts", (each["requests"] for each in sums.values()))


def _host_row(name: str, sums: Counter[str], total: int) -> HostRow:
    return HostRow(
        name,
        sums["requests"],
        sums["requests"] / total,
        sums["failed"],
        sums["work_us"] / 1_000,
    )
