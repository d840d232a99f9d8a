"""Samples for tests of the monitor."""

from typing import Any

from msgspec.structs import replace

from monitor.load.samples import ConfiguratorSample, PartitionSample, Sample

_IDLE = PartitionSample("", "c1", 7, 0, 0.0, 0, 0, 0.0, 0.0, 0.0, 0, 0, 0, 0, 0)


def partition(name: str, **members: Any) -> PartitionSample:
    """A partition of c1 that does nothing; `members` says what it does."""
    return replace(_IDLE, partition=name, **members)


def sample(at: float, *parts: PartitionSample, seconds: float = 1.0, **cpu_s: float) -> Sample:
    """A sample with these partitions, and the processor time of these configurators."""
    configurators = [ConfiguratorSample(name, 1 << 20, spent) for name, spent in cpu_s.items()]
    return Sample(at, seconds, parts, tuple(configurators))
