"""Starts Spark: on this machine by default, on a cluster if its master is named."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from dzflow.errors import DzflowError
from spark.java import java_problem
from spark.scratch import scratch_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEW_BYTES = 4 << 20
"""Files of this size have some 70,000 rows: to compile queries takes longer than to run them."""

SOME_BYTES = 24 << 20
"""Some 400,000 rows: for Java to optimise its programs takes longer than it saves."""

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
_ROWS_PER_PARTITION = 150_000  # that are grouped in memory at once, by each core

_FOR_FEW = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",  # plans each stage again, when those before it are done
    SHUFFLE_PARTITIONS: "2",
}
_JAVA_FOR_FEW = "-XX:+UseSerialGC"
_JAVA_FOR_SOME = "-XX:TieredStopAtLevel=1"  # compiles quickly, and optimises little
_LOOPBACK = "127.0.0.1"
_LOGGING = Path(__file__).with_name("log4j2.properties")


class SparkUnavailable(DzflowError):
    """PySpark or Java is missing, or Spark does not start."""


class SparkFailed(DzflowError):
    """Spark gave up a job."""


class SparkOptions(Struct, frozen=True):
    """Where jobs run. `settings` are Spark's own, such as `spark.executor.memory`.

    `size` is that of the traces in bytes, if it is known: the less they are, the less is compiled.
    """

    master: str = "local[*]"
    settings: Mapping[str, str] = {}
    size: int | None = None

    @property
    def few(self) -> bool:
        """Whether there are few rows: Spark interprets its queries."""
        return self.size is not None and self.size <= FEW_BYTES

    @property
    def some(self) -> bool:
        """Whether there are not many rows: Java does not optimise what it compiles."""
        return self.size is not None and self.size <= SOME_BYTES

    @property
    def local(self) -> bool:
        """Whether Spark runs on this machine only."""
        return self.master.startswith("local")


def local_size(path: str) -> int | None:
    """The size of traces in bytes; None if they are not files of this machine."""
    folder = Path(path)
    inner = (folder / "traces" / "requests", folder / "requests", folder)
    try:
        if folder.is_file():
            return folder.stat().st_size
        found = next((each for each in inner if each.is_dir()), None)
        if found is None:
            return None
        events = found.parent / "events"  # sampled events, which some jobs read, too
        folders = (found, events) if found.name == "requests" and events.is_dir() else (found,)
        return sum(f.stat().st_size for each in folders for f in each.iterdir())
    except OSError:  # such as a file that is deleted now; the job says what is wrong
        return None


@contextmanager
def open_session(options: SparkOptions, name: str = "dzflow") -> "Iterator[SparkSession]":
    """A session that ends with the block.

    SparkUnavailable says what is missing; SparkFailed says why Spark gave up what the block asked.
    """
    check_installation()
    from pyspark.sql import SparkSession

    errors = spark_errors()
    with scratch_folder() as folder:
        try:
            builder = SparkSession.builder.master(options.master).appName(name)
            for key, value in {**spark_settings(options, str(folder)), **options.settings}.items():
                builder = builder.config(key, value)
            session = builder.getOrCreate()
            session.sparkContext.pythonExec = _python(options)
        except errors as error:
            text = f"Spark does not start at {options.master}: {reason(error)}"
            raise SparkUnavailable(text) from error
        try:
            yield session
        except errors as error:
            raise SparkFailed(f"Spark gave up: {reason(error)}") from error
        finally:
            session.stop()


def suit_rows(session: "SparkSession", options: SparkOptions, rows: int) -> None:
    """Have shuffles make as many partitions as suit so many rows, unless users say how many."""
    if not options.few and SHUFFLE_PARTITIONS not in options.settings:
        least = session.sparkContext.defaultParallelism
        parts = max(least, -(-rows // _ROWS_PER_PARTITION))
        session.conf.set(SHUFFLE_PARTITIONS, str(parts))


def spark_errors() -> tuple[type[Exception], ...]:
    """What calls of Spark raise: PySpark turns some errors of Java into its own."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    return Py4JError, PySparkException


def reason(error: Exception) -> str:
    """Why Spark failed, in one line: without the stack of the Java program."""
    java = getattr(error, "java_exception", None)
    text = str(java.getMessage() or java.toString()) if java is not None else str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__


def check_installation() -> None:
    """SparkUnavailable if PySpark, or a Java that it can use, is missing."""
    if find_spec("pyspark") is None:
        raise SparkUnavailable(
            "PySpark is missing: run `make spark`, or pip install 'dzflow-control[spark]'"
        )
    if wrong := java_problem():
        raise SparkUnavailable(wrong)


def _python(options: SparkOptions) -> str:
    """The Python of the workers: on this machine the one that runs this, unless users say so."""
    chosen = options.settings.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON")
    return chosen or (sys.executable if options.local else "python3")


def spark_settings(options: SparkOptions, folder: str) -> dict[str, str]:
    """Settings that suit these jobs; users may override each of them."""
    java = f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"
    if options.some:
        java += f" {_JAVA_FOR_SOME}"
    if options.few:
        java += f" {_JAVA_FOR_FEW}"
    found = {
        "spark.driver.extraJavaOptions": java,
        "spark.sql.session.timeZone": "UTC",
        # Percentiles of more groups than this make Spark sort all rows: a timeline has 240 groups.
        "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "1024",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower(),
    }
    if options.local:
        tasks = 4 * (os.cpu_count() or 1)
        found |= {
            "spark.driver.bindAddress": _LOOPBACK,
            "spark.driver.host": _LOOPBACK,
            "spark.local.dir": folder,
            "spark.driver.memory": "2g",
            # As large as a file of a service: percentiles of more rows at once take much memory.
            "spark.sql.files.maxPartitionBytes": "32m",
            # The defaults of 200, and of a task for each file, are for clusters.
            SHUFFLE_PARTITIONS: str(tasks),
            "spark.sql.sources.parallelPartitionDiscovery.parallelism": str(tasks),
        }
    return {**found, **(_FOR_FEW if options.few else {})}
