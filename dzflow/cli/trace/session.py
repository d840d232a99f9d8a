"""Start Spark for a command of `dzflow trace`, and find its traces."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark.session import SparkOptions
    from spark.traces import Traces


@contextmanager
def start_spark(options: "SparkOptions", command: str) -> "Iterator[SparkSession]":
    """A session of Spark for a command of `dzflow trace`; says on stderr that it starts."""
    from spark.session import open_session

    Console(stderr=True).print("starting Spark", highlight=False)
    with open_session(options, f"dzflow trace {command}") as session:
        yield session


@contextmanager
def open_traces(
    options: "SparkOptions", command: str, path: str, since_us: int | None, until_us: int | None
) -> "Iterator[tuple[SparkSession, Traces]]":
    """A session of Spark, and the traces of a time; says on stderr how far it is."""
    from msgspec.structs import replace

    from spark.session import local_size, suit_rows

    how = replace(options, size=local_size(path))
    with start_spark(how, command) as session:
        from spark.reading import find_traces

        progress = Console(stderr=True)
        progress.print("checking the files", highlight=False)
        traces = find_traces(session, path, since_us, until_us)
        rows = sum(file.rows for file in traces.files)
        suit_rows(session, how, rows)
        progress.print(f"reading {rows:,} rows in {len(traces.files):,} files", highlight=False)
        yield session, traces
