"""What the last seconds of the load say of partitions and configurators. Pure."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from monitor.balancing.policy import Situation
from monitor.load.samples import PartitionSample, Sample

FRESH = 5.0
"""Seconds after which a report is too old to act upon."""


def reporting(situation: Situation) -> set[str]:
    """The configurators that have reported lately. Others are dead, or cut off."""
    return {each.configurator for sample in _fresh(situation) for each in sample.configurators}


def latest(situation: Situation) -> dict[str, PartitionSample]:
    """The last report on each partition, of those that have an owner and were reported lately."""
    found: dict[str, PartitionSample] = {}
    for sample in _fresh(situation):  # the newest first
        here: dict[str, PartitionSample] = {}
        for each in sample.partitions:
            if each.partition in situation.owners and each.partition not in found:
                # Just after a move, both owners may have reported on it.
                known = here.get(each.partition)
                if known is None or each.epoch > known.epoch:
                    here[each.partition] = each
        found |= here
    return found


def failures(situation: Situation) -> dict[str, float]:
    """When the last move of each partition ended, if it has failed.

    Such partitions should come last: the balancer stops at the first move that fails and asks
    again, so one that cannot move now would hold up all others.
    """
    last = {move.partition: move for move in situation.past}
    return {name: move.at for name, move in last.items() if not move.done}


def between(history: Sequence[Sample], begin: float, end: float) -> Sequence[Sample]:
    """The samples after a time and up to another."""

    def first_after(time: float) -> int:
        return bisect_right(history, time, key=lambda sample: sample.at)

    return history[first_after(begin) : first_after(end)]


def covers(history: Sequence[Sample], seconds: float) -> bool:
    """Whether a history reaches back so many seconds from its end, give or take a sample."""
    if not history:
        return False
    return history[0].at - 2 * history[0].seconds <= history[-1].at - seconds


def _fresh(situation: Situation) -> Iterator[Sample]:
    """The samples of the last seconds, the newest first."""
    for sample in reversed(situation.history):
        if sample.at < situation.now - FRESH:
            return
        yield sample
