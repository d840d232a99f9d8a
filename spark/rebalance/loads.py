"""The load of the event space by region, with Spark's own operations.

Rows are grouped by filter first, so that each distinct filter is indexed once; this is the only
step in Python. What reaches the driver is bounded: totals, and a sample of each space's regions.
All functions take rows that were decided, with their work.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from pyspark.sql import functions as sql
from pyspark.sql.pandas.functions import arrow_udf

from spark.rebalance.prediction import RegionLoad, Timing
from spark.sampling import priority_sample
from spark.work import SECOND
from spark.workers.indexing import IndexSource, region_finder, unpack

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row


class SpaceTotals(Struct, frozen=True):
    """The sums of one space: of rows that can be used, and the work of those that cannot."""

    work_us: float
    pushed_us: float
    unknown_us: float
    operations: int
    by_configurator: Mapping[str, float]  # all work


class RegionTotals(Struct, frozen=True):
    """How much of a space is indexed; exact, however large the traces are."""

    filters: int
    regions: int
    damaged: int  # filters without regions
    damaged_us: float  # their work


def is_known(scopes: Mapping[str, str]) -> "Column":
    """Whether a row is of a space, and of the version of its index, that the traces describe.

    The name of a partition begins with the numbers of both; `scopes` has them for each space.
    """
    known = [f"{space}/{scope}" for space, scope in scopes.items()]
    return sql.concat_ws("/", "space", sql.substring_index("partition", "/", 1)).isin(known)


def find_totals(rows: "DataFrame", known: "Column") -> tuple[dict[str, SpaceTotals], str]:
    """The sums of each space, and the mode of the row that ended last.

    `known` says which rows can be used.
    """
    size = sql.greatest(sql.coalesce("slice_size", sql.lit(1)), sql.lit(1))
    # Groups with texts are hashed. To find the text of a maximum, Spark would sort all rows.
    found = rows.groupBy("space", "configurator", "mode", known.alias("known")).agg(
        sql.max("done_us").alias("done_us"),
        sql.sum("work_us").alias("work_us"),
        sql.sum(sql.greatest(sql.col("pushed_us"), sql.lit(0)) / size).alias("pushed_us"),
        sql.sum("operations").alias("operations"),
    )
    sums = found.collect()
    by_space: dict[str, list[Row]] = {}
    for row in sums:
        by_space.setdefault(row["space"], []).append(row)
    _, mode = max(((row["done_us"], row["mode"]) for row in sums), default=(0, ""))
    return {space: _space_totals(groups) for space, groups in by_space.items()}, mode


def _space_totals(groups: "Sequence[Row]") -> SpaceTotals:
    work: dict[str, float] = {}
    for row in groups:
        work[row["configurator"]] = work.get(row["configurator"], 0.0) + row["work_us"]
    known = [row for row in groups if row["known"]]
    return SpaceTotals(
        sum(row["work_us"] for row in known),
        sum(row["pushed_us"] for row in known),
        sum(row["work_us"] for row in groups if not row["known"]),
        sum(row["operations"] for row in known),
        work,
    )


def find_timing(rows: "DataFrame") -> Timing:
    """What all rows say about time; seconds in which no request arrived do not count."""
    about = rows.agg(
        sql.count_distinct(sql.floor(sql.col("received_us") / SECOND)).alias("seconds"),
        sql.avg("work_us").alias("work_us"),
        sql.avg(sql.greatest(sql.col("decided_us"), sql.lit(0))).alias("decided_us"),
        sql.avg("pushed_us").alias("pushed_us"),
    ).first()
    assert about is not None  # an aggregation without groups has one row
    return Timing(
        float(max(1, about["seconds"])),
        (about["work_us"] or 0.0) / 1_000,
        (about["decided_us"] or 0.0) / 1_000,
        (about["pushed_us"] or 0.0) / 1_000,
    )


def find_owners(rows: "DataFrame", partitions: Collection[str]) -> dict[str, str]:
    """The configurator that has worked on each of some partitions last."""
    own = rows.where(sql.col("partition").isin(list(partitions)))
    found = own.groupBy("partition", "configurator").agg(sql.max("done_us").alias("done_us"))
    by_time = sorted(found.collect(), key=lambda row: (row["done_us"], row["configurator"]))
    return {row["partition"]: row["configurator"] for row in by_time}


def load_by_region(rows: "DataFrame", sources: Sequence[IndexSource]) -> "DataFrame":
    """The work of each region of each space; that of a filter is shared equally by its regions.

    Filters that cannot be indexed are together in a group without a region. Removals and changes
    count as well: their rows have the filter that goes, or the new one.
    """
    advertised = sql.col("target_id").startswith("a").alias("advertised")
    filters = rows.groupBy("space", advertised, "filter").agg(
        sql.sum("work_us").alias("work_us"), sql.count("*").alias("partials")
    )
    # Spark finds the kind of the function in its type hints, which its stubs do not know.
    find = arrow_udf(region_finder(sources), "array<binary>")  # type: ignore[call-overload]
    indexed = filters.withColumn("regions", find("space", "filter"))
    share = sql.greatest(sql.coalesce(sql.size("regions"), sql.lit(1)), sql.lit(1))
    spread = indexed.select(
        "space",
        "advertised",
        (sql.col("work_us") / share).alias("work_us"),
        "partials",
        (1 / share).alias("filters"),
        sql.explode_outer("regions").alias("region"),
    )
    return spread.groupBy("space", "advertised", "region").agg(
        # Spark adds up in any order; rounded, the result is the same every time.
        sql.round(sql.sum("work_us"), 3).alias("work_us"),
        sql.sum("partials").alias("partials"),
        sql.sum("filters").alias("filters"),
    )


def region_totals(regions: "DataFrame") -> dict[str, RegionTotals]:
    """How many filters and regions each space has, and how many filters have none."""
    damaged = sql.col("region").isNull()
    found = regions.groupBy("space").agg(
        sql.sum("filters").alias("filters"),
        sql.count("region").alias("regions"),
        sql.sum(sql.when(damaged, sql.col("filters")).otherwise(0.0)).alias("damaged"),
        sql.sum(sql.when(damaged, sql.col("work_us")).otherwise(0.0)).alias("damaged_us"),
    )
    return {
        row["space"]: RegionTotals(
            round(row["filters"]), row["regions"], round(row["damaged"]), row["damaged_us"]
        )
        for row in found.collect()
    }


def sample_regions(
    regions: "DataFrame", space: str, work_us: float, most: int
) -> tuple[RegionLoad, ...]:
    """The regions of a space, or a sample if there are more than `most`; the same every time.

    Heavy regions are in the sample with their own work, and each of the others stands for some that
    are left out (`priority_sample`). The work of the sample is that of all, `work_us`.
    """
    own = regions.where((sql.col("space") == space) & sql.col("region").isNotNull())
    sample = priority_sample(own, "work_us", ["region", "advertised"], work_us, most)
    loads = (_region_load(row, weight) for row, weight in sample)
    return tuple(sorted(loads, key=lambda load: (load.region, load.advertised)))


def _region_load(row: "Row", weight: float) -> RegionLoad:
    stands_for = weight / row["work_us"] if row["work_us"] else 1.0
    return RegionLoad(
        unpack(bytes(row["region"])),
        weight,
        row["advertised"],
        row["partials"] * stands_for,
    )
