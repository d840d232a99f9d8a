"""The next step of a move follows from its document and from what is known now."""

from typing import Any

import pytest
from msgspec.structs import replace

from configurators.store.model import Move, MovePhase
from configurators.streams.messages import CopyState
from monitor.moves.decision import Facts, MoveDecision, MoveLimits, Step, decide

PARTITION = "1.0/all"
MOVE = Move("m1", "c1", 7, "c2", "asked", "for a test", 0.0)
BOTH = frozenset({"c1", "c2"})
FACTS = Facts(("c1", 7), True, BOTH, BOTH, None, None, None, 0.0)
LIMITS = MoveLimits(copy=10.0, hand_over=1.0, start=5.0)


def step(phase: MovePhase, **changes: Any) -> MoveDecision:
    return decide(replace(MOVE, phase=phase), replace(FACTS, **changes), LIMITS)


def copy(state: Any, move: str = "m1") -> CopyState:
    return CopyState(PARTITION, move, state)


def test_a_move_goes_from_step_to_step() -> None:
    assert step("asked").step is Step.COPY
    assert step("copying").step is Step.WAIT
    assert step("copying", copy=copy("copying")).step is Step.WAIT
    assert step("copying", copy=copy("following")).step is Step.HAND_OVER
    assert step("handing over", copy=copy("following")).step is Step.WAIT
    assert step("handing over", copy=copy("ended")).step is Step.CHANGE_OWNER
    assert step("moved").step is Step.WAIT  # the new owner is not known here yet
    assert step("moved", owner=("c2", 9)).step is Step.WAIT
    assert step("moved", owner=("c2", 9), ready=9).step is Step.END


def test_a_partition_goes_away_from_a_configurator_that_is_to_leave() -> None:
    assert step("copying", copy=copy("following"), staying=frozenset({"c2"})).step is Step.HAND_OVER


@pytest.mark.parametrize("phase", ["copying", "handing over"])
def test_the_copy_of_another_attempt_does_not_count(phase: MovePhase) -> None:
    assert step(phase, copy=copy("ended", move="m0")).step is Step.WAIT


@pytest.mark.parametrize("phase", ["asked", "copying", "handing over"])
@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"exists": False}, "no longer exists"),
        ({"owner": ("c3", 8)}, "taken over by c3"),
        ({"owner": ("c1", 8)}, "taken over by c1"),
        ({"owner": None}, "taken over by nobody"),
        ({"alive": frozenset({"c1"})}, "c2 is no longer alive"),
        ({"alive": frozenset({"c2"})}, "c1 is no longer alive"),
        ({"staying": frozenset({"c1"})}, "c2 is to leave"),
    ],
)
def test_a_move_fails_if_something_else_has_changed(
    phase: MovePhase, changes: dict[str, Any], text: str
) -> None:
    decision = step(phase, copy=copy("ended"), **changes)
    assert decision.step is Step.FAIL
    assert text in decision.text


def test_a_copy_that_takes_too_long_fails_the_move() -> None:
    assert step("copying", lasted=10.0).step is Step.WAIT
    assert step("copying", lasted=10.1).step is Step.FAIL


def test_the_reason_says_what_the_source_waits_for() -> None:
    decision = step(
        "handing over", copy=copy("following"), lasted=1.1, waits_for="switch s5 is away"
    )
    assert decision.step is Step.FAIL
    assert "switch s5 is away" in decision.text


@pytest.mark.parametrize(
    "changes",
    [
        {"owner": ("c3", 9)},
        {"owner": None},
        {"owner": ("c2", 9), "alive": frozenset({"c1"})},
        {"owner": ("c2", 9), "lasted": 5.1},
    ],
)
def test_a_partition_that_has_moved_is_let_go(changes: dict[str, Any]) -> None:
    assert step("moved", **changes).step is Step.END


def test_a_failed_move_is_forgotten() -> None:
    assert step("failed").step is Step.END
