"""A bounded sample of weighted rows that reaches the driver: the same one every time."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row


class SampledRow(NamedTuple):
    """A row of a sample, and the weight that it stands for: at least its own."""

    row: "Row"
    weight: float


def priority_sample(
    rows: "DataFrame", weight: str, key: Sequence[str], total: float, most: int
) -> list[SampledRow]:
    """All rows, or a sample if there are more than `most`; the most important ones come first.

    It is a priority sample: a row comes first if its weight over a random number, a hash of its
    key, is large. Heavy rows are in it with their own weight; each of the others stands for the
    weight of those that are left out. The weight of the sample is that of all, `total`. Rows must
    differ in their key.
    """
    random = (sql.shiftrightunsigned(sql.xxhash64(*key), 11) + 1) / (1 << 53)
    ranked = rows.withColumn("priority", sql.col(weight) / random)
    found = ranked.orderBy(sql.desc("priority"), *key).limit(most + 1).collect()
    least = found[most]["priority"] if len(found) > most else 0.0
    weights = [max(float(row[weight]), least) for row in found[:most]]
    scale = total / sum(weights) if sum(weights) else 1.0
    return [SampledRow(row, each * scale) for row, each in zip(found[:most], weights, strict=True)]
