"""The file system of Spark's driver, and the footers of Parquet files there, by Java."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from configurators.state.trace_spaces import SPACES_KEY, VERSION_KEY
from spark.schema import ADDED, PARQUET, TraceKind
from spark.session import reason, spark_errors
from spark.traces import NoTraces, SkippedFile, TraceFile, short_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TOGETHER = 8  # files that are looked at together: storage may take long to answer


class Storage:
    """The file system of Spark's driver: local, HDFS, an object store."""

    def __init__(self, spark: "SparkSession", kind: TraceKind) -> None:
        self.kind = kind
        # Hadoop's file systems have no Python interface of their own. To look a class up takes
        # longer than to call it.
        java: Any = spark._jvm
        self._new_path = java.org.apache.hadoop.fs.Path
        self._file = java.org.apache.parquet.hadoop.util.HadoopInputFile
        self._reader = java.org.apache.parquet.hadoop.ParquetFileReader
        self._conf: Any = spark._jsc.hadoopConfiguration()
        self._errors = spark_errors()
        self._checked: Any = None  # columns of a file that are right; most files have the same

    def trace_files(self, path: str) -> list[str]:
        """The addresses of all Parquet files of a data folder, a folder of traces, or one file."""
        try:
            if not self._exists(path):
                raise NoTraces(
                    f"{path} does not exist; name the data folder of a service, or its traces"
                )
            if self._system(path).getFileStatus(self._path(path)).isFile():
                if not path.endswith(".parquet"):
                    raise NoTraces(f"{path} is no Parquet file")
                return [path]
            folder = self.folder(path)
            listed = self._system(folder).listStatus(self._path(folder))
            names = [status.getPath().toString() for status in listed if status.isFile()]
        except self._errors as error:
            raise NoTraces(f"{path} cannot be read: {reason(error)}") from None
        return [name for name in names if name.endswith(".parquet")]

    def folder(self, path: str) -> str:
        """The folder of this kind in a data folder, or in a folder of traces; else the path."""
        return self._inner(path) or path

    def exists(self, path: str) -> bool:
        """Whether there is such a file or folder; NoTraces if storage does not answer."""
        try:
            return self._exists(path)
        except self._errors as error:
            raise NoTraces(f"{path} cannot be read: {reason(error)}") from None

    def folder_beside(self, path: str, other: TraceKind) -> str | None:
        """The folder of this kind, given a path for the traces of another kind."""
        folder = path.rstrip("/")
        if folder.endswith(".parquet"):
            folder = folder.rpartition("/")[0] or "."
        outer, slash, name = folder.rpartition("/")
        try:
            if name == other.folder:
                return self._inner(outer or slash or ".")
            return self._inner(folder)
        except self._errors as error:
            raise NoTraces(f"{path} cannot be read: {reason(error)}") from None

    def _inner(self, path: str) -> str | None:
        """The folder of this kind in a data folder, or in its folder of traces."""
        inner = (f"{path}/traces/{self.kind.folder}", f"{path}/{self.kind.folder}")
        return next((found for found in inner if self._exists(found)), None)

    def is_gone(self, path: str) -> bool:
        """Whether a file was deleted; storage that does not answer says nothing about that."""
        try:
            return not self._exists(path)
        except self._errors:
            return False

    def gone(self, paths: Sequence[str]) -> list[str]:
        """Those of some files that were deleted."""
        with ThreadPoolExecutor(_TOGETHER) as pool:
            return [
                path
                for path, gone in zip(paths, pool.map(self.is_gone, paths), strict=True)
                if gone
            ]

    def open_all(self, paths: Sequence[str]) -> dict[str, TraceFile | SkippedFile]:
        """What `open` finds of each of some files."""
        with ThreadPoolExecutor(_TOGETHER) as pool:
            return dict(zip(paths, pool.map(self.open, paths), strict=True))

    def open(self, path: str) -> TraceFile | SkippedFile:
        """Read the footer of a file, and check its columns."""
        try:
            with self._opened(path) as reader:
                about = reader.getFooter().getFileMetaData()
                columns = about.getSchema()
                if self._checked is None or not columns.equals(self._checked):
                    if wrong := _wrong_column(columns, self.kind):
                        return SkippedFile(short_name(path), wrong)
                    self._checked = columns
                has_spaces = bool(about.getKeyValueMetaData().containsKey(SPACES_KEY))
                return TraceFile(path, int(reader.getRecordCount()), has_spaces)
        except self._errors as error:
            return SkippedFile(short_name(path), f"it is damaged: {reason(error)}")

    def footer(self, path: str) -> dict[str, str]:
        """The entries in the footer of a file that describe the spaces; none if it is gone."""
        try:
            with self._opened(path) as reader:
                entries = reader.getFooter().getFileMetaData().getKeyValueMetaData()
                found = {key: entries.get(key) for key in (VERSION_KEY, SPACES_KEY)}
        except self._errors:
            return {}
        return {key: str(value) for key, value in found.items() if value is not None}

    @contextmanager
    def _opened(self, path: str) -> Iterator[Any]:
        reader = self._reader.open(self._file.fromPath(self._path(path), self._conf))
        try:
            yield reader
        finally:
            reader.close()

    def _exists(self, path: str) -> bool:
        return bool(self._system(path).exists(self._path(path)))

    def _system(self, path: str) -> Any:
        return self._path(path).getFileSystem(self._conf)

    def _path(self, path: str) -> Any:
        return self._new_path(path)


def _wrong_column(schema: Any, kind: TraceKind) -> str | None:
    """What is wrong with the columns of a file; None if nothing is."""
    for column in kind.columns:
        name = column.name
        if not schema.containsField(name):
            if name not in ADDED:
                return f"it lacks the column {name}: it is no file of {kind.text}"
            continue
        wanted = PARQUET.get(column.dataType)
        found = schema.getType(name)
        is_plain = bool(found.isPrimitive())
        if is_plain != (wanted is not None):
            return f"the column {name} has another type"
        if wanted and (has := found.asPrimitiveType().getPrimitiveTypeName().toString()) != wanted:
            return f"the column {name} is of type {has}, not {wanted}"
    return None
