"""The engine benchmark runs, and reports the promised ratios."""

import json
from pathlib import Path

import pytest

from bench import engine
from bench.engines.measures import SLICE, Scale

PROMISED = {
    "requests_per_s",
    "growth",
    "ordered_saving",
    "net_saving",
    "unwanted_legs_over_lpm",
}


def test_a_small_run_reports_all_ratios(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tiny = Scale(
        (30, 90),
        60,
        ("legs", "lpm"),
        ("zipf",),
        slices=(SLICE,),
        ordering_requests=60,
        partitions_active=60,
        filters=30,
        events=30,
        sample=60,
        variants=(("few", 2, 8),),
    )
    monkeypatch.setattr(engine, "QUICK", tiny)
    steps: list[str] = []
    report = engine.run(True, steps.append)
    report.write(tmp_path / "out.json")
    written = json.loads((tmp_path / "out.json").read_text())
    assert set(written) == {"bench", "machine", "params", "rows", "ratios"}
    assert written["ratios"].keys() >= PROMISED
    assert {row["measure"] for row in written["rows"]} == {
        "throughput",
        "state",
        "partitions",
        "orderings",
        "unwanted",
        "variants",
    }
    assert steps
