"""The job on a real cluster: its workers have a Python with pyarrow, but without dzflow."""

import json
import subprocess
from pathlib import Path

import pytest

from spark.session import SparkUnavailable, check_installation
from tests.service import COMMAND
from tests.spark import quick
from tests.spark.cluster import WORKERS, standalone_cluster
from tests.spark.rows import write_rows
from tests.spark.test_rebalance_job import QUARTERS, footer, quarters, space

TIMEOUT = 300
SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    **quick.SETTINGS,
    "spark.sql.shuffle.partitions": str(WORKERS),
    # Nothing begins before both workers are there.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    "spark.cores.max": str(WORKERS),
}


def test_rebalance_runs_on_a_cluster_and_ships_its_code(tmp_path: Path) -> None:
    try:
        check_installation()
    except SparkUnavailable as missing:
        pytest.skip(str(missing))
    traces, result = tmp_path / "traces", tmp_path / "result.json"
    rows = quarters(a=300, b=300, c=100, d=100)
    rows[0]["filter"] = '"price == 100"'  # needs the parser, too
    write_rows(traces, rows, footer=footer(space(QUARTERS)))
    folder = tmp_path / "cluster"
    folder.mkdir()
    with standalone_cluster(folder) as cluster:
        settings = {**SETTINGS, "spark.pyspark.python": str(cluster.python)}
        words = [f"--setting={key}={value}" for key, value in settings.items()]
        words += [f"--master={cluster.master}", f"--json={result}"]
        done = subprocess.run(
            [COMMAND, "trace", "rebalance", traces, *words],
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            env=quick.quick_environment(),
        )
        assert done.returncode == 0, done.stderr
        assert cluster.used_workers() == WORKERS
    (found,) = json.loads(result.read_text())["spaces"]
    assert (found["regions"], found["damaged"]) == (4, 0)
    assert found["before"]["imbalance"] == pytest.approx(1.5)
    assert found["after"]["imbalance"] == pytest.approx(1.0)
    assert len(found["plan"]["assignment"]) == 2
