"""A decision on its way to the switches: what came of it so far, and when to try again."""

import time
from collections.abc import Callable
from typing import NamedTuple

from configurators.engine.engine import Decision
from sdn.flows import Batch, Change, FlowOp
from sdn.outcomes import Acknowledged, Failed, Outcome


class Push:
    """A decision on its way to the switches."""

    def __init__(self, decision: Decision, again: Callable[[], Decision]) -> None:
        self.decision = decision
        self.again = again  # decides the same once more
        self.round = 0
        self.restart = False
        self.tally = (0, 0, 0)  # operations that add, modify, delete
        self.carried_out: dict[str, list[FlowOp]] = {}

    def note(self, seen: "Seen") -> None:
        """Remember what was carried out."""
        for switch, ops in seen.carried_out.items():
            self.carried_out.setdefault(switch, []).extend(ops)


class Seen(NamedTuple):
    """What came of a batch: what was carried out, why some was refused, or is not known."""

    carried_out: dict[str, list[FlowOp]]
    refused: str
    unknown: str


def see(left: Batch, outcomes: dict[str, Outcome]) -> Seen:
    """Sort outcomes out; only what is not known is left of the batch."""
    carried_out: dict[str, list[FlowOp]] = {}
    refused = unknown = ""
    for switch, outcome in outcomes.items():
        match outcome:
            case Acknowledged():
                carried_out[switch] = left.pop(switch)
            case Failed(places):
                ops = left.pop(switch)
                carried_out[switch] = [op for i, op in enumerate(ops) if i not in places]
                refused = f"switch {switch}: {next(iter(places.values()))}"
            case _:
                unknown = outcome.reason
    return Seen(carried_out, refused, unknown)


class Pause:
    """Longer and longer pauses."""

    def __init__(self, shortest: float, longest: float) -> None:
        self._since = time.monotonic()
        self._length = shortest
        self._longest = longest

    @property
    def lasted(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._since

    def next(self) -> float:
        """How long to pause now."""
        length = self._length
        self._length = min(2 * length, self._longest)
        return length


def ops_of(decision: Decision, switch: str) -> list[FlowOp]:
    """All operations of a decision for one switch, in order."""
    return [op for batch in decision.rounds for op in batch.get(switch, ())]


def tally(decision: Decision) -> tuple[int, int, int]:
    """How many operations of a decision add, modify and delete."""
    total = adds = deletes = 0
    for batch in decision.rounds:
        for ops in batch.values():
            total += len(ops)
            for op in ops:
                if op.change is Change.ADD:
                    adds += 1
                elif op.change is Change.DELETE:
                    deletes += 1
    return adds, total - adds - deletes, deletes


def shares(total: int, parts: int) -> list[int]:
    """A number of operations spread evenly; the first get what does not divide."""
    each, more = divmod(total, parts)
    return [each + 1] * more + [each] * (parts - more)
