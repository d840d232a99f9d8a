"""When the job runs, and what is kept of its runs."""

import msgspec
import pytest

from configurators.engine.partition_map import PartitionMap
from monitor.jobs import state as state_module
from monitor.jobs.schedule import seconds_until_due
from monitor.jobs.state import (
    BadResult,
    JobKind,
    JobRun,
    JobSpace,
    JobState,
    ProposedPlan,
    ProposedShapes,
    begin_run,
    close_run,
    decode_state,
    encode_state,
    end_run,
    read_result,
)
from spark.rebalance.model import Prediction, Rebalance, SpacePlan, SpaceResult
from spark.shapes.model import Change, Proposal, ShapesFound, SpaceShapes
from spark.shapes.model import Prediction as Unwanted
from spark.traces import Source

RUN = JobRun("propose", "d1", 1000.0)
PREDICTION = Prediction(4, 2.5, 3.0, {"c1": 1.0}, 10, 20, None, 1.0)
PLAN = SpacePlan("stocks", 0, 3, PartitionMap("legs", None), {"all": "c1"}, ("it is better",))


@pytest.mark.parametrize(
    ("now", "started", "wait"),
    [
        (100.0, None, 60.0),  # the first run of all: there are few traces yet
        (130.0, None, 30.0),
        (200.0, None, 0.0),
        (130.0, 120.0, 50.0),  # whoever ran it
        (130.0, 20.0, 0.0),
        (130.0, 500.0, 60.0),  # a clock was set back
    ],
)
def test_runs_begin_at_regular_times(now: float, started: float | None, wait: float) -> None:
    state = None if started is None else JobState(JobRun("propose", "d1", started))
    assert seconds_until_due(60.0, now, leads_since=100.0, state=state) == wait
    if state:
        begun = JobState(None, state.last)
        assert seconds_until_due(60.0, now, leads_since=100.0, state=begun) == wait


def test_runs_are_counted_and_the_last_success_is_remembered() -> None:
    state = begin_run(None, RUN)
    assert (state.last, state.running) == (None, RUN)
    state = end_run(state, "done", 1010.0, spaces=(JobSpace("stocks", 2.0, 1.0),))
    assert state.running is None
    assert state.last_success == 1010.0
    assert state.last is not None
    assert (state.last.outcome, state.last.ended) == ("done", 1010.0)
    assert begin_run(state, RUN).last == state.last, "the last result can be seen meanwhile"
    state = begin_run(state, JobRun("propose", "d2", 2000.0))
    state = end_run(state, "failed", 2001.0, "x" * 10_000)
    state = end_run(begin_run(state, RUN), "done", 3000.0)
    assert state.counts == {"done": 2, "failed": 1}
    assert state.last_success == 3000.0
    assert state.last is not None
    assert (state.last.why, state.last.spaces) == ("", ())


def test_a_run_that_its_leader_has_left_behind_counts_as_interrupted() -> None:
    assert close_run(None, 5.0) is None
    ended = end_run(begin_run(None, RUN), "done", 1010.0)
    assert close_run(ended, 2000.0) is ended
    closed = close_run(begin_run(ended, RUN), 2000.0)
    assert closed is not None
    assert closed.running is None
    assert closed.last is not None
    assert closed.last.outcome == "interrupted"
    assert "d1 has stopped" in closed.last.why
    assert closed.counts == {"done": 1, "interrupted": 1}


def test_the_result_of_the_real_job_is_understood() -> None:
    def space(name: str, plan: SpacePlan | None, why: str) -> SpaceResult:
        figures = (1.0, 0.5, 1.0, 3, 4, 4, 0, 0.0, PREDICTION, PREDICTION, 0.1, 2)
        return SpaceResult(name, *figures, plan, why)

    source = Source("traces", 1, 0, 1, 1, 10, 5)
    spaces = (space("stocks", PLAN, ""), space("sports", None, "all is well"))
    found = read_result(
        "rebalance", msgspec.json.encode(Rebalance(source, "sna", {"c1": 1.0}, spaces))
    )
    plan = ProposedPlan("stocks", 0, 3, PLAN.map, PLAN.assignment, PLAN.reasons)
    shares = PREDICTION.shares
    assert found == (
        JobSpace("stocks", 2.5, 2.5, plan, shares=shares, predicted_shares=shares),
        JobSpace("sports", 2.5, 2.5, None, "all is well", shares=shares, predicted_shares=shares),
    )


def test_the_result_of_the_real_job_for_shapes_is_understood() -> None:
    def space(
        name: str,
        before: Unwanted | None,
        after: Unwanted | None,
        proposal: Proposal | None,
        why: str,
    ) -> SpaceShapes:
        counts = 4, 4, 0, 10, 0
        return SpaceShapes(name, 5, True, *counts, "events", before, after, Change(), proposal, why)

    source = Source("traces", 1, 0, 1, 1, 10, 5)
    proposal = Proposal("stocks", 0, ((3, 0), (0, 2)), ("fewer unwanted events",))
    found = ShapesFound(
        source,
        (
            space("stocks", Unwanted(1, 1, 4.0, 0.5), Unwanted(2, 2, 3.0, 0.25), proposal, ""),
            space("sports", None, None, None, "no filters"),
        ),
    )
    shapes = ProposedShapes("stocks", 0, ((3, 0), (0, 2)), ("fewer unwanted events",))
    assert read_result("shapes", msgspec.json.encode(found)) == (
        JobSpace("stocks", shapes=shapes, unwanted=0.5, predicted_unwanted=0.25),
        JobSpace("sports", why="no filters"),
    )


@pytest.mark.parametrize("kind", ["rebalance", "shapes"])
@pytest.mark.parametrize("data", [b"", b"[]", b'{"spaces": [{}]}', b"\xff"])
def test_other_files_are_no_results(kind: JobKind, data: bytes) -> None:
    with pytest.raises(BadResult, match="not a result of the job"):
        read_result(kind, data)


def test_the_document_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = ProposedPlan("stocks", 0, 3, PLAN.map, reasons=("x" * 1000,))
    state = JobState(JobRun("propose", "d1", 1.0, spaces=(JobSpace("stocks", 2.0, 1.0, plan),)))
    assert decode_state(encode_state(state)) == state
    monkeypatch.setattr(state_module, "_MOST_BYTES", 900)
    last = decode_state(encode_state(state)).last
    assert last is not None
    (found,) = last.spaces
    assert found.plan is None
    assert "too large to be shown" in found.why
