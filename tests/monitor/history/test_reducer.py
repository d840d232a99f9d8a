"""What the history makes of what a process hears."""

import pytest

from configurators.engine.partition_map import PartitionMap
from configurators.store.model import MapPlan, Move, MovePhase, PlanPhase, Process
from monitor.history.event import HistoryEvent
from monitor.history.reducer import HistoryReducer, coalesce
from monitor.jobs.state import (
    JobKind,
    JobOutcome,
    JobRun,
    JobSpace,
    JobState,
    ProposedPlan,
    ProposedShapes,
)

P = "1.0/3-0"
PLAN = ProposedPlan("stocks", 0, 3, PartitionMap("legs"))
SHAPES = ProposedShapes("stocks", 0, ((3,), (7,)))


def a_move(phase: MovePhase, text: str = "c0 is busy", id: str = "m1") -> Move:
    return Move(id, "c0", 7, "c1", phase, text, 100.0, "balancer")


def process(name: str, pid: int = 1) -> Process:
    return Process(name, f"127.0.0.1:{pid}", pid, "node")


def a_plan(phase: PlanPhase, text: str = "", id: str = "p1") -> MapPlan:
    whole = PartitionMap("legs")
    return MapPlan(id, "stocks", 0, 0, 0, whole, {}, ("hot",), phase, 100.0, (), text)


def said(events: list[HistoryEvent]) -> list[tuple[str, str]]:
    return [(event.kind, event.action) for event in events]


@pytest.fixture
def reducer() -> HistoryReducer:
    found = HistoryReducer(began=50.0)
    assert found.owner(P, ("c0", 7), 100) == []
    for kind in ("configurators", "southbound"):
        names = ("c0", "c1") if kind == "configurators" else ("s0",)
        assert found.workers(kind, {name: process(name) for name in names}, 100) == []
    return found


def test_a_move_is_told_at_both_ends_with_its_reason_and_duration(reducer: HistoryReducer) -> None:
    (began,) = reducer.move(P, a_move("asked"), 101)
    assert (began.action, began.workers, began.cause) == ("began", ("c0", "c1"), "balancer")
    assert reducer.move(P, a_move("handing over"), 102) == []
    assert reducer.owner(P, ("c1", 9), 103) == []  # the move explains it
    assert reducer.move(P, a_move("moved"), 103) == []
    (ended,) = reducer.move(P, None, 104)
    assert (ended.action, ended.seconds, ended.reason) == ("done", 3, "c0 is busy")


def test_an_owner_that_is_heard_of_after_the_end_of_its_move_is_no_take_over(
    reducer: HistoryReducer,
) -> None:
    reducer.move(P, a_move("moved"), 101)
    assert said(reducer.move(P, None, 102)) == [("move", "done")]
    assert reducer.owner(P, ("c1", 9), 103) == []


def test_a_move_that_fails_says_why_and_keeps_its_reason(reducer: HistoryReducer) -> None:
    reducer.move(P, a_move("copying"), 101)
    reducer.move(P, a_move("failed", "c1 is no longer alive"), 102)
    (ended,) = reducer.move(P, None, 103)
    assert (ended.action, ended.reason) == ("failed", "c0 is busy")
    assert "c1 is no longer alive" in ended.text


def test_the_next_move_ends_one_whose_end_was_not_heard(reducer: HistoryReducer) -> None:
    reducer.move(P, a_move("handing over"), 101)
    events = reducer.move(P, a_move("asked", id="m2"), 102)
    assert said(events) == [("move", "failed"), ("move", "began")]


def test_a_take_over_names_the_dead_owner_and_how_long_it_took(reducer: HistoryReducer) -> None:
    assert said(reducer.workers("configurators", {"c1": process("c1")}, 110)) == [
        ("configurator", "died")
    ]
    (event,) = reducer.owner(P, ("c1", 12), 112.5)
    assert (event.kind, event.source, event.target, event.seconds) == ("take-over", "c0", "c1", 2.5)
    assert reducer.owner(P, None, 113) == []
    assert reducer.owner(P, ("c0", 20), 114) == []  # a new partition of the same name


def test_workers_start_die_restart_and_return(reducer: HistoryReducer) -> None:
    two = {"c0": process("c0"), "c1": process("c1")}
    assert said(reducer.workers("configurators", two, 101)) == []
    three = {**two, "c2": process("c2")}
    assert said(reducer.workers("configurators", three, 102)) == [("configurator", "started")]
    reducer.workers("configurators", two, 103)
    (back,) = reducer.workers("configurators", three, 105)
    assert (back.action, back.seconds) == ("returned", 2)
    (again,) = reducer.workers("configurators", {**three, "c2": process("c2", 9)}, 106)
    assert again.action == "restarted"


