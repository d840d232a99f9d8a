"""What the engine costs: requests per second, operations, entries, memory, unwanted traffic.

The workload is that of thesis section 6.6 on `fat-tree:102`. Requests come in bursts, first
subscriptions and then unsubscriptions, so that slices of one kind can fill up. `--workload` takes a
workload that was rebuilt from traces instead.
"""

from pathlib import Path
from typing import Any

from bench.engines.measures import (
    SLICE,
    Scale,
    measure_orderings,
    measure_partitions,
    measure_throughput,
    measure_variants,
)
from bench.engines.unwanted import measure_unwanted
from bench.processes.forked import run_forked
from bench.processes.new_process import run_in_new_process
from bench.report import Progress, Report, Row
from bench.workload import learned_index

FULL = Scale((10_000, 100_000, 200_000), 50_000, ("legs", "lpm"), ("uniform", "zipf"))
QUICK = Scale(
    (5_000, 100_000),
    12_000,
    ("legs",),
    ("zipf",),
    slices=(SLICE,),
    ordering_requests=2_000,
    partitions_active=2_000,
    filters=300,
    sample=500,
    variants=(),
)


def run(quick: bool, progress: Progress, workload: Path | None = None) -> Report:
    """Run all measurements, or that of a workload in a file.

    `progress` is called with the name of each step.
    """
    if workload:
        from bench.engines.replayed import measure_workload

        return measure_workload(workload, quick, progress)
    scale = QUICK if quick else FULL
    report = Report("engine", {"quick": quick, **scale._asdict(), "topology": "fat-tree:102"})
    report.rows = run_in_new_process(progress, _measure_all, scale)
    report.ratios = _ratios(scale, report.rows)
    return report


def _measure_all(progress: Progress, scale: Scale) -> list[Row]:
    for distribution in scale.distributions:
        progress(f"learning shapes, {distribution}")
        learned_index(distribution, scale.sample)  # cached: forked processes inherit it
    rows: list[Row] = []
    for plan in scale.plans:
        for distribution in scale.distributions:
            for active in scale.active:
                progress(f"{plan}, {distribution}, {active:,} active")
                rows += run_forked(
                    lambda p=plan, d=distribution, a=active: measure_throughput(scale, p, d, a)  # type: ignore[misc]
                )
    for plan in ("legs", "lpm"):
        for partitions in (1, 8, 64):
            progress(f"{plan}, {partitions} partitions")
            rows += run_forked(
                lambda p=plan, n=partitions: [measure_partitions(scale, p, n)]  # type: ignore[misc]
            )
        for partitions in (1, 64):
            progress(f"{plan}, orderings, {partitions} partitions")
            rows += run_forked(
                lambda p=plan, n=partitions: measure_orderings(scale, p, n)  # type: ignore[misc]
            )
    if scale.variants:
        progress("many publishers, many shapes")
        rows += run_forked(lambda: measure_variants(scale))
    for distribution in scale.distributions:
        progress(f"unwanted traffic, {distribution}")
        rows += measure_unwanted(scale, distribution)
    return rows


def _ratios(scale: Scale, rows: list[Row]) -> dict[str, float]:
    def pick(measure: str, **columns: Any) -> Row:
        return next(
            row
            for row in rows
            if row["measure"] == measure and all(row[k] == v for k, v in columns.items())
        )

    net = {"plan": "legs", "distribution": "zipf", "ordering": "net"}
    small, large = scale.active[0], scale.active[-1]
    reference = 100_000 if 100_000 in scale.active else large
    cost = {n: 1 / pick("throughput", active=n, **net)["requests_per_s"] for n in (small, large)}
    many, one = (pick("orderings", plan="lpm", partitions=n, slice=SLICE) for n in (64, 1))
    unwanted = [
        row["unwanted_per_1000_events"]
        for row in rows
        if row["measure"] == "unwanted" and row["distribution"] == "zipf"
    ]
    return {
        "requests_per_s": pick("throughput", active=reference, **net)["requests_per_s"],
        "growth": cost[large] / cost[small],
        "ordered_saving": many["ordered_saving"],
        "net_saving": many["net_saving"],
        "ordered_saving_one_partition": one["ordered_saving"],
        "net_saving_one_partition": one["net_saving"],
        "unwanted_legs_over_lpm": unwanted[-1] / unwanted[0],
        "unwanted_legs_over_lpm_from_schema": unwanted[1] / unwanted[0],
    }
