"""The benchmark of the dashboard runs, and its clients read what the service sends."""

import pytest

from bench import dashboard


def test_a_small_run_reports_rates_with_and_without_dashboards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scale = dashboard.Scale(rounds=1, seconds=2.5, active=300, topology="line:3", partitions=4)
    monkeypatch.setattr(dashboard, "QUICK", scale)
    report = dashboard.run(True, lambda _: None)
    without, beside = report.rows
    assert (without["pages"], beside["pages"]) == (0, 3)
    assert without["received_kb_per_s"] == 0
    assert beside["received_kb_per_s"] > 1
    assert all(row["requests_per_s"] > 0 and row["refused"] == 0 for row in report.rows)
    assert report.ratios.keys() == {"requests_per_s_with_over_without", "api_us_with_over_without"}
    assert all(ratio > 0 for ratio in report.ratios.values())
