"""The Spark jobs: what they cost beside DuckDB, and how much better plans and shapes are.

Traces are generated (`bench/trace_jobs/generator.py`): requests for Zipf-distributed filters around
eight hotspots, in a space that is cut into equal partitions. Jobs run as users run them, in a
process of their own, so the start of Java counts.
"""

from collections.abc import Collection
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from bench.report import Progress, Report, Row
from dzflow.errors import BadInput
from spark.session import SparkUnavailable, check_installation

JOB_SECTIONS = {"start": 100, "jobs_1e5": 10**5, "jobs_1e6": 10**6, "jobs_1e7": 10**7}
"""The rows of traces of each part of the section `jobs`, which can be measured apart."""

SECTIONS = ("jobs", *JOB_SECTIONS, "plans", "shapes", "service")  # for --only
_IN_QUICK = ("start", "jobs_1e5", "plans", "shapes")  # a service takes two minutes


class SparkBenchUnavailable(BadInput):
    """Something that the benchmark needs is not installed."""


class Scale(NamedTuple):
    """The extent of the benchmark."""

    planned: int = 100_000  # rows of traces that plans and shapes are made from
    filters: int = 20_000  # distinct ones
    events: int = 5_000  # sampled ones: as many as `shapes` uses
    partitions: int = 63
    configurators: int = 4
    counted_filters: int = 1_000  # whose unwanted deliveries are counted


FULL = Scale()
QUICK = Scale(filters=10_000, counted_filters=300)


def run(quick: bool, progress: Progress, only: Collection[str] = ()) -> Report:
    """Measure all sections, or some. `progress` is called with the name of each step."""
    _check_installed()
    scale = QUICK if quick else FULL
    chosen = frozenset(only or (_IN_QUICK if quick else SECTIONS))
    report = Report("spark", {"quick": quick, **scale._asdict(), "sections": sorted(chosen)})
    if chosen != {"service"}:
        with TemporaryDirectory(prefix="dzflow-bench-") as folder:
            report.rows += measure_traces(Path(folder), scale, chosen, progress)
    if "service" in chosen:
        from bench.trace_jobs.running_service import ServiceScale, measure_service

        service = ServiceScale(settle=5.0, seconds=8.0) if quick else ServiceScale()
        report.rows += measure_service(service, progress)
    report.ratios = ratios(report.rows)
    return report


def combined(before: Report, after: Report) -> Report:
    """The sections of the later report, and those that only the earlier one has."""
    replaced = {_section(row) for row in after.rows}
    rows = [*(row for row in before.rows if _section(row) not in replaced), *after.rows]
    return Report("spark", after.params, rows, ratios(rows), after.machine)


def _section(row: Row) -> tuple[str, int]:
    """The table that a row belongs to; jobs are measured apart for each number of rows."""
    return row["measure"], row.get("rows", 0)


def ratios(rows: list[Row]) -> dict[str, float]:
    """The ratios of the sections that were measured."""
    from bench.trace_jobs.jobs import job_ratios
    from bench.trace_jobs.plan_quality import plan_ratios
    from bench.trace_jobs.running_service import service_ratios
    from bench.trace_jobs.shape_quality import shape_ratios

    return {
        **plan_ratios(rows),
        **service_ratios(rows),
        **shape_ratios(rows),
        **job_ratios(rows, JOB_SECTIONS["start"]),
    }


def measure_traces(
    folder: Path, scale: Scale, chosen: Collection[str], progress: Progress
) -> list[Row]:
    """The sections that need generated traces."""
    from bench.trace_jobs.jobs import TraceFolder, measure_jobs
    from bench.trace_jobs.plan_quality import compare
    from bench.trace_jobs.pool import make_origin
    from bench.trace_jobs.shape_quality import measure_shapes

    progress(f"drawing {scale.filters:,} filters")
    origin = make_origin(scale.filters, scale.events, scale.partitions, scale.configurators)
    traces = TraceFolder(folder, origin, progress)
    rows: list[Row] = []
    for section, size in JOB_SECTIONS.items():
        if section in chosen or "jobs" in chosen:
            rows += measure_jobs(traces, size)
    if "plans" in chosen:
        (planned,) = traces.rebalance(scale.planned).spaces
        progress("comparing maps and owners")
        rows += compare(origin, planned)
    if "shapes" in chosen:
        (learned,) = traces.shapes(scale.planned).spaces
        progress("counting unwanted deliveries")
        rows += measure_shapes(origin, learned, scale.counted_filters)
    return rows


def _check_installed() -> None:
    """SparkBenchUnavailable if Spark, DuckDB or numpy is missing."""
    try:
        check_installation()
    except SparkUnavailable as missing:
        raise SparkBenchUnavailable(str(missing)) from missing
    for name in ("duckdb", "numpy"):
        if find_spec(name) is None:
            raise SparkBenchUnavailable(
                f"{name} is missing: run `make setup`, or pip install 'dzflow-control[dev]'"
            )
