"""Balancing and sharing: throughput and latency of SNA, SNA-LB and SEA, as in thesis section 6.6.

Each case starts a service on emulated switches that acknowledge late, assigns the partitions to
configurators at random (SNA), and sends Poisson arrivals in batches. The first seconds of load are
not measured: in them the balancer acts. Everything shares the machine.
"""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import get_args

from bench.balancing import plots
from bench.balancing.cases import FULL, QUICK, Section
from bench.balancing.measurement import measure
from bench.report import Progress, Report, Row
from dzflow.errors import DzflowError

SECTIONS: tuple[str, ...] = get_args(Section)  # for --only
FAILED = "failed"  # the table of cases that could not be measured


def run(quick: bool, progress: Progress, only: Collection[str] = ()) -> Report:
    """Measure all cases, or some sections. `progress` is called with the name of each step."""
    scale = QUICK if quick else FULL
    cases = [case for case in scale.cases if not only or case.section in only]
    params = {"quick": quick, **scale._asdict(), "cases": len(cases)}
    report = Report("balance", params)
    for step, case in enumerate(cases, 1):
        progress(f"[{step}/{len(cases)}] {case}")
        try:
            report.rows.append(measure(case, scale))
        except (DzflowError, TimeoutError) as error:
            # The other cases of a run that takes an hour are worth having.
            progress(f"[{step}/{len(cases)}] failed: {error!r}")
            failed = {"measure": FAILED, "section": case.section, "why": repr(error)}
            report.rows.append(failed | case.columns)
    report.ratios = ratios(report.rows, scale.reference)
    return report


def combined(before: Report, after: Report) -> Report:
    """The sections of the later report, and those that only the earlier one has."""
    replaced = {_section(row) for row in after.rows}
    rows = [*(row for row in before.rows if _section(row) not in replaced), *after.rows]
    return Report("balance", after.params, rows, ratios(rows), after.machine)


def _section(row: Row) -> str:
    return str(row["section"] if row["measure"] == FAILED else row["measure"])


def write_plots(report: Report, folder: Path) -> list[Path]:
    """Draw the thesis's figures as PNG files in a folder; returns their paths."""
    return plots.write(report.rows, folder)


def ratios(rows: Sequence[Row], configurators: int = FULL.reference) -> dict[str, float]:
    """What balancing and sharing gain under Zipf load, with the thesis's configurators.

    `latency_lb_over_none` is the mean latency with our balancing over that without. The others
    compare the thesis's policy and mode `sea` with the same; they are there if these were measured.
    """
    found: dict[str, float] = {}
    reference = {"measure": "scaling", "content": "zipf", "configurators": configurators}
    latency = {
        row["system"]: row["mean_ms"]
        for row in rows
        if all(row[name] == value for name, value in reference.items())
    }
    none = latency.get("SNA")
    names = {"SNA-LB": "lb", "SNA-LB (thesis)": "thesis_lb", "SEA": "sea"}
    for system, name in names.items():
        if none and system in latency:
            found[f"latency_{name}_over_none"] = latency[system] / none
    return found
