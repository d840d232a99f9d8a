"""Runs the jobs as users do, each in a process of its own, and DuckDB beside them."""

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from bench.report import Progress, Row
from bench.trace_jobs.children import Usage, run_measured
from bench.trace_jobs.duck import Field, JobName, Question
from bench.trace_jobs.generator import write_events, write_requests
from bench.trace_jobs.pool import Origin
from dzflow.index import Index
from spark.rebalance.model import Rebalance
from spark.shapes.model import ShapesFound

JOBS: tuple[JobName, ...] = ("report", "rebalance")
COMMAND = Path(sys.executable).with_name("dzflow")
_BITS = 3  # leading bits of each attribute that tell coarse regions apart


class Measured(NamedTuple):
    """What a job took, and the file with its result."""

    usage: Usage
    result: Path


class TraceFolder:
    """Generated traces of any length, and what the jobs make of them; each job runs once."""

    def __init__(self, folder: Path, origin: Origin, progress: Progress) -> None:
        self.origin = origin
        self._folder = folder
        self._progress = progress
        self._made: dict[tuple[str, str, int], Measured] = {}

    def spark(self, job: str, rows: int) -> Measured:
        """A job of `dzflow trace` on so many rows."""
        return self._run(job, "Spark", rows)

    def duck(self, job: JobName, rows: int) -> Measured:
        """The same by DuckDB, as far as it is the same."""
        return self._run(job, "DuckDB", rows)

    def rebalance(self, rows: int) -> Rebalance:
        """What `rebalance` has found in so many rows."""
        return msgspec.json.decode(
            self.spark("rebalance", rows).result.read_bytes(), type=Rebalance
        )

    def shapes(self, rows: int) -> ShapesFound:
        """What `shapes` has found in so many rows."""
        found = self.spark("shapes", rows).result.read_bytes()
        return msgspec.json.decode(found, type=ShapesFound)

    def size(self, rows: int) -> int:
        """The bytes of the files with so many rows."""
        return sum(file.stat().st_size for file in self._requests(rows).iterdir())

    def _run(self, job: str, by: str, rows: int) -> Measured:
        key = job, by, rows
        if key not in self._made:
            requests = self._requests(rows)
            result = self._folder / f"{job}-{by}-{rows}.json"
            self._progress(f"{job} by {by}, {rows:,} rows")
            if by == "Spark":
                data = requests.parent.parent
                usage = run_measured([COMMAND, "trace", job, data, "--json", result])
            else:
                usage = run_measured(
                    [
                        *(sys.executable, "-m", "bench.trace_jobs.duck", job, requests, result),
                        *("--question", json.dumps(self._question(rows))),
                    ]
                )
            self._made[key] = Measured(usage, result)
        return self._made[key]

    def _requests(self, rows: int) -> Path:
        """The folder with so many rows, which are written if they are not there."""
        traces = self._folder / str(rows) / "traces"
        requests = traces / "requests"
        if not requests.exists():
            self._progress(f"writing {rows:,} rows")
            write_requests(requests, self.origin, rows)
            write_events(traces / "events", self.origin)
        return requests

    def _question(self, rows: int) -> Question:
        """The same timeline and the same coarse regions as those of the report."""
        bucket = 10
        report = self._made.get(("report", "Spark", rows))
        if report:
            found: dict[str, Any] = json.loads(report.result.read_bytes())
            bucket = round(found["timeline"]["bucket_s"])
        return Question(bucket, coarse_fields(self.origin.index))


def coarse_fields(index: Index) -> list[Field]:
    """The leading bits of all attributes in the text of a region."""
    found = []
    start = 0
    for axis in index.axes:
        found.append(Field(start, min(_BITS, axis.width)))
        start += axis.width
    return found


def measure_jobs(folder: TraceFolder, size: int) -> list[Row]:
    """Time, processor time and memory of each job on so many rows, by Spark and by DuckDB."""
    rows: list[Row] = []
    for job in JOBS:
        for by, run in (("Spark", folder.spark), ("DuckDB", folder.duck)):
            usage = run(job, size).usage
            rows.append(
                {
                    "measure": "jobs",
                    "job": job,
                    "by": by,
                    "rows": size,
                    "file_mb": folder.size(size) / 1e6,
                    **usage.columns(size),
                }
            )
    return rows


def job_ratios(rows: list[Row], smallest: int) -> dict[str, float]:
    """Spark over DuckDB at the largest size, and how the time of each further row grows.

    What a job takes for the smallest number of rows is its start. Its queries are not compiled, so
    it is no part of what larger sizes take.
    """
    found: dict[str, float] = {}
    for job in JOBS:
        some = [row for row in rows if row["measure"] == "jobs" and row["job"] == job]
        spark = {row["rows"]: row for row in some if row["by"] == "Spark"}
        duck = {row["rows"]: row for row in some if row["by"] == "DuckDB"}
        start = spark.pop(smallest, None)
        if start:
            found[f"{job}_start_s"] = start["seconds"]
        if not spark:
            continue
        *_, largest = sizes = sorted(spark)
        found[f"{job}_rows_per_s"] = spark[largest]["rows_per_s"]
        found[f"{job}_spark_over_duckdb"] = spark[largest]["seconds"] / duck[largest]["seconds"]
        if len(sizes) > 2:
            first, second, third = (spark[size] for size in sizes[-3:])
            found[f"{job}_growth"] = _further(second, third) / _further(first, second)
    return found


def _further(fewer: Row, more: Row) -> float:
    """The seconds of each further row."""
    return float((more["seconds"] - fewer["seconds"]) / (more["rows"] - fewer["rows"]))
