"""How subscriptions and advertisements come and go."""

from typing import TYPE_CHECKING

from pyspark.sql import functions as sql

from spark.report.histograms import histogram
from spark.report.model import Churn
from spark.work import SECOND

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MOST_SPACES = 16
_BEGIN = {"subscription": "subscribe", "advertisement": "advertise"}
_END = {"subscription": "unsubscribe", "advertisement": "unadvertise"}


def find_churn(requests: "DataFrame") -> tuple[Churn, ...]:
    """Begun, changed and ended records by space, and how long they lived."""
    done = requests.where(~sql.col("failed"))
    found = []
    for kind, begin in _BEGIN.items():
        begun = sql.col("kind") == begin
        ended = sql.col("kind") == _END[kind]
        # Whether an update changes a subscription or an advertisement is not in the traces.
        concerned = done.where(begun | ended | (sql.col("kind") == "update"))
        records = concerned.groupBy("space", "target_id").agg(
            sql.max(begun).alias("begun"),
            sql.max(ended).alias("ended"),
            sql.count_if(sql.col("kind") == "update").alias("updated"),
            (
                sql.max(sql.when(ended, sql.col("done_us")))
                - sql.min(sql.when(begun, sql.col("done_us")))
            ).alias("lifetime_us"),
        )
        records = records.where("begun or ended").persist()
        try:
            found += _by_space(records, kind)
        finally:
            records.unpersist()
    return tuple(found)


def _by_space(records: "DataFrame", kind: str) -> list[Churn]:
    counts = records.groupBy("space").agg(
        sql.count_if("begun").alias("begun"),
        sql.sum("updated").alias("updated"),
        sql.count_if("ended").alias("ended"),
    )
    spaces = sorted(counts.collect(), key=lambda row: (-row["begun"] - row["ended"], row["space"]))
    found = []
    for row in spaces[:MOST_SPACES]:
        lived = records.where((sql.col("space") == row["space"]) & (sql.col("lifetime_us") >= 0))
        lifetimes = lived.select((sql.col("lifetime_us") / SECOND).alias("lifetime_s"))
        spread = histogram(lifetimes, "lifetime_s")
        found.append(Churn(row["space"], kind, row["begun"], row["updated"], row["ended"], spread))
    return found
