"""Limits how often partitions move, so that no load makes them move to and fro. Pure."""

from msgspec import Struct

from monitor.balancing.policy import Situation
from monitor.balancing.recent import between

_HOUR = 3600.0
_MINUTE = 60.0
_LONGER = 4  # times that a partition rests longer with each move


class RestraintOptions(Struct, frozen=True):
    """How often partitions may move."""

    rest: float = 60.0  # seconds after a move; four times as long with each move within an hour
    moves_per_minute: int = 10  # of all partitions together


class Restraint:
    """Which partitions may move now, and how many.

    A partition that has moved rests, four times as long with each of its moves within an hour. So a
    mistake can be corrected soon, but no load makes a partition move all the time: with a rest of
    60 s, it moves at most four times in any hour, because four rests (60, 240, 960 and 3840 s) take
    longer.
    """

    def __init__(self, situation: Situation, options: RestraintOptions) -> None:
        self._rests_until: dict[str, float] = {}
        rests: dict[str, float] = {}
        minute = 0
        for move in situation.past:
            if move.at > situation.now - _HOUR:
                # A move that has failed is not tried again at once, either.
                rest = rests.get(move.partition, options.rest)
                self._rests_until[move.partition] = move.at + rest
                rests[move.partition] = min(_LONGER * rest, _HOUR)
            minute += move.at > situation.now - _MINUTE
        # Changes that are not in the list: after a crash, or before this process started.
        self._new_owner = _changed_owner(situation, options.rest)
        self._now = situation.now
        self.allowed = max(0, options.moves_per_minute - minute - len(situation.moving))
        """How many moves may begin now."""

    def rests(self, partition: str) -> bool:
        """Whether a partition has moved too recently to move again."""
        rests_until = self._rests_until.get(partition, 0.0)
        return self._now < rests_until or partition in self._new_owner


def _changed_owner(situation: Situation, seconds: float) -> set[str]:
    """The partitions that had another owner so many seconds ago, as far as the history goes."""
    samples = between(situation.history, situation.now - seconds, situation.now)
    then = samples[0].partitions if samples else ()
    return {
        each.partition
        for each in then
        if situation.owners.get(each.partition, each.configurator) != each.configurator
    }
