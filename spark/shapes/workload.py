"""The filters of subscriptions, and the events that were sampled, with Spark's own operations.

What reaches the driver is bounded: totals of each space, and a sample of its filters and events.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from msgspec import Struct
from pyspark.sql import functions as sql

from dzflow.errors import BadInput
from dzflow.filters import STORED_WORK, Filter, parse_filter
from dzflow.index import Sampled
from dzflow.intervals import Key
from dzflow.space import Space
from spark.sampling import SampledRow, priority_sample

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MOST_FILTERS = 5_000  # of one space
MOST_EVENTS = 5_000

_BEGIN, _END = ("subscribe", "update"), "unsubscribe"
_UNUSABLE = (BadInput, ArithmeticError, LookupError, RecursionError, TypeError, ValueError)
_Item = TypeVar("_Item")


class FilterTotals(Struct, frozen=True):
    """How many subscriptions a space has, and how many distinct filters these have."""

    filters: int
    subscriptions: int
    active_filters: int
    active: int

    @property
    def by_active(self) -> bool:
        """Whether only active subscriptions count: they do unless there are none."""
        return self.active > 0

    @property
    def counted(self) -> int:
        """How many subscriptions count."""
        return self.active if self.by_active else self.subscriptions


class Readable(NamedTuple):
    """The usable members of a sample, and how many are not usable."""

    filters: list[Sampled[Filter]]
    damaged: int


class ReadableEvents(NamedTuple):
    """The same of events, as `Space.keys` encodes them."""

    events: list[Sampled[tuple[Key, ...]]]
    damaged: int


def filters_of(rows: "DataFrame") -> "DataFrame":
    """The distinct filters of each space: how many subscriptions have them, and active ones.

    A subscription has the filter of its last request that did not fail. It is active unless that
    request ended it.
    """
    own = rows.where(sql.col("target_id").startswith("s") & sql.col("kind").isin([*_BEGIN, _END]))
    requests = own.groupBy("request_id").agg(
        sql.max("target_id").alias("target_id"),
        sql.max("space").alias("space"),
        sql.max("kind").alias("kind"),
        sql.max("filter").alias("filter"),
        sql.max(sql.col("outcome") != "done").alias("failed"),
    )
    # The number after the dot counts the requests of a subscription; clocks may differ.
    order = sql.struct(sql.length("request_id"), "request_id")
    last = sql.max_by(sql.struct("space", "kind", "filter"), order).alias("last")
    ended = requests.where(~sql.col("failed")).groupBy("target_id").agg(last)
    is_active = sql.col("last.kind") != _END
    return ended.groupBy(
        sql.col("last.space").alias("space"), sql.col("last.filter").alias("filter")
    ).agg(sql.count("*").alias("subscriptions"), sql.count_if(is_active).alias("active"))


def filter_totals(filters: "DataFrame") -> dict[str, FilterTotals]:
    """The totals of each space."""
    found = filters.groupBy("space").agg(
        sql.count("*").alias("filters"),
        sql.sum("subscriptions").alias("subscriptions"),
        sql.count_if(sql.col("active") > 0).alias("active_filters"),
        sql.sum("active").alias("active"),
    )
    return {
        row["space"]: FilterTotals(
            row["filters"], row["subscriptions"], row["active_filters"], row["active"]
        )
        for row in found.collect()
    }


def sample_filters(
    filters: "DataFrame", space: Space, totals: FilterTotals, most: int = MOST_FILTERS
) -> Readable:
    """The filters of a space, or a sample; each with the number of subscriptions it stands for."""
    weight = "active" if totals.by_active else "subscriptions"
    own = filters.where((sql.col("space") == space.name) & (sql.col(weight) > 0))
    sample = priority_sample(own, weight, ["filter"], totals.counted, most)

    def read(text: str) -> Filter:
        return parse_filter(space, json.loads(text), STORED_WORK)

    found = _read(sample, "filter", read)
    return Readable(found, len(sample) - len(found))


def events_of(rows: "DataFrame") -> "DataFrame":
    """The distinct events of each space, and how many published ones they stand for."""
    usable = (sql.col("weight") > 0) & (sql.col("weight") < float("inf"))
    weight = sql.when(usable, sql.col("weight")).otherwise(1.0)  # NaN is greater than all numbers
    # Sums of floats depend on their order, which is not always the same.
    return rows.groupBy("space", "values").agg(sql.round(sql.sum(weight), 6).alias("weight"))


def event_totals(events: "DataFrame") -> Mapping[str, float]:
    """How many events of each space were published."""
    found = events.groupBy("space").agg(sql.round(sql.sum("weight"), 3).alias("weight"))
    return {row["space"]: row["weight"] for row in found.collect()}


def sample_events(
    events: "DataFrame", space: Space, total: float, most: int = MOST_EVENTS
) -> ReadableEvents:
    """The events of a space, or a sample; each with the published ones that it stands for."""
    own = events.where((sql.col("space") == space.name) & (sql.col("weight") > 0))
    sample = priority_sample(own, "weight", ["values"], total, most)

    def read(text: str) -> tuple[Key, ...]:
        return space.keys(json.loads(text))

    found = _read(sample, "values", read)
    return ReadableEvents(found, len(sample) - len(found))


def _read(
    sample: Iterable[SampledRow], column: str, read: Callable[[str], _Item]
) -> list[Sampled[_Item]]:
    """What can be read; the rest was written by something else, or the schema has changed."""
    found = []
    for row, weight in sample:
        try:
            found.append(Sampled(read(row[column]), weight))
        except _UNUSABLE:
            continue
    return found
