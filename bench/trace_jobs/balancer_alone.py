"""What the balancer makes of a load by itself: it moves whole partitions, and cuts none. Pure."""

from collections.abc import Collection, Mapping

from monitor.balancing.policy import PastMove, Situation
from monitor.balancing.predictive import PredictivePolicy
from monitor.load.samples import ConfiguratorSample, PartitionSample, Sample

BUSY = 0.4  # processors that a configurator needs on average
TASK = 0.001  # seconds of work for a task
HISTORY = 60  # samples, one per second
PAUSE = 400.0  # seconds between decisions: partitions that have moved once may move again
MOST_ROUNDS = 50


def settled_owners(
    work: Mapping[str, float], owners: Mapping[str, str], configurators: Collection[str]
) -> dict[str, str]:
    """The owners once the predictive policy proposes no move any more, under a steady load.

    `work` is the load of each partition, in any unit.
    """
    policy = PredictivePolicy()
    scale = BUSY * len(configurators) / (sum(work.values()) or 1.0)
    found = dict(owners)
    past: list[PastMove] = []
    now = 0.0
    for _ in range(MOST_ROUNDS):
        now += PAUSE
        history = [
            _sample(now - age, work, scale, found, configurators)
            for age in reversed(range(HISTORY))
        ]
        moves = policy.propose(Situation(now, history, found, configurators, tuple(past)))
        if not moves:
            break
        for move in moves:
            found[move.partition] = move.target
            past.append(PastMove(now, move.partition, move.source, move.target, True))
    return found


def _sample(
    at: float,
    work: Mapping[str, float],
    scale: float,
    owners: Mapping[str, str],
    configurators: Collection[str],
) -> Sample:
    partitions = []
    for name, owner in owners.items():
        tasks = round(work.get(name, 0.0) * scale / TASK)
        partitions.append(
            PartitionSample(
                partition=name,
                configurator=owner,
                epoch=1,
                queued=0,
                oldest_s=0.0,
                arrived=tasks,
                done=tasks,
                waited_s=0.0,
                decided_s=tasks * TASK,
                pushed_s=0.0,
                slices=tasks,
                flow_ops=0,
                undefined=0,
                active=0,
                entries=0,
            )
        )
    processes = tuple(ConfiguratorSample(name, 0, 0.0) for name in sorted(configurators))
    return Sample(at, 1.0, tuple(partitions), processes)
