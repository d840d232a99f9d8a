"""Learns how much of a configurator's time a task of each partition takes. Pure."""

import math
from collections.abc import Iterable

from msgspec import Struct

from monitor.load.samples import PartitionSample, Sample

_ENOUGH = 20  # tasks from which the time for one is known well


class _Done(Struct, gc=False):
    """Tasks that were done, and the time that they took."""

    tasks: int = 0
    seconds: float = 0.0

    def per_task(self, usual: float) -> float:
        """Seconds per task; the fewer tasks there were, the closer to what is usual."""
        return (self.seconds + _ENOUGH * usual) / (self.tasks + _ENOUGH)


class TaskCosts:
    """Seconds of a configurator's time per task, by partition and configurator.

    Configurators may be unequal. How much longer a task takes at one of them than at another is
    learned from the partitions that were at both; while there are none, they count as equal.

    Time is processor time: while a partition waits for switches, its configurator decides others.
    But if a configurator works on no more than `at_once` partitions at a time, then waiting takes
    its time, too.
    """

    def __init__(self, samples: Iterable[Sample], at_once: int | None = None) -> None:
        self._done: dict[str, dict[str, _Done]] = {}  # by partition, then by configurator
        self._learn(samples, at_once)
        at: dict[str, _Done] = {}
        for known in self._done.values():
            for name, done in known.items():
                sums = at.setdefault(name, _Done())
                sums.tasks += done.tasks
                sums.seconds += done.seconds
        tasks = sum(sums.tasks for sums in at.values())
        self._usual = sum(sums.seconds for sums in at.values()) / tasks if tasks else 0.0
        self._usual_at = {name: sums.per_task(self._usual) for name, sums in at.items()}
        self._ratios: dict[tuple[str, str], float] = {}

    def per_task(self, partition: str, at: str) -> float:
        """Seconds for one task of a partition at a configurator, whether it is there or not."""
        known = self._done.get(partition, {})
        elsewhere = [name for name, done in known.items() if name != at and done.tasks >= _ENOUGH]
        if elsewhere:
            best = max(elsewhere, key=lambda name: (known[name].tasks, name))
            usual = known[best].seconds / known[best].tasks * self._ratio(best, at)
        else:
            usual = self._usual_at.get(at, self._usual)
        return known.get(at, _Done()).per_task(usual)

    def _learn(self, samples: Iterable[Sample], at_once: int | None) -> None:
        for sample in samples:
            for each in sample.partitions:
                if each.done:
                    known = self._done.setdefault(each.partition, {})
                    done = known.get(each.configurator)
                    if done is None:
                        done = known[each.configurator] = _Done()
                    done.tasks += each.done
                    done.seconds += busy_seconds(each, at_once)

    def _ratio(self, source: str, target: str) -> float:
        """How many times as long a task takes at `target` as at `source`."""
        pair = source, target
        if pair not in self._ratios:
            self._ratios[pair] = self._compare(source, target)
        return self._ratios[pair]

    def _compare(self, source: str, target: str) -> float:
        logs = []
        for known in self._done.values():
            here, there = known.get(source, _Done()), known.get(target, _Done())
            if min(here.tasks, there.tasks) >= _ENOUGH and min(here.seconds, there.seconds) > 0:
                logs.append(math.log(there.seconds / there.tasks / (here.seconds / here.tasks)))
        return math.exp(math.fsum(logs) / len(logs)) if logs else 1.0


def busy_seconds(sample: PartitionSample, at_once: int | None = None) -> float:
    """The time that a partition has taken of its configurator's; see `TaskCosts`."""
    if at_once is None:
        return sample.decided_s
    return max(sample.decided_s, (sample.decided_s + sample.pushed_s) / at_once)
