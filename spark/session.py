"""Starts Spark: on this machine by default, on a cluster if its master is named."""

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from dzflow.errors import DzflowError
from spark.java import missing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOPBACK = "127.0.0.1"
_LOGGING = Path(__file__).with_name("log4j2.properties")


class SparkUnavailable(DzflowError):
    """PySpark or Java is missing, or Spark does not start."""


class SparkOptions(Struct, frozen=True):
    """Where jobs run. `settings` are Spark's own, such as `spark.executor.memory`."""

    master: str = "local[*]"
    settings: Mapping[str, str] = {}

    @property
    def local(self) -> bool:
        """Whether Spark runs on this machine only."""
        return self.master.startswith("local")


@contextmanager
def open_session(options: SparkOptions, name: str = "dzflow") -> "Iterator[SparkSession]":
    """A session that ends with the block; SparkUnavailable says what is missing."""
    check_installation()
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    with tempfile.TemporaryDirectory(prefix="dzflow-spark-") as folder:
        builder = SparkSession.builder.master(options.master).appName(name)
        for key, value in {**_settings(options, folder), **options.settings}.items():
            builder = builder.config(key, value)
        try:
            session = builder.getOrCreate()
        except (Py4JError, PySparkException) as error:
            text = str(error).strip().splitlines()[-1][:300]
            raise SparkUnavailable(f"Spark does not start at {options.master}: {text}") from error
        try:
            yield session
        finally:
            session.stop()


def check_installation() -> None:
    """SparkUnavailable if PySpark, or a Java that it can use, is missing."""
    if find_spec("pyspark") is None:
        raise SparkUnavailable(
            "PySpark is missing: run `make spark`, or pip install 'dzflow-control[spark]'"
        )
    if wrong := missing():
        raise SparkUnavailable(wrong)


def _settings(options: SparkOptions, folder: str) -> dict[str, str]:
    """Settings that suit these jobs; users may override each of them."""
    logging = f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"
    found = {
        "spark.driver.extraJavaOptions": logging,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        # Such files are left out beforehand; one that vanishes later must not end the job.
        "spark.sql.files.ignoreCorruptFiles": "true",
        "spark.sql.files.ignoreMissingFiles": "true",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower(),
        "spark.pyspark.python": sys.executable,
    }
    if options.local:
        found |= {
            "spark.driver.bindAddress": _LOOPBACK,
            "spark.driver.host": _LOOPBACK,
            "spark.local.dir": folder,
            "spark.driver.memory": "2g",
            # The default of 200 is for clusters.
            "spark.sql.shuffle.partitions": str(4 * (os.cpu_count() or 1)),
        }
    else:
        del found["spark.pyspark.python"]  # workers have their own
    return found
