"""The thesis's policy (section 6.3.2.2), by queue lengths alone. Pure.

The load of a configurator is the sum of the queue lengths of its partitions (6.1). A configurator
is overloaded if its load over the average load is above a threshold (6.2), and its load has risen
from each collection to the next over a window. Its partition with the longest queue goes to the
least loaded configurator, unless that would be overloaded then; if so, the next one is tried.

Where the thesis leaves something open, this is how it is read:

- "monotonically increasing" is said of the load: at each collection of the window it is higher than
  at the one before. The ratio cannot be meant: it stays the same while one queue grows and all
  others are empty, which is when balancing is needed most.
- Each overloaded configurator gives away one partition per decision.
- A partition with an empty queue does not move: its move would change no load.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import pairwise

from msgspec import Struct

from monitor.balancing.policy import ProposedMove, Situation
from monitor.balancing.recent import latest, reporting
from monitor.load.samples import Sample


class ThesisOptions(Struct, frozen=True):
    """The thesis names these, but gives no values; see docs/concepts/balancing.md for ours."""

    threshold: float = 1.5  # load over average load
    window: float = 20.0  # seconds in which the load rises
    period: float = 5.0  # seconds between two collections in the window


class ThesisPolicy:
    """Moves partitions away from configurators whose queues are long and still grow."""

    def __init__(self, options: ThesisOptions | None = None) -> None:
        self._options = options or ThesisOptions()

    def propose(self, situation: Situation) -> list[ProposedMove]:
        """At most one move for each overloaded configurator, the most overloaded first."""
        queues = {name: sample.queued for name, sample in latest(situation).items()}
        loads = _loads(situation, queues)
        collected = self._collections(situation.history)
        proposals: list[ProposedMove] = []
        for source in sorted(loads, key=lambda name: (-loads[name], name)):
            if self._overloads(loads[source], loads) and _rises(source, loads[source], collected):
                move = self._relieve(situation, source, queues, loads)
                if move:
                    proposals.append(move)
                    loads[source] -= queues[move.partition]
                    loads[move.target] += queues[move.partition]
        return proposals

    def _overloads(self, load: int, loads: Mapping[str, int]) -> bool:
        """Whether a load is an overload (6.2). Moves do not change the average."""
        average = _average(loads)
        return average > 0 and load / average > self._options.threshold

    def _relieve(
        self,
        situation: Situation,
        source: str,
        queues: Mapping[str, int],
        loads: Mapping[str, int],
    ) -> ProposedMove | None:
        others = [name for name in loads if name in situation.targets and name != source]
        if not others:
            return None
        target = min(others, key=lambda name: (loads[name], name))
        own = [
            name
            for name, queued in queues.items()
            if queued and situation.owners[name] == source and name not in situation.moving
        ]
        for partition in sorted(own, key=lambda name: (-queues[name], name)):
            if not self._overloads(loads[target] + queues[partition], loads):
                return ProposedMove(
                    partition,
                    source,
                    target,
                    f"{loads[source]} tasks wait at {source}, {_average(loads):.1f} on average"
                    f" (threshold: {self._options.threshold:g} times the average), and they have"
                    f" become more for {self._options.window:g} s; {queues[partition]} of them are"
                    f" this partition's, and {loads[target]} tasks wait at {target}",
                )
        return None

    def _collections(self, history: Sequence[Sample]) -> list[dict[str, int]]:
        """The load of each configurator at each earlier collection of the window, oldest first.

        Empty if the history lacks one of them.
        """
        if not history:
            return []
        period = self._options.period
        steps = max(1, round(self._options.window / period))
        times = [history[-1].at - step * period for step in range(steps, 0, -1)]
        samples = [_sample_at(history, at) for at in times]
        found = [_loads_then(sample) for sample in samples if sample]
        return found if len(found) == steps else []


def _loads(situation: Situation, queues: Mapping[str, int]) -> dict[str, int]:
    """The load of every configurator now (6.1), with moving partitions where they will be."""
    loads = dict.fromkeys(sorted(reporting(situation)), 0)
    for partition, queued in queues.items():
        home = situation.home(partition)
        if home in loads:
            loads[home] += queued
    return loads


def _average(loads: Mapping[str, int]) -> float:
    return sum(loads.values()) / len(loads)


def _sample_at(history: Sequence[Sample], at: float) -> Sample | None:
    """The sample of a time, give or take the length of a sample."""
    after = bisect_left(history, at, key=lambda sample: sample.at)
    nearest = min(history[max(0, after - 1) : after + 1], key=lambda sample: abs(sample.at - at))
    return nearest if abs(nearest.at - at) <= nearest.seconds else None


def _loads_then(sample: Sample) -> dict[str, int]:
    """The load of every configurator that a sample knows, with the owners of that time."""
    loads = {each.configurator: 0 for each in sample.configurators}
    for each in sample.partitions:
        loads[each.configurator] = loads.get(each.configurator, 0) + each.queued
    return loads


def _rises(name: str, now: int, collected: Sequence[Mapping[str, int]]) -> bool:
    """Whether a load has grown from each collection to the next."""
    if not collected or any(name not in loads for loads in collected):
        return False
    series = [*(loads[name] for loads in collected), now]
    return all(before < after for before, after in pairwise(series))
