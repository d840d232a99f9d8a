"""How subscriptions and advertisements come and go."""

from typing import TYPE_CHECKING

from pyspark.sql import functions as sql

from spark.report.histograms import histogram_of, read_histogram
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
    lifetime = (sql.max(_time_if(ended)) - sql.min(_time_if(begun))) / SECOND
    records = (
        requests.where(~sql.col("failed"))
        .groupBy("space", sql.substring("target_id", 1, 1).alias("letter"), "target_id")
        .agg(
            sql.max(begun).alias("begun"),
            sql.max(ended).alias("ended"),
            sql.count_if(sql.col("kind") == "update").alias("updated"),
            sql.when(lifetime >= 0, lifetime).alias("lifetime_s"),  # not if a clock was set back
        )
    )
    found = records.groupBy("space", "letter").agg(
        sql.count_if("begun").alias("begun"),
        sql.sum("updated").alias("updated"),
        sql.count_if("ended").alias("ended"),
        histogram_of(sql.col("lifetime_s")).alias("lifetimes"),
    )
    groups = [row for row in found.collect() if row["letter"] in _KINDS]
    groups.sort(key=lambda row: (-row["begun"] - row["updated"] - row["ended"], row["space"]))
    return tuple(
        Churn(
            row["space"],
            _KINDS[row["letter"]],
            row["begun"],
            row["updated"],
            row["ended"],
            read_histogram(row["lifetimes"]),
        )
        for row in groups[: 2 * MOST_SPACES]
    )


def _time_if(condition: "Column") -> "Column":
    return sql.when(condition, sql.col("done_us"))
