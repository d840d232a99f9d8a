"""An operation: how it is made, which stages may follow each other, and what it leaves behind."""

import pytest

from configurators.store.model import NextFilter, Record, State, Timing
from dispatcher.calls import RecordSpec
from dispatcher.requests.operation import Action, IllegalTransition, Operation, Stage
from dispatcher.requests.rollout import Rollout
from dispatcher.requests.writing.stored_records import StoredRecord

OLD, NEW = {"price": 1}, {"price": 2}
STATES: dict[Action, State] = {"begin": "pending", "end": "removing", "update": "active"}


def open_record(action: Action) -> Record:
    """A record with an open operation."""
    following = NextFilter(NEW, {0: b"new"}) if action == "update" else None
    regions = {0: b"old"}
    return Record(
        "s1-1", "subscription", "h1", "stocks", OLD, regions, STATES[action], 3, 0.0, "d1",
        acknowledged=None if action == "begin" else 5.0, next=following,
    )  # fmt: skip


def operation() -> Operation:
    return Operation.begin("subscription", RecordSpec("h1", "stocks", {}), received=1.0)


@pytest.mark.parametrize(
    "stages",
    [
        (Stage.WRITING, Stage.DELIVERING, Stage.COMPLETE, Stage.ENDED),
        (Stage.WRITING, Stage.ACCEPTED, Stage.WRITING, Stage.COMPLETE, Stage.ENDED),
        (Stage.WRITING, Stage.DELIVERING, Stage.DELIVERING, Stage.ENDED),
        (Stage.WRITING, Stage.COMPLETE, Stage.COMPLETE, Stage.DELIVERING, Stage.ENDED),
        (Stage.ENDED,),
    ],
)
def test_an_operation_goes_through_its_stages(stages: tuple[Stage, ...]) -> None:
    made = operation()
    assert made.stage is Stage.ACCEPTED
    for stage in stages:
        made.enter(stage)
        assert made.stage is stage
    assert made.ended


@pytest.mark.parametrize(
    "stages",
    [
        (Stage.DELIVERING,),
        (Stage.COMPLETE,),
        (Stage.ACCEPTED,),
        (Stage.WRITING, Stage.WRITING),
        (Stage.WRITING, Stage.DELIVERING, Stage.WRITING),
        (Stage.WRITING, Stage.COMPLETE, Stage.ACCEPTED),
        *((Stage.ENDED, stage) for stage in Stage),
    ],
)
def test_a_stage_that_cannot_follow_is_an_error_and_changes_nothing(
    stages: tuple[Stage, ...],
) -> None:
    made = operation()
    for stage in stages[:-1]:
        made.enter(stage)
    before = made.stage
    with pytest.raises(IllegalTransition, match=f"{stages[-1].name} cannot follow"):
        made.enter(stages[-1])
    assert made.stage is before


@pytest.mark.parametrize("action", STATES)
def test_an_open_operation_is_resumed_as_what_it_is(action: Action) -> None:
    stored = StoredRecord(open_record(action), 7)
    resumed = Operation.resume(stored, received=1.0)
    assert (resumed.action, resumed.revision, resumed.resumed) == (action, 7, True)
    assert resumed.filter == (NEW if action == "update" else None)


def test_a_restarted_operation_goes_on_from_its_own_record() -> None:
    first = Operation.update(StoredRecord(open_record("update"), 7), NEW, received=1.0)
    first.record, first.revision, first.indexed = open_record("update"), 9, 0.5
    again = first.restarted()
    assert again.stored == (first.record, 9)
    assert (again.action, again.filter, again.resumed) == ("update", NEW, True)
    assert (again.received, again.indexed, again.stage) == (1.0, 0.5, Stage.ACCEPTED)


@pytest.mark.parametrize("refusal", [None, "table full"])
@pytest.mark.parametrize("action", STATES)
def test_the_settlement_says_what_has_become_of_the_record(
    action: Action, refusal: str | None
) -> None:
    made = Operation.resume(StoredRecord(open_record(action), 7), received=1.0)
    made.record = open_record(action)
    made.rollout = Rollout(made.record, {}, {}, refusal=refusal)
    settled = made.settlement(9.0, Timing())
    states = {"begin": ("active", "failed"), "end": ("removed", "active")}
    assert settled.state == states.get(action, ("active", "active"))[refusal is not None]
    assert (settled.by, settled.next, settled.reason) == ("", None, refusal)
    assert settled.acknowledged == (9.0 if refusal is None else made.record.acknowledged)
    assert settled.filter == (NEW if action == "update" and refusal is None else OLD)
