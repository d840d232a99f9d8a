"""Where in the event space the work is: hot regions in words, and the work along each attribute.

The regions of subscriptions are cut down to their leading bits, so that near ones count as one. All
of this is done on their text, by Spark; only the words are found here, for the few that are shown.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as sql

from configurators.state.trace_spaces import BadTraceSpaces, TraceSpace
from configurators.store.keys import PartitionName
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


_WELL_FORMED = r"^[01*]*$"
_OPEN = b"*"  # a bit that a region does not fix
_NOTICE = 0.001  # the share of the work that may be left out without a notice


class _Field(NamedTuple):
    """The leading bits of one axis in the text of a region."""

    axis: int
    start: int
    length: int


def find_hot(
    rows: "DataFrame", spaces: Mapping[str, TraceSpace]
) -> tuple[tuple[HotRegion, ...], tuple[AttributeHeat, ...], list[str]]:
    """The hot regions of the busiest spaces, the work along their attributes, and notices.

    Only spaces that the traces describe, in the version of their index that is described, can be
    put into words. A notice says how much of the work is not.
    """
    # Subscriptions only; a removal is work, too, but its rows do not say where.
    wanted = rows.where(sql.col("target_id").startswith("s") & (sql.size("regions") > 0))
    work = wanted.groupBy("space").agg(sql.sum("work_us").alias("work_us")).collect()
    busiest = sorted(work, key=lambda row: (-row["work_us"], row["space"]))
    hot: list[HotRegion] = []
    heat: list[AttributeHeat] = []
    notices: list[str] = []
    for row in busiest[:MOST_SPACES]:
        name = row["space"]
        if name not in spaces:
            notices.append(f"Hot regions of {name} have no words: no file describes the space.")
            continue
        space = spaces[name]
        try:
            index = space.versions[space.current].index(name, space.current)
        except BadTraceSpaces as error:
            notices.append(f"Hot regions of {name} have no words: {error}.")
            continue
        prefix = str(PartitionName(space.number, space.current, ""))
        own = wanted.where((sql.col("space") == name) & sql.col("partition").startswith(prefix))
        groups = _coarse_groups(own, index).persist()
        try:
            total = groups.agg(sql.sum("work_us")).first()
            covered = (total[0] if total else None) or 0.0
            if row["work_us"] and 1 - covered / row["work_us"] > _NOTICE:
                share = f"{1 - covered / row['work_us']:.1%}"
                text = "was done under other versions of its index than the one that is described"
                notices.append(f"Hot regions of {name} lack {share} of its work, which {text}.")
            hot += _hot_regions(groups, index, covered or 1.0)
            heat += _heat(groups, index)
        finally:
            groups.unpersist()
    return tuple(hot), tuple(heat), notices


def _coarse_groups(rows: "DataFrame", index: Index) -> "DataFrame":
    """The work by coarse region; that of a row is shared among its regions."""
    told = rows.select(
        sql.explode("regions").alias("region"),
        (sql.col("work_us") / sql.size("regions")).alias("work_us"),
    )
    # As bytes, of which a part can be taken without counting the characters before it.
    region = sql.col("region").cast("binary")
    told = told.where(sql.octet_length("region").between(1, WIDTH))
    padded = sql.rpad(region, WIDTH, sql.lit(_OPEN))
    if index.space.index.kind == "zorder":
        coarse: Column = sql.substring(padded, 1, _DZ_BITS)
    else:
        # Without a field, all regions are one.
        parts = [sql.substring(padded, f.start + 1, f.length) for f in _fields(index)]
        coarse = sql.concat(sql.lit(b""), *parts)
    groups = told.groupBy(coarse.alias("bytes")).agg(
        sql.count("*").alias("regions"), sql.sum("work_us").alias("work_us")
    )
    text = sql.col("bytes").cast("string")
    return groups.where(text.rlike(_WELL_FORMED)).withColumn("coarse", text).drop("bytes")


def _hot_regions(groups: "DataFrame", index: Index, whole: float) -> list[HotRegion]:
    top = groups.orderBy(sql.desc("work_us"), "coarse").limit(MOST_REGIONS).collect()
    found = []
    for row in top:
        words = conjunction_text(index.space, index.conjunction(_region(row["coarse"], index)))
        text = "anything" if words == "true" else words
        share = row["work_us"] / whole
        found.append(
            HotRegion(index.space.name, text, row["regions"], row["work_us"] / 1_000, share)
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
    """The axes that have words: a hash tells values apart, but says nothing about them."""
    found = []
    start = 0
    for number, axis in enumerate(index.axes):
        if axis.ranges((0, 0)) is not None:
            found.append(_Field(number, start, min(_BITS, axis.width)))
        start += axis.width
    return found


def _heat(groups: "DataFrame", index: Index) -> list[AttributeHeat]:
    """The work along each axis; bits of a dz belong to several axes, so there is none for them."""
    fields = _fields(index)
    if index.space.index.kind == "zorder" or not fields:
        return []
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
    """The work along one axis; None if nothing constrains it."""
    total = sum(work.values())
    open_work = work.get("*" * field.length, 0.0)
    if total <= 0 or open_work >= total * (1 - 1e-9):
        return None
    labels = _labels(index, field)
    shares = dict.fromkeys(labels, 0.0)
    for bits, part in work.items():
        if bits.strip("*"):
            cells = [cell for cell in _cells(bits) if cell in shares]
            for cell in cells:
                shares[cell] += part / len(cells) / total
    return AttributeHeat(
        index.space.name,
        index.axes[field.axis].attribute,
        tuple(labels.values()),
        tuple(shares.values()),
        open_work / total,
    )


def _cells(bits: str) -> Sequence[int]:
    """The parts of an axis that leading bits leave: those that are open come last."""
    fixed = bits.rstrip("*")
    left = len(bits) - len(fixed)
    first = int(fixed, 2) << left
    return range(first, first + (1 << left))


def _labels(index: Index, field: _Field) -> dict[int, str]:
    """The parts of an axis in words, without those that no value has, as after an enum's last."""
    axis = index.axes[field.axis]
    down = axis.width - field.length
    found = {}
    for cell in range(1 << field.length):
        ranges = axis.ranges((cell << down, ((cell + 1) << down) - 1))
        if ranges:
            found[cell] = ranges_text(index.space, {axis.attribute: ranges})
    return found
