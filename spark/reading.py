"""Finds and reads files of request traces, in any storage that Spark can reach.

Files that cannot be used are named and left out before a job begins: those that are still being
written, are damaged, or lack columns. To find damage, all rows are read once and counted by file.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import functions as sql

from dzflow.errors import BadInput
from spark.schema import ADDED, PARQUET, REQUESTS
from spark.traces import SkippedFile, TraceFile, Traces

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FOLDERS = ("traces/requests", "requests")  # in a data folder, in its folder of traces
_UNFINISHED = "it is still being written, or its writer was killed"


class NoTraces(BadInput):
    """A path without traces."""


def find_traces(spark: "SparkSession", path: str) -> Traces:
    """The traces of a data folder, a folder of traces, or one file; damaged files are left out.

    NoTraces if there is no such folder. A folder without files is no error.
    """
    storage = _Storage(spark)
    folder = storage.requests_folder(path)
    good: list[TraceFile] = []
    skipped: list[SkippedFile] = []
    for name in sorted(storage.parquet_files(folder)):
        if _short(name).startswith((".", "_")):
            skipped.append(SkippedFile(_short(name), _UNFINISHED))
            continue
        found = storage.open(name)
        if isinstance(found, SkippedFile):
            skipped.append(found)
        else:
            good.append(found)
    readable = _count_rows(spark, good)
    for file in list(good):
        rows = readable.get(_short(file.path), 0)
        if rows != file.rows:
            why = f"{rows} of its {file.rows} rows can be read"
            if not storage.exists(file.path):
                why = "it was deleted meanwhile"
            skipped.append(SkippedFile(_short(file.path), why))
            good.remove(file)
    return Traces(tuple(good), tuple(sorted(skipped)))


def vanished(spark: "SparkSession", traces: Traces) -> list[SkippedFile]:
    """The files that are not there any more; rows of them may lack in a result."""
    storage = _Storage(spark)
    why = "it was deleted while it was read; parts of the result may lack its rows"
    return [
        SkippedFile(_short(file.path), why)
        for file in traces.files
        if not storage.exists(file.path)
    ]


def read_rows(
    spark: "SparkSession", traces: Traces, since_us: int | None = None, until_us: int | None = None
) -> "DataFrame":
    """The rows of requests that arrived in a time: one per partial."""
    paths = [file.path for file in traces.files]
    rows = _read(spark, paths) if paths else spark.createDataFrame([], REQUESTS)
    if since_us is not None:
        rows = rows.where(sql.col("received_us") >= since_us)
    if until_us is not None:
        rows = rows.where(sql.col("received_us") < until_us)
    return rows


def _read(spark: "SparkSession", paths: list[str]) -> "DataFrame":
    return spark.read.schema(REQUESTS).parquet(*paths)


def _count_rows(spark: "SparkSession", files: Iterable[TraceFile]) -> dict[str, int]:
    """How many rows of each file can be read, with all their columns."""
    paths = [file.path for file in files if file.rows]
    if not paths:
        return {}
    named = _read(spark, paths).select(
        sql.col("_metadata.file_name").alias("name"), sql.xxhash64(*REQUESTS.names).alias("content")
    )
    # The result of the hash is not used: without it, Spark would count without reading.
    counted = named.groupBy("name").agg(sql.count("*").alias("rows"), sql.bit_xor("content"))
    return {row["name"]: row["rows"] for row in counted.collect()}


def _short(path: str) -> str:
    return path.rsplit("/", 1)[-1]


class _Storage:
    """The file system of Spark's driver: local, HDFS, an object store."""

    def __init__(self, spark: "SparkSession") -> None:
        # Hadoop's file systems have no Python interface of their own.
        self._jvm: Any = spark._jvm
        self._conf: Any = spark._jsc.hadoopConfiguration()

    def requests_folder(self, path: str) -> str:
        """The folder with the files of requests; NoTraces if there is none."""
        try:
            for inner in (*(f"{path}/{name}" for name in _FOLDERS), path):
                if self.exists(inner):
                    return inner
        except Py4JJavaError as error:
            raise NoTraces(f"{path} cannot be read: {_reason(error)}") from None
        raise NoTraces(f"{path} does not exist; name the data folder of a service, or its traces")

    def parquet_files(self, folder: str) -> list[str]:
        """The addresses of all Parquet files in a folder."""
        try:
            found = self._system(folder).listStatus(self._path(folder))
        except Py4JJavaError as error:
            raise NoTraces(f"{folder} cannot be listed: {_reason(error)}") from None
        names = [status.getPath().toString() for status in found if status.isFile()]
        return [name for name in names if name.endswith(".parquet")]

    def exists(self, path: str) -> bool:
        """Whether there is such a file or folder."""
        return bool(self._system(path).exists(self._path(path)))

    def open(self, path: str) -> TraceFile | SkippedFile:
        """Read the footer of a file, and check its columns."""
        parquet = self._jvm.org.apache.parquet.hadoop
        try:
            source = parquet.util.HadoopInputFile.fromPath(self._path(path), self._conf)
            reader = parquet.ParquetFileReader.open(source)
            try:
                about = reader.getFooter().getFileMetaData()
                if wrong := _wrong_column(about.getSchema()):
                    return SkippedFile(_short(path), wrong)
                footer = dict(about.getKeyValueMetaData())
                return TraceFile(path, int(reader.getRecordCount()), footer)
            finally:
                reader.close()
        except Py4JJavaError as error:
            return SkippedFile(_short(path), f"it is damaged: {_reason(error)}")

    def _system(self, path: str) -> Any:
        return self._path(path).getFileSystem(self._conf)

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path)


def _wrong_column(schema: Any) -> str | None:
    """What is wrong with the columns of a file; None if nothing is."""
    for column in REQUESTS:
        name = column.name
        if not schema.containsField(name):
            if name not in ADDED:
                return f"it lacks the column {name}: it is no file of request traces"
            continue
        wanted = PARQUET.get(column.dataType)
        found = schema.getType(name)
        is_plain = bool(found.isPrimitive())
        if is_plain != (wanted is not None):
            return f"the column {name} has another type"
        if wanted and (kind := found.asPrimitiveType().getPrimitiveTypeName().toString()) != wanted:
            return f"the column {name} is of type {kind}, not {wanted}"
    return None


def _reason(error: Py4JJavaError) -> str:
    """The message of a Java exception, in one line."""
    text = str(error.java_exception.getMessage() or error.java_exception.toString())
    return text.splitlines()[0][:200]
