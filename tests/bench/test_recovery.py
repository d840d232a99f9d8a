"""The recovery benchmark kills components and measures when service is back."""

import json
from pathlib import Path

import pytest

from bench import recovery
from bench.load.probes import Probe, ProbeResult, choose_probes
from bench.migration import Wait, wait_columns
from bench.processes.components import Partition, Status, last_start
from bench.recovery import ratios, service_columns
from bench.report import Report
from bench.workload import make_space
from dzflow.filters import Conjunction, Filter


def test_a_small_run_sees_components_come_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tiny = recovery.Scale(
        (100,), ("configurator", "etcd"), topology="line:3", partitions=8, reference=100, moves=2
    )
    monkeypatch.setattr(recovery, "QUICK", tiny)
    steps: list[str] = []
    report = recovery.run(True, steps.append)
    report.write(tmp_path / "recovery.json")
    written = json.loads((tmp_path / "recovery.json").read_text())
    assert written["ratios"].keys() == {"takeover_s", "takeover_read_back_s", "move_wait_ms"}
    (moves,) = (row for row in written["rows"] if row["measure"] == "moves")
    assert moves["moves"] == 2
    assert 0 < moves["usual_ms"] <= moves["usual_longest_ms"]
    assert 0 < moves["longest_ms"] <= moves["worst_ms"]
    each = [row for row in written["rows"] if row["measure"] == "move"]
    assert len({row["partition"] for row in each}) == 2
    killed, restarted = (row for row in written["rows"] if row["measure"] == "recovery")
    assert (killed["component"], restarted["component"]) == ("configurator", "etcd")
    assert 0 < killed["probed"] <= killed["partitions"] < restarted["partitions"]
    for row in (killed, restarted):
        assert 0 < row["first_s"] <= row["resumed_s"]
        assert row["longest_wait_s"] > 0
        assert row["whole_s"] > 0
    assert killed["claimed_s"] <= killed["whole_s"]
    assert restarted["claimed_s"] is None
    spent = [row for row in written["rows"] if row["measure"] == "processor"]
    assert [row["component"] for row in spent] == ["configurator", "etcd"]
    assert all(row["api_s"] > 0 for row in spent)
    assert steps


def test_service_has_resumed_when_every_partition_acknowledged_a_probe() -> None:
    results = [
        ProbeResult(("a",), 90.0, 90.02),
        ProbeResult(("b",), 90.0, 90.04),
        ProbeResult(("a",), 99.9, 103.0),  # in progress at the kill
        ProbeResult(("a",), 100.0, 102.0),
        ProbeResult(("b",), 100.0, 104.0),
        ProbeResult(("b",), 105.0, 105.1),
        ProbeResult(("c",), 100.0, 109.0),  # a partition of another component
    ]
    row = service_columns(results, {"a", "b", "d"}, 100.0)
    assert row["usual_ms"] == pytest.approx(30.0)
    assert (row["partitions"], row["probed"]) == (3, 2)
    assert (row["first_s"], row["resumed_s"]) == (2.0, 4.0)
    assert (row["in_progress_s"], row["longest_wait_s"]) == (3.0, 4.0)


def test_requests_in_progress_during_a_move_count_as_its_waits() -> None:
    waits = [
        Wait(1.0, 1.01),
        Wait(1.0, 1.03),
        Wait(1.98, 2.08),  # in progress when the move began
        Wait(2.05, 2.07),
        Wait(2.09, 2.10),
        Wait(2.2, 2.9),  # sent after it
    ]
    row = wait_columns(waits, 2.0, 2.1)
    assert row["usual_ms"] == pytest.approx(20.0)
    assert row["usual_longest_ms"] == pytest.approx(30.0)
    assert row["median_ms"] == pytest.approx(20.0)
    assert row["longest_ms"] == pytest.approx(100.0)


def test_sections_that_were_not_run_again_are_kept() -> None:
    earlier = Report("recovery", {}, [{"measure": "recovery"}], {"takeover_s": 2.0})
    now = Report("recovery", {}, [{"measure": "moves"}], {"move_wait_ms": 50.0})
    both = recovery.combined(earlier, now)
    assert both.rows == [{"measure": "recovery"}, {"measure": "moves"}]
    assert both.ratios == {"takeover_s": 2.0, "move_wait_ms": 50.0}


def test_ratios_are_those_of_a_configurator_with_the_reference_number_of_subscriptions() -> None:
    rows = [
        {
            "measure": "recovery",
            "mode": mode,
            "component": component,
            "active": active,
            "resumed_s": resumed,
            "in_progress_s": in_progress,
            "whole_s": 9.0,
        }
        for mode, component, active, resumed, in_progress in (
            ("sna", "configurator", 1_000, 1.0, None),
            ("sna", "configurator", 10_000, 2.0, 3.0),
            ("sna", "southbound", 10_000, 4.0, None),
            ("sea", "configurator", 10_000, 5.0, None),
        )
    ]
    assert ratios(rows, 10_000) == {
        "takeover_s": 3.0,
        "takeover_read_back_s": 9.0,
        "takeover_sea_s": 5.0,
        "takeover_sea_read_back_s": 9.0,
    }


def test_probes_reach_as_few_partitions_as_possible() -> None:
    everything = Filter.of(make_space("fields"), [Conjunction({})])
    both, first, third = (
        Probe(everything, partitions) for partitions in (("a", "b"), ("a",), ("c",))
    )
    assert choose_probes([both, first, third]) == [first, both, third]


@pytest.mark.parametrize(
    ("state", "owner", "up", "whole"),
    [
        ("ready", "configurator-1", 2, True),
        ("loading", "configurator-1", 2, False),
        ("unknown", "", 2, True),
        ("ready", "configurator-1", 1, False),
    ],
)
def test_the_service_is_whole_when_all_partitions_are_ready_and_all_switches_up(
    state: str, owner: str, up: int, whole: bool
) -> None:
    assert Status(True, (Partition("a", owner, 7, state),), 2, up).whole is whole


def test_the_last_start_counts_and_an_incomplete_line_does_not() -> None:
    def line(second: int, **entry: object) -> str:
        return json.dumps({"time": f"2026-01-01T00:00:{second:02}.500000Z", **entry}) + "\n"

    log = line(1, message="configurator-1 starts", pid=7) + line(2, message="something")
    log += line(3, message="configurator-1 starts", pid=8) + line(4, message="more")[:-20]
    started = last_start(log, "configurator-1")
    assert started.pid == 8
    assert started.at % 60 == 3.5
    with pytest.raises(LookupError):
        last_start(line(1, message="something"), "configurator-1")
