"""How full etcd's database is, through REST."""

import subprocess
import sys
from pathlib import Path

import httpx

from tests.stack import Stack

COMMAND = str(Path(sys.executable).parent / "dzflow")


def test_readyz_and_metrics_say_how_full_etcd_is(client: httpx.Client) -> None:
    store = client.get("/readyz").json()["store"]
    assert 0 < store["in_use"] <= store["size"] < store["quota"]
    assert store["level"] == "normal"
    metrics = client.get("/metrics").text
    for name in (
        "dzflow_etcd_size_bytes",
        "dzflow_etcd_in_use_bytes",
        "dzflow_etcd_quota_bytes",
        "dzflow_etcd_full 0.0",
        "dzflow_etcd_refusing 0.0",
        'dzflow_kept{kind="finished"}',
        'dzflow_kept_bytes{kind="keys"}',
        'dzflow_removed_early_total{kind="finished"}',
    ):
        assert f"\n{name}" in metrics


def test_only_operators_see_how_full_etcd_is(stack: Stack) -> None:
    url = f"{stack.guarded_url}/readyz"
    assert "store" not in httpx.get(url, timeout=60).json()


def test_etcd_is_compacted_on_demand_by_call_and_command(
    client: httpx.Client, stack: Stack
) -> None:
    found = client.post("/etcd/compact").json()
    assert not found["full"]
    assert 0 < found["in_use"] <= found["size"] <= found["size_before"]
    done = subprocess.run(
        [COMMAND, "etcd", "compact", "--url", stack.url],
        capture_output=True,
        text=True,
        env={"COLUMNS": "200", "PATH": "/usr/bin:/bin"},
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "quota: 2,048 MiB" in done.stdout
    shown = subprocess.run(
        [COMMAND, "status", "--url", stack.url],
        capture_output=True,
        text=True,
        env={"COLUMNS": "200", "PATH": "/usr/bin:/bin"},
        timeout=60,
    )
    assert "etcd has " in shown.stdout
    assert "of 2,048 MiB (" in shown.stdout
