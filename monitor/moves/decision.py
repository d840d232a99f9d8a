"""Decides the next step of a move from what is known now. Pure.

The document of the move in etcd says how far it has come, so that any monitor can go on with it.
"""

from enum import Enum

from msgspec import Struct

from configurators.store.model import Move
from configurators.streams.messages import CopyState


class Step(Enum):
    """What the leading monitor does next."""

    WAIT = "wait"
    COPY = "copy"  # have the target copy the partition
    HAND_OVER = "hand over"  # have the source stop
    CHANGE_OWNER = "change owner"
    FAIL = "fail"  # nothing moves; the source goes on
    END = "end"  # forget the move


class MoveLimits(Struct, frozen=True):
    """How long the phases of a move may take, in seconds."""

    copy: float = 120.0
    hand_over: float = 1.0  # new requests of the partition wait meanwhile
    start: float = 60.0  # until the new owner is ready


class Facts(Struct, frozen=True):
    """What is known about a move, besides its document."""

    owner: tuple[str, int] | None  # the owner of the partition, and its epoch
    exists: bool  # whether the partition belongs to a space
    alive: frozenset[str]  # configurators that are registered
    staying: frozenset[str]  # those of them that get work
    copy: CopyState | None  # as the target has reported it
    ready: int | None  # the epoch under which the target has reported the partition ready
    waits_for: str | None  # why the source waits, as it has reported
    lasted: float  # seconds since this phase began, as far as this monitor knows


class MoveDecision(Struct, frozen=True):
    """A step, and why a move fails."""

    step: Step
    text: str = ""


_WAIT = MoveDecision(Step.WAIT)


def decide(move: Move, facts: Facts, limits: MoveLimits) -> MoveDecision:
    """The next step of a move."""
    if move.phase == "failed":
        return MoveDecision(Step.END)
    if move.phase == "moved":
        return _after_change(move, facts, limits)
    if not facts.exists:
        return MoveDecision(Step.FAIL, "the partition no longer exists")
    if facts.owner != (move.source, move.epoch):
        owner = facts.owner[0] if facts.owner else "nobody"
        return MoveDecision(Step.FAIL, f"the partition was taken over by {owner} meanwhile")
    for name in (move.source, move.target):
        if name not in facts.alive:
            return MoveDecision(Step.FAIL, f"configurator {name} is no longer alive")
    if move.target not in facts.staying:
        return MoveDecision(Step.FAIL, f"configurator {move.target} is to leave")
    if move.phase == "asked":
        return MoveDecision(Step.COPY)
    copy = facts.copy.state if facts.copy and facts.copy.move == move.id else None
    if move.phase == "copying":
        if copy in ("following", "ended"):
            return MoveDecision(Step.HAND_OVER)
        return _fail_after(facts, limits.copy, f"{move.target} has not copied the partition")
    if copy == "ended":
        return MoveDecision(Step.CHANGE_OWNER)
    return _fail_after(facts, limits.hand_over, f"{move.source} has not ended its work")


def _after_change(move: Move, facts: Facts, limits: MoveLimits) -> MoveDecision:
    """What follows when the owner key was changed: nothing can fail any more."""
    owner = facts.owner
    if owner == (move.source, move.epoch):
        return _WAIT  # this monitor has not seen the new owner key yet
    begins = owner is not None and owner[0] == move.target and move.target in facts.alive
    if begins and facts.ready != owner[1] and facts.lasted <= limits.start:  # type: ignore[index]
        return _WAIT
    return MoveDecision(Step.END)


def _fail_after(facts: Facts, limit: float, what: str) -> MoveDecision:
    if facts.lasted <= limit:
        return _WAIT
    why = f": {facts.waits_for}" if facts.waits_for else ""
    return MoveDecision(Step.FAIL, f"{what} within {limit:g} s{why}")
