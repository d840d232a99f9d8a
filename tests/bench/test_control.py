"""The control plane's benchmark runs and reports the ratios that are promised."""

from pathlib import Path
from typing import Any

import pytest

from bench import control
from bench.control import CENTRAL_RATE, REFERENCE, Arrivals
from bench.load import Measured


def test_a_small_run_reports_all_ratios(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tiny = control.Scale(
        (2,),
        (0.0,),
        ("uniform",),
        (
            Arrivals("single", "uniform", 50, 0.2),
            Arrivals("batch", "poisson", CENTRAL_RATE, 0.04),
        ),
        active=600,
        saturation=0.2,
        single=0.2,
        central=2.0,
        topology="line:3",
        partitions=8,
    )
    monkeypatch.setattr(control, "QUICK", tiny)
    steps: list[str] = []
    report = control.run(True, steps.append)
    report.write(tmp_path / "out.json")
    assert report.ratios.keys() >= {"requests_per_s", "latency_over_central"}
    assert {row["measure"] for row in report.rows} == {
        "centralised",
        "saturation",
        "latency",
        "stages",
        "processor",
    }
    for row in report.rows:
        if row["measure"] in ("saturation", "latency"):
            assert row["refused"] == 0
            assert row["requests_per_s"] > 0
        if row["measure"] == "stages":
            # What the parts add up to is what is said to be the whole, but for rounding.
            assert row["largest_gap_ms"] < 0.01
            assert row["total_ms"] > 0
    spent = [row for row in report.rows if row["measure"] == "processor"]
    for kind in ("api", "configurators", "southbound", "network", "etcd", "load"):
        assert sum(row[f"{kind}_us"] for row in spent) > 0, kind
    assert steps


def test_ratios_are_those_of_the_reference() -> None:
    def row(measure: str, **more: Any) -> dict[str, Any]:
        return {"measure": measure, **REFERENCE, **more}

    fast = {"way": "batch", "arrival": "as fast as can be", "rate": 0}
    at_rate = {"arrival": "poisson", "rate": CENTRAL_RATE}
    central = row("centralised", **at_rate, requests_per_s=500.0, mean_ms=10_000.0)
    del central["configurators"]
    rows = [
        central,
        row("saturation", **fast | {"way": "single"}, requests_per_s=700.0),
        row("saturation", **fast, requests_per_s=3_000.0) | {"configurators": 4},
        row("saturation", **fast, requests_per_s=2_500.0),
        row("latency", way="single", **at_rate, mean_ms=900.0),
        row("latency", way="batch", **at_rate, mean_ms=50.0),
    ]
    assert control.ratios(rows) == {
        "requests_per_s": 2_500.0,
        "latency_over_central": 0.005,
        "requests_per_s_over_central": 5.0,
    }


def test_processor_time_is_per_request() -> None:
    measured = Measured(latencies=[0.1] * 100)
    row = control.processor_row({"api": 0.02, "load": 0.01}, measured)
    assert (row["api_us"], row["load_us"], row["etcd_us"]) == (200.0, 100.0, 0.0)
    assert row["all_us"] == 300.0
