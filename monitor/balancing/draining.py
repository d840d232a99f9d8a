"""Moves all partitions away from configurators that are leaving. Pure."""

from collections.abc import Callable

from monitor.balancing.policy import Policy, ProposedMove, Situation
from monitor.balancing.recent import failures, latest, reporting

Work = Callable[[str, str], float]
"""How much work a partition is at a configurator, in any unit."""


def drain(situation: Situation, work: Work) -> list[ProposedMove]:
    """Moves of all partitions whose owner is not among the targets, the heaviest first.

    Those whose last move has failed come last, the longest ago first. Each goes to the configurator
    with the least work. An owner that does not report any more is dead: the others take over its
    partitions by themselves.
    """
    alive = reporting(situation)
    samples, failed = latest(situation), failures(situation)
    count = dict.fromkeys(sorted(alive.intersection(situation.targets)), 0)
    load = dict.fromkeys(count, 0.0)
    leaving: list[str] = []
    for partition, owner in sorted(situation.owners.items()):
        home = situation.home(partition)
        if home in count:
            count[home] += 1
            load[home] += work(partition, home)
        elif partition not in situation.moving and owner in alive:
            leaving.append(partition)

    def turn(partition: str) -> tuple[bool, float, float, str]:
        # Its owner cannot end its work now if a switch does not answer.
        stuck = partition in samples and samples[partition].undefined > 0
        weight = work(partition, situation.owners[partition])
        return stuck, failed.get(partition, 0.0), -weight, partition

    proposals: list[ProposedMove] = []
    leaving.sort(key=turn)
    for partition in leaving if count else ():
        refused = {m.target for m in situation.past if m.partition == partition and not m.done}
        target = min(count, key=lambda name: (name in refused, load[name], count[name], name))
        owner = situation.owners[partition]
        proposals.append(ProposedMove(partition, owner, target, f"{owner} is leaving"))
        count[target] += 1
        load[target] += work(partition, target)
    return proposals


def drain_by_queues(situation: Situation) -> list[ProposedMove]:
    """The same, with the queue lengths as work."""
    queues = {name: float(sample.queued) for name, sample in latest(situation).items()}
    return drain(situation, lambda partition, _: queues.get(partition, 0.0))


class DrainFirst:
    """A policy that drains leaving configurators, and asks another policy when there are none."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def propose(self, situation: Situation) -> list[ProposedMove]:
        """The moves that drain configurators, by queue lengths, or those of the other policy."""
        return drain_by_queues(situation) or self._policy.propose(situation)
