"""A small queueing simulation that records load histories: deterministic, one step per second.

A configurator has one processor and works on the tasks of its partitions, the oldest first. A move
takes some seconds, in which nobody works on the partition.
"""

from collections import deque
from collections.abc import Callable, Mapping

from monitor.balancing.policy import PastMove, Policy, ProposedMove, Situation
from monitor.load.samples import ConfiguratorSample, PartitionSample, Sample

Rate = Callable[["Simulation", str], float]
"""Tasks that arrive for a partition in the present second."""

BEGIN = 1_000_000.0  # seconds since 1970


class Simulation:
    """Partitions with their queues, and the configurators that work on them."""

    def __init__(
        self,
        owners: Mapping[str, str],
        configurators: Mapping[str, float],  # their speeds; 1 is usual
        rate: Rate,
        policy: Policy | None = None,
        *,
        service: float = 0.002,  # seconds of processor time per task
        active: int = 1000,
        period: int = 5,
        move_time: int = 2,
        memory: int = 300,  # samples
    ) -> None:
        self.now = 0  # seconds since the begin
        self.owners = dict(owners)
        self.speeds = dict(configurators)
        self.leaving: set[str] = set()
        self.queues: dict[str, deque[list[int]]] = {name: deque() for name in owners}
        self.moves: list[PastMove] = []
        self.proposals: list[ProposedMove] = []
        self.history: deque[Sample] = deque(maxlen=memory)
        self.done = 0
        self.waited = 0.0  # seconds, summed over all tasks that are done
        self._rate = rate
        self._policy = policy
        self._service = service
        self._active = active
        self._period = period
        self._move_time = move_time
        self._epochs = dict.fromkeys(owners, 1)
        self._fractions = dict.fromkeys(owners, 0.0)
        self._spare: dict[str, float] = {}
        self._moving: dict[str, tuple[int, ProposedMove]] = {}

    def run(self, seconds: int) -> None:
        """Let time pass."""
        for _ in range(seconds):
            self._step()

    def come(self, configurator: str, speed: float = 1.0) -> None:
        """Start another configurator, without partitions."""
        self.speeds[configurator] = speed

    def go(self, configurator: str) -> None:
        """End a configurator that has no partitions any more."""
        assert not self.of(configurator)
        del self.speeds[configurator]

    @property
    def backlog(self) -> int:
        """Tasks that wait."""
        return sum(map(self.queued, self.owners))

    @property
    def mean_wait(self) -> float:
        """Seconds that a task has waited on average, those that still wait included."""
        waiting = [batch for queue in self.queues.values() for batch in queue]
        waited = sum((self.now - at) * count for at, count in waiting)
        return (self.waited + waited) / max(1, self.done + self.backlog)

    def queued(self, partition: str) -> int:
        """Tasks of a partition that wait."""
        return sum(count for _, count in self.queues[partition])

    def of(self, configurator: str) -> list[str]:
        """The partitions of a configurator."""
        return [name for name, owner in self.owners.items() if owner == configurator]

    def moves_per_hour(self) -> int:
        """The most moves in any hour."""
        times = [move.at for move in self.moves]
        return max((sum(at <= t < at + 3600 for t in times) for at in times), default=0)

    def situation(self) -> Situation:
        """What a policy is asked now."""
        return Situation(
            now=BEGIN + self.now,
            history=list(self.history),
            owners=dict(self.owners),
            targets=[name for name in self.speeds if name not in self.leaving],
            past=[move for move in self.moves if move.at > BEGIN + self.now - 3600],
            moving={name: move.target for name, (_, move) in self._moving.items()},
        )

    def _step(self) -> None:
        arrived = {name: self._arrive(name) for name in self.owners}
        done: dict[str, int] = {}
        for configurator in self.speeds:
            done |= self._work(configurator)
        self.now += 1
        self.history.append(self._sample(arrived, done))
        self._end_moves()
        if self._policy and self.now % self._period == 0:
            for move in self._policy.propose(self.situation()):
                self.proposals.append(move)
                self._moving[move.partition] = self.now + self._move_time, move

    def _arrive(self, partition: str) -> int:
        whole, self._fractions[partition] = divmod(
            self._rate(self, partition) + self._fractions[partition], 1
        )
        if whole:
            self.queues[partition].append([self.now, int(whole)])
        return int(whole)

    def _work(self, configurator: str) -> dict[str, int]:
        """Let a configurator work for a second; the tasks that it has done, by partition."""
        cost = self._service / self.speeds[configurator]
        own = [name for name in self.of(configurator) if name not in self._moving]
        left = 1.0 + self._spare.get(configurator, 0.0)
        done = dict.fromkeys(own, 0)
        waiting = sorted((batch[0], name) for name in own for batch in self.queues[name])
        for at, name in waiting:
            batch = self.queues[name][0]
            count = min(batch[1], int(left / cost + 1e-9))
            if not count:
                break
            left -= count * cost
            done[name] += count
            batch[1] -= count
            self.done += count
            self.waited += count * (self.now - at)
            if not batch[1]:
                self.queues[name].popleft()
        self._spare[configurator] = min(left, cost)
        return done

    def _sample(self, arrived: Mapping[str, int], done: Mapping[str, int]) -> Sample:
        partitions = []
        busy = dict.fromkeys(self.speeds, 0.0)
        for name, owner in self.owners.items():
            count = done.get(name, 0)
            decided = count * self._service / self.speeds[owner]
            busy[owner] += decided
            queue = self.queues[name]
            partitions.append(
                PartitionSample(
                    partition=name,
                    configurator=owner,
                    epoch=self._epochs[name],
                    queued=self.queued(name),
                    oldest_s=float(self.now - queue[0][0]) if queue else 0.0,
                    arrived=arrived[name],
                    done=count,
                    waited_s=0.0,
                    decided_s=decided,
                    pushed_s=0.0,
                    slices=1 if count else 0,
                    flow_ops=count,
                    undefined=0,
                    active=self._active,
                    entries=self._active,
                )
            )
        processes = [ConfiguratorSample(name, 0, seconds) for name, seconds in busy.items()]
        return Sample(BEGIN + self.now, 1.0, tuple(partitions), tuple(processes))

    def _end_moves(self) -> None:
        for name, (end, move) in list(self._moving.items()):
            if self.now >= end:
                del self._moving[name]
                self.owners[name] = move.target
                self._epochs[name] += 1
                at = BEGIN + self.now
                self.moves.append(PastMove(at, name, move.source, move.target, done=True))


def zipf(count: int, total: float) -> dict[str, float]:
    """Rates of partitions `p0`, `p1`, …, which sum up to `total`: the first one is the busiest."""
    shares = [1 / (rank + 1) for rank in range(count)]
    return {f"p{n}": total * share / sum(shares) for n, share in enumerate(shares)}
