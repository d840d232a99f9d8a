"""A decision on its way to the switches: what came of it so far, and when to try again."""

from collections.abc import Callable
from typing import NamedTuple

from configurators.engine.engine import Decision
from configurators.environment import Clock
from sdn.outcomes import Acknowledged, Failed, Outcome
from sdn.tables.flows import Batch, Change, FlowOp


class Push:
    """A decision on its way to the switches; `again` decides the same once more."""

    def __init__(
        self, decision: Decision, again: Callable[[], Decision], trace: bytes = b""
    ) -> None:
        self.decision = decision
        self.again = again
        self.trace = trace  # the context that its batches carry
        self.round = 0
        self.restart = False  # whether the current round has to be pushed from its beginning
        self.tally = (0, 0, 0)  # operations that add, modify, delete
        self.carried_out: dict[str, list[FlowOp]] = {}

    def note(self, results: "BatchResults") -> None:
        """Remember what was carried out."""
        for switch, ops in results.carried_out.items():
            self.carried_out.setdefault(switch, []).extend(ops)


class BatchResults(NamedTuple):
    """The operations that switches have carried out, and the last reason why one has not.

    `refused` is empty unless a switch refused an operation, `unknown` unless a switch did not
    say what it has done.
    """

    carried_out: dict[str, list[FlowOp]]
    refused: str
    unknown: str


def sort_outcomes(left: Batch, outcomes: dict[str, Outcome]) -> BatchResults:
    """Sort the outcomes of a batch; in `left` remain the switches whose outcome is unknown."""
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
    return BatchResults(carried_out, refused, unknown)


class Backoff:
    """Pauses that double from the shortest to the longest."""

    def __init__(self, shortest: float, longest: float, clock: Clock) -> None:
        self._clock = clock
        self._since = clock.monotonic()
        self._length = shortest
        self._longest = longest

    @property
    def lasted(self) -> float:
        """Seconds since the beginning."""
        return self._clock.monotonic() - self._since

    def next(self) -> float:
        """How long to pause now, in seconds."""
        length = self._length
        self._length = min(2 * length, self._longest)
        return length


def ops_of(decision: Decision, switch: str) -> list[FlowOp]:
    """All operations of a decision for one switch, in order."""
    return [op for batch in decision.rounds for op in batch.get(switch, ())]


def tally(decision: Decision) -> tuple[int, int, int]:
    """How many operations of a decision add, modify and delete."""
    changes = [op.change for batch in decision.rounds for ops in batch.values() for op in ops]
    adds, deletes = changes.count(Change.ADD), changes.count(Change.DELETE)
    return adds, len(changes) - adds - deletes, deletes


def shares(total: int, parts: int) -> list[int]:
    """A number of operations spread evenly; the first parts get the remainder."""
    each, more = divmod(total, parts)
    return [each + 1] * more + [each] * (parts - more)
