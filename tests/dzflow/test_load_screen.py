"""The screen of `dzflow top`, drawn from a recorded load."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dzflow.cli.service.load_screen import LoadScreen, Sort, in_order

RECORDED = json.loads(Path(__file__).with_name("recorded_load.json").read_text())
"""What a service with two configurators answered to `GET /load` and `GET /readyz`."""
LOAD, READY = RECORDED["load"], RECORDED["ready"]


def drawn(
    load: dict[str, Any] = LOAD,
    ready: dict[str, Any] = READY,
    width: int = 200,
    height: int | None = None,
    sort: Sort = "load",
) -> list[str]:
    """The lines on a terminal of this size."""
    console = Console(file=io.StringIO(), width=width, height=height or 100)
    console.print(LoadScreen(console, sort, height).draw(load, ready))
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def crowd(number: int) -> dict[str, Any]:
    """A load with so many partitions."""
    (first, *_) = LOAD["partitions"]
    parts = [{**first, "id": f"1.0/{n}", "utilisation": n / number} for n in range(number)]
    return {**LOAD, "partitions": parts}


def test_the_head_has_state_rates_queue_and_memory() -> None:
    state, work, more = drawn()[:3]
    assert state.endswith("  ready  partitions 7/7 ready  switches 10/10 up")
    assert work == "tasks/s 971 in, 971 done  queue 0, oldest 0.0 s  undefined 0"
    assert more == "flow ops/s 0  entries 144  memory 290 MiB  cpu 58%"


def test_what_is_impaired_is_counted() -> None:
    ready = {**READY, "status": "degraded", "impaired_counts": {"total": 3}}
    assert "  degraded (3 impaired)  " in drawn(ready=ready)[0]


def test_every_configurator_and_partition_has_a_row() -> None:
    lines = drawn()
    for one in LOAD["configurators"]:
        assert any(line.startswith(f"{one['id']} ") for line in lines)
    for part in LOAD["partitions"]:
        row = next(line for line in lines if line.startswith(f"{part['id']} "))
        assert part["configurator"] in row


def test_what_was_not_observed_is_a_dash() -> None:
    idle = {**LOAD["partitions"][0], "wait_ms": None, "decide_ms": None, "push_ms": None}
    row = drawn({**LOAD, "partitions": [idle]})[-1]
    assert row.split()[7:10] == ["-", "-", "-"]


@pytest.mark.parametrize(
    ("sort", "member"),
    [
        ("load", "utilisation"),
        ("queue", "queued"),
        ("rate", "done_per_s"),
        ("wait", "wait_ms"),
        ("ops", "flow_ops_per_s"),
    ],
)
def test_the_partitions_with_the_most_come_first(sort: Sort, member: str) -> None:
    idle = {**LOAD["partitions"][0], "id": "idle", "wait_ms": None}
    parts = [{**idle, "id": str(n), member: n} for n in (2, 9, 4)]
    found = in_order([idle, *parts], sort)
    assert [part["id"] for part in found if part["id"] != "idle"] == ["9", "4", "2"]
    shown = [line.split()[0] for line in drawn({**LOAD, "partitions": parts}, sort=sort)[-3:]]
    assert shown == ["9", "4", "2"]


@pytest.mark.parametrize("width", [80, 60])
def test_a_narrow_terminal_shows_less_but_whole_names(width: int) -> None:
    lines = drawn(width=width)
    assert all(len(line) <= width for line in lines)
    assert not any("…" in line for line in lines)
    for part in LOAD["partitions"]:
        assert any(line.startswith(f"{part['id']} ") for line in lines)
    if width == 80:
        title = next(line for line in lines if line.startswith("partition "))
        assert title.split()[2:] == ["load", "queue", "in/s", "done/s", "wait", "ms", "ops/s"]


@pytest.mark.parametrize("height", [12, 24, 50])
def test_a_low_terminal_shows_the_first_partitions_and_counts_the_rest(height: int) -> None:
    lines = drawn(crowd(512), height=height)
    assert len(lines) == height
    rows = [line.split()[0] for line in lines if line.startswith("1.0/")]
    assert rows == [f"1.0/{511 - n}" for n in range(len(rows))]
    assert lines[-1] == f"{512 - len(rows)} more"


def test_many_configurators_leave_room_for_partitions() -> None:
    process = LOAD["configurators"][0]
    processes = [{**process, "id": f"c{n:02}"} for n in range(16)]
    lines = drawn({**crowd(512), "configurators": processes}, height=30)
    assert len(lines) == 30
    assert sum(line.startswith("c") and line[1].isdigit() for line in lines) == 6
    assert "10 more" in lines
    assert sum(line.startswith("1.0/") for line in lines) == 15


def test_nothing_measured_is_an_empty_table() -> None:
    lines = drawn({**LOAD, "configurators": [], "partitions": []}, height=24)
    assert lines[3:5] == [
        "",
        "configurator  cpu  memory  partitions  queue  oldest s  in/s  done/s"
        "  wait ms  decide ms  push ms  ops/s  undefined  active  entries",
    ]
