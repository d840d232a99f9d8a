"""Combines samples of consecutive intervals into the sample of one longer interval. Pure."""

from collections.abc import Sequence

from monitor.load.samples import ConfiguratorSample, PartitionSample, Sample


def combine(samples: Sequence[Sample]) -> Sample:
    """The sample of the whole time of some samples (at least one), the oldest first.

    Counts and times are sums. Of `memory`, `oldest_s` and `undefined` it is the maximum, so that
    peaks can be seen; of everything else the last value. What is missing in some of the samples is
    combined from the others.
    """
    partitions: dict[str, PartitionSample] = {}
    configurators: dict[str, ConfiguratorSample] = {}
    for sample in samples:
        for part in sample.partitions:
            before = partitions.get(part.partition)
            partitions[part.partition] = _later(before, part) if before else part
        for one in sample.configurators:
            known = configurators.get(one.configurator)
            configurators[one.configurator] = (
                ConfiguratorSample(
                    one.configurator, max(known.memory, one.memory), known.cpu_s + one.cpu_s
                )
                if known
                else one
            )
    return Sample(
        samples[-1].at,
        sum(sample.seconds for sample in samples),
        tuple(partitions[name] for name in sorted(partitions)),
        tuple(configurators[name] for name in sorted(configurators)),
    )


def _later(first: PartitionSample, then: PartitionSample) -> PartitionSample:
    return PartitionSample(
        then.partition,
        then.configurator,
        then.epoch,
        then.queued,
        max(first.oldest_s, then.oldest_s),
        first.arrived + then.arrived,
        first.done + then.done,
        first.waited_s + then.waited_s,
        first.decided_s + then.decided_s,
        first.pushed_s + then.pushed_s,
        first.slices + then.slices,
        first.flow_ops + then.flow_ops,
        max(first.undefined, then.undefined),
        then.active,
        then.entries,
    )
