"""How subscriptions and advertisements come and go."""

from typing import TYPE_CHECKING

from pyspark.sql import functions as sql

from spark.report.histograms import histograms
from spark.report.model import Churn
from spark.work import SECOND

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MOST_SPACES = 16
_KINDS = {"s": "subscription", "a": "advertisement"}  # the first letter of a record's id


def find_churn(requests: "DataFrame") -> tuple[Churn, ...]:
    """Begun, changed and ended records by space, and how long they lived."""
    begun = sql.col("kind").isin("subscribe", "advertise")
    ended = sql.col("kind").isin("unsubscribe", "unadvertise")
    lifetime = sql.max(_time_if(ended)) - sql.min(_time_if(begun))
    records = (
        requests.where(~sql.col("failed"))
        .groupBy("space", sql.substring("target_id", 1, 1).alias("letter"), "target_id")
        .agg(
            sql.max(begun).alias("begun"),
            sql.max(ended).alias("ended"),
            sql.count_if(sql.col("kind") == "update").alias("updated"),
            (lifetime / SECOND).alias("lifetime_s"),
        )
        .persist()
    )
    try:
        return _by_space(records)
    finally:
        records.unpersist()


def _time_if(condition: "Column") -> "Column":
    return sql.when(condition, sql.col("done_us"))


def _by_space(records: "DataFrame") -> tuple[Churn, ...]:
    counts = records.groupBy("space", "letter").agg(
        sql.count_if("begun").alias("begun"),
        sql.sum("updated").alias("updated"),
        sql.count_if("ended").alias("ended"),
    )
    groups = [row for row in counts.collect() if row["letter"] in _KINDS]
    groups.sort(key=lambda row: (-row["begun"] - row["updated"] - row["ended"], row["space"]))
    lived = records.where(sql.col("lifetime_s") >= 0)
    named = lived.withColumn("group", sql.concat("letter", "space"))
    lifetimes = histograms(named, "group", "lifetime_s")
    return tuple(
        Churn(
            row["space"],
            _KINDS[row["letter"]],
            row["begun"],
            row["updated"],
            row["ended"],
            lifetimes.get(row["letter"] + row["space"]),
        )
        for row in groups[: 2 * MOST_SPACES]
    )
