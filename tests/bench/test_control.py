"""The control benchmark runs, and reports the promised ratios."""

from io import StringIO
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bench import control
from bench.control import CENTRAL_RATE, REFERENCE, Arrivals, Case
from bench.load.generator import LoadResult
from bench.report import Report, read


def tiny() -> control.Scale:
    """The smallest measurement of each section."""
    arrivals = (
        Arrivals("single", "uniform", 50, 0.2),
        Arrivals("batch", "poisson", CENTRAL_RATE, 0.04),
    )
    return control.Scale(
        tuple(
            Case(mode, 2, "uniform", 0.0, arrivals, fairness=0.5, lone=4) for mode in control.MODES
        ),
        active=600,
        saturation=0.2,
        single=0.2,
        central=2.0,
        topology="line:3",
        partitions=8,
    )


def test_a_small_run_in_parts_reports_all_ratios(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(control, "QUICK", tiny())
    steps: list[str] = []
    parts = control.run(True, steps.append)
    parts.write(tmp_path / "out.json")
    assert not any(name.startswith("sea") for name in parts.ratios)
    sea = control.run(True, steps.append, ["sea"])
    report = control.combined(read(tmp_path / "out.json"), sea)
    names = {"requests_per_s", "latency_over_central", "fairness_p99"}
    names |= {"lone_ms", "lone_over_two_writes", "lone_over_two_writes_after_rest"}
    assert report.ratios.keys() >= names | {f"sea_{name}" for name in names}
    assert {row["measure"] for row in report.rows} == {
        "centralised",
        "saturation",
        "latency",
        "stages",
        "processor",
        "fairness",
        "lone",
    }
    report.show(Console(file=StringIO()))
    for row in report.rows:
        if row["measure"] in ("saturation", "latency"):
            assert row["refused"] == 0
            assert row["requests_per_s"] > 0
        if row["measure"] == "stages":
            # The stages add up to the total, except for rounding.
            assert row["largest_gap_ms"] < 0.01
            assert row["total_ms"] > 0
    spent = [row for row in report.rows if row["measure"] == "processor"]
    for kind in ("api", "configurators", "southbound", "network", "etcd", "load"):
        assert sum(row[f"{kind}_us"] for row in spent) > 0, kind
    assert steps[0].startswith("[1/2] centralised")
    assert steps[-1].startswith("[1/1] sea, 2 configurators, uniform, switches 0 ms")


def test_a_full_run_compares_both_modes_in_the_same_cases() -> None:
    cases = control.FULL.cases
    sna, sea = (
        [case.columns | {"mode": ""} for case in cases if case.mode == mode]
        for mode in control.MODES
    )
    assert sna == sea
    for content, configurators in product(("uniform", "zipf"), (1, 2, 4)):
        wanted = {"configurators": configurators, "content": content, "switch_delay_ms": 0.0}
        assert {"mode": "", **wanted} in sna
    for case in cases:
        assert Arrivals("batch", "poisson", CENTRAL_RATE) in case.arrivals


def test_a_repeated_section_replaces_only_itself() -> None:
    def report(**rates: float) -> Report:
        rows = [
            {"measure": "latency", "mode": mode, "configurators": 1, "mean_ms": rate}
            for mode, rate in rates.items()
        ]
        return Report("control", {}, [{"measure": "centralised"}, *rows])

    after = report(sea=3.0)
    del after.rows[0]
    found = control.combined(report(sna=1.0, sea=2.0), after).rows
    assert found == report(sna=1.0, sea=3.0).rows


def test_ratios_are_those_of_the_reference_case() -> None:
    def row(measure: str, **more: Any) -> dict[str, Any]:
        return {"measure": measure, "mode": "sna", **REFERENCE, **more}

    fast = {"calls": "batch", "arrival": "saturation", "rate": 0}
    at_rate = {"arrival": "poisson", "rate": CENTRAL_RATE}
    central = row("centralised", **at_rate, requests_per_s=500.0, mean_ms=10_000.0)
    del central["configurators"], central["mode"]
    rows = [
        central,
        row("saturation", **fast | {"calls": "single"}, requests_per_s=700.0),
        row("saturation", **fast, requests_per_s=3_000.0) | {"configurators": 4},
        row("saturation", **fast, requests_per_s=2_500.0),
        row("latency", calls="single", **at_rate, mean_ms=900.0),
        row("latency", calls="batch", **at_rate, mean_ms=50.0),
        row("saturation", **fast, requests_per_s=1_500.0) | {"mode": "sea"},
        row("fairness", beside="nobody", p99_ms=20.0),
        row("fairness", beside="flood", p99_ms=80.0),
        row("lone", p50_ms=5.0, etcd_write_ms=1.25, etcd_write_after_rest_ms=2.5),
    ]
    assert control.ratios(rows) == {
        "requests_per_s": 2_500.0,
        "latency_over_central": 0.005,
        "requests_per_s_over_central": 5.0,
        "fairness_p99": 4.0,
        "lone_ms": 5.0,
        "lone_over_two_writes": 2.0,
        "lone_over_two_writes_after_rest": 1.0,
        "sea_requests_per_s": 1_500.0,
        "sea_requests_per_s_over_central": 3.0,
    }
    assert control.ratios(rows[1:4]) == {"requests_per_s": 2_500.0}


def test_processor_time_is_per_request() -> None:
    result = LoadResult(latencies=[0.1] * 100)
    row = control.processor_columns({"api": 0.02, "load": 0.01}, result)
    assert (row["api_us"], row["load_us"], row["etcd_us"]) == (200.0, 100.0, 0.0)
    assert row["all_us"] == 300.0
