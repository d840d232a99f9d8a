"""Situations that tests write down by hand."""

from collections.abc import Callable, Iterable, Sequence

from monitor.balancing.policy import PastMove, Situation
from monitor.load.samples import ConfiguratorSample, PartitionSample, Sample

NOW = 1_000_000.0


def part(
    name: str,
    configurator: str,
    *,
    queued: int = 0,
    arrived: int = 0,
    done: int | None = None,
    work: float = 0.0,
    pushed_s: float = 0.0,
    undefined: int = 0,
    active: int = 0,
    entries: int = 0,
    epoch: int = 1,
) -> PartitionSample:
    """The load of a partition in one second; `work` is its processor time.

    By default, as many tasks are done as arrive.
    """
    return PartitionSample(
        partition=name,
        configurator=configurator,
        epoch=epoch,
        queued=queued,
        oldest_s=0.0,
        arrived=arrived,
        done=arrived if done is None else done,
        waited_s=0.0,
        decided_s=work,
        pushed_s=pushed_s,
        slices=1,
        flow_ops=0,
        undefined=undefined,
        active=active,
        entries=entries,
    )


def sample(
    at: float, partitions: Iterable[PartitionSample], idle: Iterable[str] = (), cpu: float = 0.0
) -> Sample:
    """One second; `idle` are configurators without partitions."""
    found = tuple(partitions)
    names = sorted({each.configurator for each in found} | set(idle))
    return Sample(at, 1.0, found, tuple(ConfiguratorSample(name, 0, cpu) for name in names))


def situation(
    partitions: Callable[[int], Sequence[PartitionSample]],
    *,
    seconds: int = 60,
    idle: Iterable[str] = (),
    leaving: Iterable[str] = (),
    past: Sequence[PastMove] = (),
    moving: dict[str, str] | None = None,
    cpu: float = 0.0,
) -> Situation:
    """A situation after some seconds; `partitions` tells the load of the second with an age.

    Owners are those of the last second.
    """
    idle = list(idle)
    ages = range(seconds - 1, -1, -1)
    history = [sample(NOW - age, partitions(age), idle, cpu) for age in ages]
    owners = {each.partition: each.configurator for each in history[-1].partitions}
    targets = {each.configurator for each in history[-1].configurators} - set(leaving)
    return Situation(NOW, history, owners, targets, past, moving or {})


def moved(name: str, age: float, done: bool = True) -> PastMove:
    """A move that ended so many seconds ago."""
    return PastMove(NOW - age, name, "c1", "c2", done)
