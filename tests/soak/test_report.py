"""Samples become series, verdicts, tables and a plot."""

from io import StringIO
from pathlib import Path
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace
from rich.console import Console

from tests.soak.report import (
    all_series,
    as_csv,
    as_svg,
    minute_table,
    sparkline,
    verdict_table,
    verdicts,
    write,
)
from tests.soak.run import exit_code, nested
from tests.soak.sampling import Sample

FIRST = Sample(
    minute=0.0,
    memory={"api": 250.0, "etcd": 400.0},
    cpu_us={"api": 200.0, "etcd": 90.0},
    etcd={
        "size": 90.0,
        "in_use": 80.0,
        "revision": 1.0,
        "records": 5_000.0,
        "finished": 1_000.0,
        "idempotency": 10.0,
    },
    disk={"etcd": 200.0, "logs": 1.0},
    requests_per_s=2_500.0,
    p50_ms=100.0,
    p99_ms=300.0,
    refused=0,
    failed=0,
    active=5_000,
)


def hour(leak: float = 0.0) -> list[Sample]:
    """A sample every 10 s for an hour; the API's memory grows by `leak` MB per minute."""
    return [
        replace(FIRST, minute=n / 6, memory={"api": 250.0 + leak * n / 6, "etcd": 400.0})
        for n in range(360)
    ]


def trends(samples: list[Sample]) -> dict[str, str]:
    found = verdicts(all_series(samples), 10.0, 0.05)
    return {series.name: verdict.trend for series, verdict in found if verdict}


def test_a_service_that_stays_as_it_is_is_flat_in_every_series() -> None:
    found = trends(hour())
    assert set(found.values()) == {"flat"}
    assert {"memory api", "etcd in use", "etcd finished", "disk logs", "p99", "requests"} <= set(
        found
    )


def test_a_leak_shows_in_its_role_and_in_the_sum() -> None:
    found = trends(hour(leak=1.0))
    assert {name for name, trend in found.items() if trend != "flat"} == {
        "memory api",
        "memory all",
    }


def test_time_may_vary_more_than_memory_and_the_load_is_not_judged() -> None:
    samples = [
        replace(
            sample,
            p50_ms=100.0 + 0.2 * sample.minute,
            memory={**sample.memory, "load": 100.0 + sample.minute},
        )
        for sample in hour()
    ]
    found = trends(samples)
    assert found["p50"] == found["memory all"] == "flat"
    assert "memory load" not in found


def test_what_happens_before_the_tenth_minute_does_not_count() -> None:
    samples = hour()
    for n in range(55):
        samples[n] = replace(samples[n], memory={"api": 10.0, "etcd": 5.0}, p99_ms=1.0)
    assert set(trends(samples).values()) == {"flat"}


@pytest.mark.parametrize(("leak", "failed", "code"), [(0.0, 0, 0), (1.0, 0, 1), (0.0, 1, 1)])
def test_the_exit_code_tells_of_leaks_and_of_calls_without_an_answer(
    leak: float, failed: int, code: int
) -> None:
    samples = hour(leak)
    samples[-1] = replace(samples[-1], failed=failed)
    assert exit_code(verdicts(all_series(samples), 10.0, 0.05), samples) == code


def test_tables_have_a_row_for_each_minute_and_each_series() -> None:
    samples = hour()
    series = all_series(samples)
    assert minute_table(samples).row_count == 60
    table = verdict_table(verdicts(series, 10.0, 0.05))
    assert table.row_count == len(series)
    console = Console(width=200, file=StringIO())
    console.print(table)
    assert isinstance(console.file, StringIO)
    assert "memory api" in console.file.getvalue()


def test_everything_is_written(tmp_path: Path) -> None:
    samples = hour()[:13]
    write(tmp_path, samples, 10.0)
    assert {path.name for path in tmp_path.iterdir()} == {"samples.json", "samples.csv", "soak.svg"}
    series = all_series(samples)
    lines = as_csv(series).splitlines()
    assert len(lines) == 1 + len(samples)
    assert lines[0].startswith("minute,memory api MB,")
    plot = ElementTree.fromstring(as_svg(series, 1.0))  # noqa: S314
    assert len(plot.findall("{http://www.w3.org/2000/svg}g")) == len(series)


def test_a_sparkline_goes_from_the_lowest_to_the_highest_bar() -> None:
    assert sparkline([1, 2, 3, 4, 5, 6, 7, 8]) == "▁▂▃▄▅▆▇█"
    assert sparkline([5.0] * 4) == "▁▁▁▁"
    assert sparkline([]) == ""
    assert len(sparkline(list(range(1_000)))) <= 30


def test_options_are_settings_in_sections() -> None:
    assert nested(["mode=sea", "limits.traces=5", "limits.queue=7"]) == {
        "mode": "sea",
        "limits": {"traces": "5", "queue": "7"},
    }
