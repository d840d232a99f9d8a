"""Finds and reads files of traces, in any storage that Spark can reach.

Files that cannot be used are named and left out before a job begins: those that are still being
written, are damaged, or lack columns. To find damage, all rows are read once and counted by file.
If a job asks for a time, files whose names show that they are of another time are not opened.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pyspark.errors import AnalysisException
from pyspark.sql import functions as sql
from pyspark.sql.types import StringType

from spark.schema import ADDED, EVENT_TRACES, REQUEST_TRACES, REQUESTS, TraceKind
from spark.storage import Storage
from spark.traces import NoTraces, SkippedFile, TraceFile, Traces, short_name
from spark.work import SECOND

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME_MARGIN_US = 3_600 * SECOND
"""How far the times of rows may be from the time in the name of their file, when it was opened.

Rows come later, until the file is closed after five minutes. Or they are of requests that arrived
earlier, and waited. Clocks may differ, too. An hour is far more than all of these take.
"""

REINDEX = "reindex"  # the kind of rows that no request of a user has led to
UNFINISHED = "it is still being written, or its writer was killed"
_STAMPED = re.compile(r"(\d{8}T\d{6})-.+-\d+\.parquet", re.ASCII)
_TEXTS = [column.name for column in REQUESTS if isinstance(column.dataType, StringType)]
_NUMBERS = [
    column.name
    for column in REQUESTS
    if column.dataType.typeName() in ("integer", "long") and column.name not in ADDED
]


def find_traces(
    spark: "SparkSession", path: str, since_us: int | None = None, until_us: int | None = None
) -> Traces:
    """The traces of a data folder, a folder of traces, or one file; damaged files are left out.

    So are files that can have no rows of the time that is asked for, if their names show that.
    NoTraces if there is no such folder. A folder without files is no error.
    """
    return _find(spark, path, Storage(spark, REQUEST_TRACES), since_us, until_us)


def find_events(
    spark: "SparkSession", path: str, since_us: int | None = None, until_us: int | None = None
) -> Traces:
    """The traces of events beside the requests of `find_traces`; none if there is no such folder.

    The events of a folder or a file of requests are in the folder beside it.
    """
    storage = Storage(spark, EVENT_TRACES)
    folder = storage.folder_beside(path, REQUEST_TRACES)
    return _find(spark, folder, storage, since_us, until_us) if folder else Traces((), (), {})


def _find(
    spark: "SparkSession",
    path: str,
    storage: Storage,
    since_us: int | None,
    until_us: int | None,
) -> Traces:
    names = sorted(storage.trace_files(path))  # they begin with the time
    complete = [name for name in names if not _is_unfinished(name)]
    wanted = [
        name for name in names if may_have_rows(short_name(name).lstrip("._"), since_us, until_us)
    ]
    found = storage.open_all([name for name in wanted if not _is_unfinished(name)])
    opened = [file for file in found.values() if isinstance(file, TraceFile)]
    skipped = [file for file in found.values() if isinstance(file, SkippedFile)]
    skipped += [
        SkippedFile(short_name(name), UNFINISHED) for name in wanted if _is_unfinished(name)
    ]
    footer = _newest_footer(storage, complete, found) if storage.kind.has_spaces else {}
    readable = _count_rows(spark, opened, storage.kind)
    good: list[TraceFile] = []
    for file in opened:
        rows = readable.get(short_name(file.path), 0)
        if rows == file.rows:
            good.append(file)
        elif storage.is_gone(file.path):
            skipped.append(
                SkippedFile(short_name(file.path), "it was deleted while it was checked")
            )
        else:
            skipped.append(
                SkippedFile(short_name(file.path), f"{rows} of its {file.rows} rows can be read")
            )
    if any(file.rows for file in opened) and not any(readable.values()) and not _is_local(spark):
        raise NoTraces(f"the workers of {spark.sparkContext.master} cannot read files in {path}")
    return Traces(tuple(good), tuple(sorted(skipped)), footer)


def _is_unfinished(name: str) -> bool:
    return short_name(name).startswith((".", "_"))


def _newest_footer(
    storage: Storage, names: Sequence[str], opened: Mapping[str, TraceFile | SkippedFile]
) -> Mapping[str, str]:
    """The footer of the newest file that describes spaces, whatever time it is of."""
    for name in reversed(names):
        file = opened.get(name) or storage.open(name)
        if isinstance(file, TraceFile) and file.has_spaces and (footer := storage.footer(name)):
            return footer
    return {}


def may_have_rows(name: str, since_us: int | None, until_us: int | None) -> bool:
    """Whether a file can have rows of a time, as far as its name shows when it was opened."""
    opened_us = _opened_us(name)
    if opened_us is None:
        return True
    is_before = since_us is not None and opened_us + NAME_MARGIN_US < since_us
    is_after = until_us is not None and opened_us - NAME_MARGIN_US >= until_us
    return not (is_before or is_after)


def _opened_us(name: str) -> int | None:
    """When a file was opened, by its name `TIME-PROCESS-NUMBER.parquet`; None for other names."""
    stamped = _STAMPED.fullmatch(name)
    if not stamped:
        return None
    try:
        opened = datetime.strptime(stamped[1], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return None
    return round(opened.timestamp()) * SECOND


def vanished(spark: "SparkSession", traces: Traces) -> list[SkippedFile]:
    """The files that have disappeared: a result may lack their rows."""
    storage = Storage(spark, REQUEST_TRACES)
    why = "it was deleted while it was read; some figures may lack its rows"
    return [
        SkippedFile(short_name(path), why) for path in storage.gone([f.path for f in traces.files])
    ]


def read_rows(
    spark: "SparkSession", traces: Traces, since_us: int | None = None, until_us: int | None = None
) -> "DataFrame":
    """The rows of requests that arrived in a time: one per partial.

    Records that were indexed again are left out: no user has asked for that. Files of others may
    have nulls: these count as empty texts and zeros.
    """
    paths = [file.path for file in traces.files]
    rows = _read(spark, paths, REQUEST_TRACES, "ignoreMissingFiles")
    return _between(asked_for(filled(rows)), "received_us", since_us, until_us)


def read_events(
    spark: "SparkSession", traces: Traces, since_us: int | None = None, until_us: int | None = None
) -> "DataFrame":
    """The sampled events of a time; one of an earlier release has no weight, and counts once."""
    paths = [file.path for file in traces.files]
    rows = _read(spark, paths, EVENT_TRACES, "ignoreMissingFiles")
    rows = rows.fillna("", ["space", "values"]).fillna(0, ["time_us"]).fillna(1.0, ["weight"])
    return _between(rows, "time_us", since_us, until_us)


def _between(
    rows: "DataFrame", column: str, since_us: int | None, until_us: int | None
) -> "DataFrame":
    if since_us is not None:
        rows = rows.where(sql.col(column) >= since_us)
    if until_us is not None:
        rows = rows.where(sql.col(column) < until_us)
    return rows


def filled(rows: "DataFrame") -> "DataFrame":
    """The rows with empty texts and zeros for nulls."""
    return rows.fillna("", _TEXTS).fillna(0, _NUMBERS)


def asked_for(rows: "DataFrame") -> "DataFrame":
    """The rows of what users have asked for."""
    return rows.where(rows["kind"] != REINDEX)


def _read(
    spark: "SparkSession", paths: Sequence[str], kind: TraceKind, *options: str
) -> "DataFrame":
    """The rows of files; those that do not exist are passed over."""
    while paths:
        reader = spark.read.schema(kind.columns)
        for option in options:
            reader = reader.option(option, "true")
        try:
            return reader.parquet(*map(literal, paths))
        except AnalysisException:  # raised for a file that is gone before the query begins
            storage = Storage(spark, kind)
            gone = storage.gone(paths)
            if not gone:
                raise
            paths = [path for path in paths if path not in gone]
    columns = [sql.lit(None).cast(column.dataType).alias(column.name) for column in kind.columns]
    return spark.range(0).select(*columns)


def literal(path: str) -> str:
    """A path that Spark does not take for a pattern."""
    return re.sub(r"([{}\[\]*?\\])", r"\\\1", path)


def _count_rows(
    spark: "SparkSession", files: Iterable[TraceFile], kind: TraceKind
) -> dict[str, int]:
    """How many rows of each file can be read, with all their columns."""
    paths = [file.path for file in files if file.rows]
    if not paths:
        return {}
    rows = _read(spark, paths, kind, "ignoreMissingFiles", "ignoreCorruptFiles")
    if not rows.inputFiles():
        return {}
    named = rows.select(
        sql.col("_metadata.file_name").alias("name"),
        sql.xxhash64(*kind.columns.names).alias("content"),
    )
    # The result of the hash is not used: without it, Spark would count without reading.
    counted = named.groupBy("name").agg(sql.count("*").alias("rows"), sql.bit_xor("content"))
    return {unquote(row["name"]): row["rows"] for row in counted.collect()}


def _is_local(spark: "SparkSession") -> bool:
    return (spark.sparkContext.master or "").startswith("local")