def test_a_worker_that_was_to_leave_has_left(reducer: HistoryReducer) -> None:
    three = {name: process(name) for name in ("c1", "c2", "c3")}
    reducer.workers("configurators", three, 101)
    assert reducer.wanted("configurators", 3, 101) == []
    (scaled,) = reducer.wanted("configurators", 2, 102)
    assert scaled.text == "2 configurators wanted; 3 before"
    del three["c3"]
    assert said(reducer.workers("configurators", three, 103)) == [("configurator", "left")]


def test_a_plan_begins_and_ends_once(reducer: HistoryReducer) -> None:
    assert said(reducer.plan(1, a_plan("cutting"), 101)) == [("plan", "began")]
    assert reducer.plan(1, a_plan("settling"), 102) == []
    (ended,) = reducer.plan(1, a_plan("aborted", "no room"), 103)
    assert (ended.action, ended.reason, ended.seconds) == ("aborted", "no room", 3)
    assert reducer.plan(1, a_plan("aborted", "no room"), 104) == []
    events = reducer.plan(1, a_plan("done", id="p2"), 105)
    assert said(events) == [("plan", "began"), ("plan", "done")]


def test_switches_count_as_lost_only_if_they_were_up(reducer: HistoryReducer) -> None:
    assert reducer.switches(frozenset({"s1", "s2"}), {"s3": "not connected"}, 101) == []
    (lost,) = reducer.switches(frozenset({"s2"}), {"s1": "closed", "s3": "not connected"}, 102)
    assert (lost.action, lost.switches, lost.reason) == ("lost", ("s1",), "closed")
    assert reducer.switches(frozenset({"s2", "s3"}), {"s1": "closed"}, 103) == []
    (back,) = reducer.switches(frozenset({"s1", "s2"}), {}, 107)
    assert (back.action, back.switches, back.seconds) == ("returned", ("s1",), 5)


def test_a_process_that_goes_with_its_reports_loses_no_switch(reducer: HistoryReducer) -> None:
    reducer.switches(frozenset({"s1"}), {}, 101)
    assert reducer.switches(frozenset(), {}, 102) == []
    assert reducer.switches(frozenset({"s1"}), {}, 103) == []


@pytest.mark.parametrize(("outcome", "action"), [("done", "done"), ("late", "failed")])
def test_a_run_of_the_job_is_told_unless_it_is_old(
    reducer: HistoryReducer, outcome: JobOutcome, action: str
) -> None:
    old = JobRun("propose", "d1", 10.0, 20.0, "done")
    assert reducer.job(JobState(old), 101) == []
    run = JobRun("propose", "d1", 101.0)
    assert said(reducer.job(JobState(old, run), 101)) == [("job", "began")]
    ended = JobRun("propose", "d1", 101.0, 131.0, outcome)
    (event,) = reducer.job(JobState(ended), 132)
    assert (event.action, event.seconds) == (action, 30)
    assert reducer.job(JobState(ended), 133) == []


@pytest.mark.parametrize(
    ("kind", "found", "text"),
    [
        ("rebalance", JobSpace("stocks", plan=PLAN), "proposes a plan for stocks"),
        ("rebalance", JobSpace("stocks", 1.0, 1.0, why="all is well"), "proposes no plan"),
        ("shapes", JobSpace("stocks", shapes=SHAPES), "proposes shapes for stocks"),
        ("shapes", JobSpace("stocks", why="no filters"), "proposes no shapes"),
    ],
)
def test_what_a_run_of_the_job_proposes_is_told(
    reducer: HistoryReducer, kind: JobKind, found: JobSpace, text: str
) -> None:
    run = JobRun("propose", "d1", 101.0, 131.0, "done", spaces=(found,), kind=kind)
    (event,) = reducer.job(JobState(run), 132)
    assert event.text == f"the scheduled job {text}"


def test_another_leader_is_told(reducer: HistoryReducer) -> None:
    assert said(reducer.leader("d1", 101)) == [("leader", "changed")]
    assert reducer.leader(None, 102) == []
    (event,) = reducer.leader("d2", 103)
    assert event.target == "d2"


def test_partitions_that_one_worker_takes_over_are_one_event(reducer: HistoryReducer) -> None:
    names = [f"1.0/{number}-0" for number in range(100)]
    for name in names:
        reducer.owner(name, ("c0" if name != names[0] else "c1", 7), 100)
    taken = [event for name in names for event in reducer.owner(name, ("c2", 9), 101)]
    assert len(taken) == 100
    alone, joined = coalesce(taken)
    assert (alone.source, alone.partition, alone.partitions) == ("c1", names[0], ())
    assert (joined.source, joined.target, joined.partition) == ("c0", "c2", "")
    assert joined.text == "c2 took 99 partitions over from c0, which was not alive"
    assert joined.partitions == tuple(names[1:65])
