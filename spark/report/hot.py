"""Where in the event space the work is: hot regions in words, and the work along each attribute.

The regions of subscriptions are cut down to their leading bits, so that near ones count as one. All
of this is done on their text, by Spark; only the words are found here, for the few that are shown.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as sql

from configurators.state.trace_spaces import BadTraceSpaces, TraceSpace
from dzflow.filter_text import ranges_text
from dzflow.filters import conjunction_text
from dzflow.index import Index
from dzflow.region import WIDTH, Region
from spark.report.model import AttributeHeat, HotRegion

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MOST_SPACES = 8
MOST_REGIONS = 12  # of each space
_BITS = 3  # leading bits of each axis that count
_DZ_BITS = 12  # leading bits of a dz that count


class _Field(NamedTuple):
    """The leading bits of one axis in the text of a region."""

    attribute: str
    axis: int
    start: int
    length: int


def find_hot(
    rows: "DataFrame", spaces: Mapping[str, TraceSpace]
) -> tuple[tuple[HotRegion, ...], tuple[AttributeHeat, ...], list[str]]:
    """The hot regions of the busiest spaces, the work along their attributes, and what lacks.

    Only spaces whose schema the traces describe can be put into words.
    """
    wanted = rows.where(sql.col("kind").isin("subscribe", "unsubscribe", "update"))
    work = wanted.groupBy("space").agg(sql.sum("work_us").alias("work_us")).collect()
    busiest = sorted(work, key=lambda row: (-(row["work_us"] or 0.0), row["space"]))
    hot: list[HotRegion] = []
    heat: list[AttributeHeat] = []
    lacking: list[str] = []
    for row in busiest[:MOST_SPACES]:
        name = row["space"]
        if name not in spaces:
            continue
        space = spaces[name]
        try:
            index = space.versions[space.current].index(name, space.current)
        except BadTraceSpaces as error:
            lacking.append(f"Hot regions of {name} cannot be put into words: {error}.")
            continue
        own = wanted.where(
            (sql.col("space") == name)
            & sql.col("partition").startswith(f"{space.number}.{space.current}/")
        )
        groups = _coarse_groups(own, index).persist()
        try:
            hot += _hot_regions(groups, index)
            heat += _heat(groups, index)
        finally:
            groups.unpersist()
    return tuple(hot), tuple(heat), lacking


def _coarse_groups(rows: "DataFrame", index: Index) -> "DataFrame":
    """The work by coarse region; that of a row is shared among its regions."""
    told = rows.where(sql.size("regions") > 0).select(
        sql.explode("regions").alias("region"),
        (sql.col("work_us") / sql.size("regions")).alias("work_us"),
    )
    region = sql.rpad("region", WIDTH, "*")
    if index.space.index.kind == "zorder":
        coarse: Column = sql.substring(region, 1, _DZ_BITS)
    else:
        fields = _fields(index)
        coarse = sql.concat(*(sql.substring(region, f.start + 1, f.length) for f in fields))
    return told.groupBy(coarse.alias("coarse")).agg(
        sql.count("*").alias("partials"), sql.sum("work_us").alias("work_us")
    )


def _hot_regions(groups: "DataFrame", index: Index) -> list[HotRegion]:
    total = groups.agg(sql.sum("work_us")).first()
    whole = (total[0] if total else None) or 1.0
    top = groups.orderBy(sql.desc("work_us"), "coarse").limit(MOST_REGIONS).collect()
    found = []
    for row in top:
        words = conjunction_text(index.space, index.conjunction(_region(row["coarse"], index)))
        text = "anything" if words == "true" else words
        share = row["work_us"] / whole
        found.append(
            HotRegion(index.space.name, text, row["partials"], row["work_us"] / 1_000, share)
        )
    return found


def _region(coarse: str, index: Index) -> Region:
    """The region of which a text has the leading bits of each axis."""
    if index.space.index.kind == "zorder":
        return Region.parse(coarse)
    text = ["*"] * WIDTH
    at = 0
    for field in _fields(index):
        text[field.start : field.start + field.length] = coarse[at : at + field.length]
        at += field.length
    return Region.parse("".join(text))


def _fields(index: Index) -> list[_Field]:
    found = []
    start = 0
    for number, axis in enumerate(index.axes):
        found.append(_Field(axis.attribute, number, start, min(_BITS, axis.width)))
        start += axis.width
    return found


def _heat(groups: "DataFrame", index: Index) -> list[AttributeHeat]:
    """The work along each axis; bits of a dz belong to several axes, so there is none for them."""
    if index.space.index.kind == "zorder":
        return []
    fields = _fields(index)
    places = [sum(f.length for f in fields[:n]) for n in range(len(fields))]
    parts = sql.array(
        *(
            sql.struct(
                sql.lit(n).alias("field"),
                sql.substring("coarse", at + 1, field.length).alias("bits"),
            )
            for n, (field, at) in enumerate(zip(fields, places, strict=True))
        )
    )
    spread = groups.select(sql.explode(parts).alias("part"), "work_us")
    counted = spread.groupBy("part.field", "part.bits").agg(sql.sum("work_us").alias("work_us"))
    work: dict[int, dict[str, float]] = {}
    for row in counted.collect():
        work.setdefault(row["field"], {})[row["bits"]] = row["work_us"]
    found = []
    for n, field in enumerate(fields):
        heat = _axis_heat(index, field, work.get(n, {}))
        if heat:
            found.append(heat)
    return found


def _axis_heat(index: Index, field: _Field, work: Mapping[str, float]) -> AttributeHeat | None:
    """The work along one axis; None if nothing constrains it, or it only has a hash."""
    total = sum(work.values())
    open_work = work.get("*" * field.length, 0.0)
    if total <= 0 or open_work >= total * (1 - 1e-9):
        return None
    labels = list(_labels(index, field))
    if not all(labels):
        return None
    shares = [0.0] * (1 << field.length)
    for bits, part in work.items():
        if bits.strip("*"):
            cells = list(_cells(bits))
            for cell in cells:
                shares[cell] += part / len(cells) / total
    return AttributeHeat(
        index.space.name, field.attribute, tuple(labels), tuple(shares), open_work / total
    )


def _cells(bits: str) -> Sequence[int]:
    """The parts of an axis that leading bits leave: those that are open come last."""
    fixed = bits.rstrip("*")
    left = len(bits) - len(fixed)
    first = int(fixed, 2) << left
    return range(first, first + (1 << left))


def _labels(index: Index, field: _Field) -> Iterator[str]:
    """Each part of an axis in words; empty if there are no words for it."""
    axis = index.axes[field.axis]
    down = axis.width - field.length
    for cell in range(1 << field.length):
        ranges = axis.ranges((cell << down, ((cell + 1) << down) - 1))
        yield ranges_text(index.space, {axis.attribute: ranges}) if ranges else ""
