"""Measures the engine with a workload that was rebuilt from traces, instead of the thesis's."""

import time
from itertools import islice
from pathlib import Path

from bench.engines.measures import ORDERINGS, SLICE
from bench.processes.forked import run_forked
from bench.processes.new_process import run_in_new_process
from bench.replay.hosts import place_hosts
from bench.replay.maps import MapReplay
from bench.replay.replayer import Replayer
from bench.replay.spaces import load_spaces
from bench.report import Progress, Report, Row
from configurators.engine.engine import Ordering
from sdn.network.topologies import topology
from spark.workload.file import WorkloadFile

TOPOLOGY = "fat-tree:102"
QUICK_REQUESTS = 12_000


def measure_workload(path: Path, quick: bool, progress: Progress) -> Report:
    """Requests per second and flow operations with each ordering, under the traced maps.

    `quick` stops after the first requests. BadWorkload if the file has no workload.
    """
    about = WorkloadFile(path).about  # a file that cannot be used is refused before anything runs
    most = QUICK_REQUESTS if quick else None
    params = {"quick": quick, "workload": path.name, "requests": about.total, "slice": SLICE}
    report = Report("engine", {**params, "topology": TOPOLOGY})
    report.rows = run_in_new_process(progress, _measure_all, path, most)
    by = {row["ordering"]: row for row in report.rows}
    fifo = by["fifo"]["operations"] or 1
    report.ratios = {
        "requests_per_s": by["net"]["requests_per_s"],
        "ordered_saving": 1 - by["ordered"]["operations"] / fifo,
        "net_saving": 1 - by["net"]["operations"] / fifo,
    }
    return report


def _measure_all(progress: Progress, path: Path, most: int | None) -> list[Row]:
    rows: list[Row] = []
    for ordering in ORDERINGS:
        progress(f"{path.name}, {ordering}")
        rows += run_forked(lambda o=ordering: [_measure(path, o, most)])  # type: ignore[misc]
    return rows


def _measure(path: Path, ordering: Ordering, most: int | None) -> Row:
    workload = WorkloadFile(path)
    network = topology(TOPOLOGY)
    spaces = load_spaces(workload.spaces())
    partitions = MapReplay(spaces, network, SLICE, time.perf_counter, ordering)
    hosts = place_hosts(workload.about.hosts, network)
    replayer = Replayer(spaces, [partitions], hosts)
    replayer.replay(islice(workload.requests(), most))
    found = partitions.figures({})
    requests = sum(replayer.requests.values())
    seconds = found.work_ms / 1_000
    return {
        "measure": "workload",
        "ordering": ordering,
        "requests": requests,
        "partials": found.partials,
        "slices": found.slices,
        "requests_per_s": requests / seconds if seconds else 0.0,
        "operations": found.operations.total,
        "operations_per_request": found.operations.total / requests if requests else 0.0,
        "entries": found.entries,
        "most_entries": found.most_entries,
    }
