"""The balance benchmark runs, reports the promised ratio, and draws its figures."""

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bench import balance
from bench.balancing.cases import FULL, QUICK, SYSTEMS, THESIS, Case, Scale
from bench.balancing.measurement import read_migrations
from bench.balancing.plots import charts, write
from bench.load.generator import LoadFailed
from bench.report import Report, read


def tiny() -> Scale:
    """The smallest measurement of both sides of the ratio, and of a burst."""
    kind = THESIS._replace(rate=50)
    return Scale(
        (
            *(
                Case("scaling", system, "zipf", kind, configurators=2, partitions=8)
                for system in ("SNA", "SNA-LB")
            ),
            Case("slices", "SNA", "uniform", kind, 1, 1, plan="lpm"),
        ),
        active=20,
        burst=20,
        settle=0.5,
        seconds=0.5,
        topology="line:3",
        reference=2,
    )


def test_a_small_run_reports_the_ratio(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(balance, "QUICK", tiny())
    steps: list[str] = []
    report = balance.run(True, steps.append)
    report.write(tmp_path / "balance.json")
    written = read(tmp_path / "balance.json")
    assert written.ratios.keys() == {"latency_lb_over_none"}
    assert len(written.rows) == len(steps) == 3
    for row in written.rows:
        assert row["refused"] == 0
        assert row["requests_per_s"] > 0
        assert row["mean_ms"] > 0
    report.show(Console(file=StringIO()))
    paths = balance.write_plots(report, tmp_path / "plots")
    assert [path.name for path in paths] == ["figure-6.7-at-once-1.png", "figure-6.9.png"]


def test_a_case_that_fails_is_reported_and_the_others_are_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    scale = tiny()._replace(cases=tiny().cases[:2])

    def measure(case: Case, _: Scale) -> dict[str, Any]:
        if case.system == "SNA-LB":
            raise LoadFailed("no answer")
        return rows(none=1.0)[0]

    monkeypatch.setattr(balance, "QUICK", scale)
    monkeypatch.setattr(balance, "measure", measure)
    report = balance.run(True, lambda _: None)
    assert [row["measure"] for row in report.rows] == ["scaling", "failed"]
    assert report.rows[1]["system"] == "SNA-LB"
    assert "no answer" in report.rows[1]["why"]
    assert report.ratios == {}
    again = Report("balance", {}, rows(none=1.0, lb=2.0), {})
    assert balance.combined(report, again).rows == again.rows
    report.show(Console(file=StringIO()))
    assert len(balance.write_plots(report, tmp_path)) == 1


def test_a_full_run_has_all_figures_of_the_thesis() -> None:
    assert {case.section for case in FULL.cases} == set(balance.SECTIONS)
    scaling = [case for case in FULL.cases if case.section == "scaling"]
    assert {(case.system, case.content) for case in scaling if case.configurators == 8} == {
        (system, content) for system in SYSTEMS for content in ("uniform", "zipf")
    }
    assert {case.configurators for case in scaling} == {1, 2, 4, 8}
    parts = {case.partitions for case in FULL.cases if case.section == "partitions"}
    assert (min(parts), max(parts)) == (4, 512)
    assert {case.content for case in QUICK.cases} == {"zipf"}


def rows(**latencies: float) -> list[dict[str, Any]]:
    names = {"none": "SNA", "lb": "SNA-LB", "thesis": "SNA-LB (thesis)", "sea": "SEA"}
    return [
        {
            "measure": "scaling",
            "system": names[name],
            "content": "zipf",
            "configurators": 4,
            "ordering": "net",
            "requests_per_s": 100.0,
            "mean_ms": latency,
        }
        for name, latency in latencies.items()
    ]


def test_ratios_are_those_of_zipf_load_and_four_configurators() -> None:
    others = [row | {"content": "uniform", "mean_ms": 7.0} for row in rows(none=1.0, lb=1.0)]
    others += [row | {"configurators": 2, "mean_ms": 7.0} for row in rows(none=1.0, lb=1.0)]
    found = balance.ratios([*rows(none=100.0, lb=20.0, thesis=50.0, sea=40.0), *others])
    assert found == {
        "latency_lb_over_none": 0.2,
        "latency_thesis_lb_over_none": 0.5,
        "latency_sea_over_none": 0.4,
    }
    assert balance.ratios(others) == {}


def test_a_repeated_section_replaces_only_itself() -> None:
    other = {**rows(none=3.0)[0], "measure": "partitions"}
    before = Report("balance", {}, [*rows(none=1.0, lb=1.0), other])
    after = Report("balance", {}, rows(none=2.0, lb=1.0))
    found = balance.combined(before, after)
    assert found.rows == [other, *rows(none=2.0, lb=1.0)]
    assert found.ratios == {"latency_lb_over_none": 0.5}


def test_migrations_are_read_from_metrics() -> None:
    page = (
        "# HELP dzflow_migrations_total Attempts\n"
        'dzflow_migrations_total{outcome="done"} 3.0\n'
        'dzflow_migrations_total{outcome="failed"} 1.0\n'
        "dzflow_migration_held_requests_total 12.0\n"
    )
    assert read_migrations(page) == (3.0, 12.0)
    assert read_migrations("") == (0.0, 0.0)


def test_a_figure_has_a_chart_for_each_measure_and_content(tmp_path: Path) -> None:
    both = [*rows(none=1.0, lb=2.0), *(r | {"content": "uniform"} for r in rows(none=3.0))]
    [(name, found)] = charts(both).items()
    assert name == "figure-6.7-at-once-1"
    latency = next(chart for chart in found if chart.title == "mean latency, ms, zipf")
    assert {line: list(values.values()) for line, values in latency.lines.items()} == {
        "SNA": [1.0],
        "SNA-LB": [2.0],
    }
    assert len(found) == 4
    [path] = write(both, tmp_path)
    assert path.name == "figure-6.7-at-once-1.png"
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("section", "figure", "measures"),
    [
        ("scaling", "figure-6.7-at-once-1", ["requests/s", "mean latency"]),
        ("scaling_default", "figure-6.7-default", ["requests/s", "mean latency"]),
        ("partitions", "figure-6.8", ["mean latency", "flow operations"]),
        ("slices", "figure-6.9", ["flow operations", "mean latency", "latency of the slowest"]),
    ],
)
def test_figures_have_the_measures_and_lines_of_the_thesis(
    section: str, figure: str, measures: list[str]
) -> None:
    cases = [case for case in FULL.cases if case.section == section]
    columns = {"requests_per_s": 9.0, "operations_per_request": 3.0, "mean_ms": 5.0, "p999_ms": 8.0}
    [(name, found)] = charts([{"measure": section, **c.columns, **columns} for c in cases]).items()
    assert name == figure
    contents = list(dict.fromkeys(case.content for case in cases))
    titles = [f"{measure}|{content}" for measure in measures for content in contents]
    for chart, title in zip(found, titles, strict=True):
        measure, content = title.split("|")
        assert chart.title.startswith(measure)
        assert chart.title.endswith(content)
        assert chart.logarithmic == ("latency" in measure)
        lines = {c.ordering if section == "slices" else c.system for c in cases}
        assert set(chart.lines) == lines
        assert all(set(values) <= set(chart.places) for values in chart.lines.values())
