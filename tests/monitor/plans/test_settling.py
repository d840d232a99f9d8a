"""When a step of a plan is over, decided by what processes have reported."""

import pytest
from msgspec.structs import replace

from configurators.state.network import first_network
from configurators.store.model import Lost
from configurators.streams.messages import Load, PartitionLoad, SwitchReport
from monitor.plans.settling import Reports, cleaned, refusal, why_unsettled
from sdn.network.topologies import topology

NAME, EPOCH, REVISION = "1.0/0-0", 7, 40
NETWORK = first_network(topology("line:3"), "legs", 1)
OWNERS = {NAME: ("c1", EPOCH)}
REPORT = SwitchReport("b1", ["s1", "s2", "s3"], {}, 1, [], REVISION, cleaned=REVISION)
PARTITION = PartitionLoad(NAME, EPOCH, "ready", 0, 0, 0, 0)
LOAD = Load("c1", 1, [PARTITION], declared=True, spaces=REVISION)


def why(
    report: SwitchReport | None = REPORT, load: Load | None = LOAD, lost: tuple[str, ...] = ()
) -> str:
    network = replace(NETWORK, lost=Lost(lost))
    reports = Reports({"b1": report}, {"c1": load})
    return why_unsettled([NAME], REVISION, OWNERS, network, reports)


def test_a_step_is_over_when_all_know_the_map_and_all_switches_have_the_entries() -> None:
    assert why() == ""
    assert why(replace(REPORT, switches=["s1", "s2"]), lost=("s3",)) == ""


@pytest.mark.parametrize("report", [None, replace(REPORT, spaces=REVISION - 1)])
def test_all_southbound_processes_must_know_the_map(report: SwitchReport | None) -> None:
    assert "b1 does not know the map" in why(report)


@pytest.mark.parametrize("load", [None, replace(LOAD, spaces=REVISION - 1)])
def test_all_configurators_must_know_the_map(load: Load | None) -> None:
    assert "c1 does not know the map" in why(load=load)


def test_a_switch_that_is_away_must_come_back() -> None:
    assert "s3" in why(replace(REPORT, switches=["s1", "s2"]))


@pytest.mark.parametrize(
    "load",
    [
        replace(LOAD, declared=False),
        replace(LOAD, partitions=[]),
        replace(LOAD, partitions=[replace(PARTITION, state="loading")]),
        replace(LOAD, partitions=[replace(PARTITION, epoch=EPOCH - 1)]),
    ],
)
def test_the_owners_of_new_partitions_must_have_declared_them(load: Load) -> None:
    assert NAME in why(load=load)


def test_no_switch_is_needed_when_a_step_was_undone() -> None:
    away = Reports({"b1": replace(REPORT, switches=[])}, {"c1": LOAD})
    assert why_unsettled([], REVISION, OWNERS, NETWORK, away) == ""
    assert why_unsettled([], REVISION + 1, OWNERS, NETWORK, away)


def test_without_any_southbound_process_no_switch_has_the_entries() -> None:
    assert why_unsettled([NAME], REVISION, OWNERS, NETWORK, Reports({}, {"c1": LOAD}))
    assert why_unsettled([NAME], REVISION, OWNERS, None, Reports({}, {"c1": LOAD}))


def test_a_switch_that_refuses_entries_is_named() -> None:
    assert refusal(Reports({"b1": REPORT, "b2": None}, {})) == ""
    full = replace(REPORT, refusing={"s2": "table full"})
    text = refusal(Reports({"b1": full}, {}))
    assert "s2" in text
    assert "table full" in text


def test_switches_are_clean_when_all_southbound_processes_say_so() -> None:
    assert cleaned(REVISION, Reports({"b1": REPORT}, {}))
    assert not cleaned(REVISION + 1, Reports({"b1": REPORT}, {}))
    assert not cleaned(REVISION, Reports({"b1": REPORT, "b2": None}, {}))
