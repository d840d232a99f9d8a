"""Takes new trace files into a history: each file once, whatever happens in between.

A streaming query with `availableNow` finds the files that came since the last run. What a run has
begun to take in is written down before (Spark's checkpoint), and each batch of files has folders of
its own in the tables, which are written as a whole. So a run that was killed is continued: the same
files are taken in again, into the same folders.
"""

from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from msgspec import Struct
from pyspark.sql import functions as sql
from pyspark.sql.types import LongType, StructField, StructType

from spark.history.tables import FILES, SCHEMAS, aggregate
from spark.reading import UNFINISHED, asked_for, filled, literal
from spark.schema import REQUEST_TRACES, REQUESTS
from spark.storage import Storage
from spark.traces import NoTraces, SkippedFile, short_name
from spark.work import with_work

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_FILES = 20  # of a batch: at most ten million rows
_FOREVER = "36500d"  # Spark would forget, and so miss, files that are older than a week
_UNUSED = ("file", "regions", "filter", "target_id", "mode", "switches")
_FORMAT = "v1"  # of the tables


class NoHistory(NoTraces):
    """A folder that has no history."""


class Ingested(Struct, frozen=True):
    """What a run took in."""

    files: int
    rows: int
    skipped: tuple[SkippedFile, ...]


class _Checked(NamedTuple):
    """A file that was read; `why` says why it is left out, and is empty if it is not."""

    name: str
    rows: int
    why: str


def table_path(state: str, table: str) -> str:
    """The folder of a table."""
    return f"{state.rstrip('/')}/{_FORMAT}/{table}"


def ingest(spark: "SparkSession", path: str, state: str) -> Ingested:
    """Take the files in that came since the last run; NoTraces if there is no such folder."""
    storage = Storage(spark, REQUEST_TRACES)
    listed = storage.trace_files(path)
    if listed == [path]:
        raise NoTraces(f"{path} is a file: name the folder of the traces")
    folder = storage.folder(path)
    if literal(folder) != folder:
        # Even if they are escaped, Spark would read each file as often as there are new files.
        raise NoTraces(f"{folder} has a character that Spark takes for a pattern: rename it")
    run = _Run(storage, folder, state)
    stream = spark.readStream.schema(REQUESTS)
    for key, value in {
        "pathGlobFilter": "*.parquet",
        "ignoreCorruptFiles": "true",
        "ignoreMissingFiles": "true",
        "maxFilesPerTrigger": str(MOST_FILES),
        "maxFileAge": _FOREVER,
    }.items():
        stream = stream.option(key, value)
    named = stream.parquet(folder).select("*", sql.col("_metadata.file_name").alias("file"))
    query = (
        named.writeStream.foreachBatch(run.take_in)
        .option("checkpointLocation", table_path(state, "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return Ingested(run.files, run.rows, tuple(sorted([*run.skipped, *run.unread(spark, listed)])))


class _Run:
    """One run: what it has taken in so far."""

    def __init__(self, storage: Storage, folder: str, state: str) -> None:
        self.files = 0
        self.rows = 0
        self.skipped: list[SkippedFile] = []
        self._storage = storage
        self._folder = folder
        self._state = state

    def take_in(self, batch: "DataFrame", number: int) -> None:
        """Add the rows of new files to the tables; those of damaged files are left out."""
        counted = batch.groupBy("file").agg(
            sql.count("*").alias("rows"), sql.bit_xor(sql.xxhash64(*REQUESTS.names))
        )
        found = {row["file"]: self._check(row["file"], row["rows"]) for row in counted.collect()}
        bad = [file for file, checked in found.items() if checked.why]
        rows = asked_for(filled(batch.where(~sql.col("file").isin(bad))))
        rows = rows.drop(*_UNUSED).persist()
        try:
            for table, content in aggregate(with_work(rows)).items():
                write_batch(content, table_path(self._state, table), number)
        finally:
            rows.unpersist()
        # The last one: a batch that it does not have counts as not taken in.
        told = [(checked.name, checked.rows, checked.why) for checked in found.values()]
        files = batch.sparkSession.createDataFrame(told, FILES)
        write_batch(files, table_path(self._state, "files"), number)
        self.files += len(found) - len(bad)
        self.rows += sum(checked.rows for checked in found.values() if not checked.why)
        self.skipped += [SkippedFile(each.name, each.why) for each in found.values() if each.why]

    def _check(self, file: str, rows: int) -> _Checked:
        """Compare the rows of a file that can be read with what its footer says."""
        name = unquote(file)
        address = f"{self._folder}/{name}"
        opened = self._storage.open(address)
        if self._storage.is_gone(address):
            return _Checked(name, 0, "it was deleted while it was read")
        if isinstance(opened, SkippedFile):
            return _Checked(name, 0, opened.why)
        if opened.rows != rows:
            return _Checked(name, 0, f"{rows} of its {opened.rows} rows can be read")
        return _Checked(name, rows, "")

    def unread(self, spark: "SparkSession", listed: list[str]) -> list[SkippedFile]:
        """The files that were there when the run began, and of which no row was read."""
        known: set[str] = set()
        if has_history(self._storage, self._state):
            names = [short_name(address) for address in listed]
            taken = read_table(spark, self._state, "files").where(sql.col("name").isin(names))
            known = {row["name"] for row in taken.select("name").collect()}
        found = []
        for address in listed:
            name = short_name(address)
            if name.startswith((".", "_")):
                found.append(SkippedFile(name, UNFINISHED))
            elif name not in known and not self._storage.is_gone(address):
                opened = self._storage.open(address)
                if isinstance(opened, SkippedFile):
                    found.append(opened)
                elif opened.rows:
                    found.append(SkippedFile(name, f"0 of its {opened.rows} rows can be read"))
        return found


def write_batch(content: "DataFrame", table: str, number: int) -> None:
    """Write the part of a batch in a table; what is there of the same batch is replaced."""
    content.coalesce(1).write.mode("overwrite").parquet(f"{table}/batch={number}")


def has_history(storage: Storage, state: str) -> bool:
    """Whether anything was ever taken in."""
    return storage.exists(table_path(state, "files"))


def read_table(spark: "SparkSession", state: str, table: str) -> "DataFrame":
    """The rows of a table, with the number of their `batch`."""
    schema = StructType([*SCHEMAS[table], StructField("batch", LongType())])
    return spark.read.schema(schema).parquet(literal(table_path(state, table)))
