"""What is measured of the load, in one interval of time. Pure."""

from msgspec import Struct


class PartitionSample(Struct, frozen=True, gc=False, array_like=True):
    """The load of one partition. Counts and sums are those of the interval alone."""

    partition: str
    configurator: str  # the owner
    epoch: int
    queued: int  # tasks that wait or are in work, at the end of the interval
    oldest_s: float  # how long the oldest of them has waited
    arrived: int  # tasks that came
    done: int  # tasks that ended
    waited_s: float  # from the arrival of tasks to the begin of their slice, summed over tasks
    decided_s: float  # processor time of decisions, summed over slices
    pushed_s: float  # waiting for switches, summed over slices
    slices: int
    flow_ops: int
    undefined: int  # tasks whose flow changes no switch has acknowledged for long
    active: int  # records with something in this partition
    entries: int  # flow entries


class ConfiguratorSample(Struct, frozen=True, gc=False, array_like=True):
    """What is measured of the process of a configurator."""

    configurator: str
    memory: int  # resident bytes
    cpu_s: float  # processor time of the interval


class Sample(Struct, frozen=True, array_like=True):
    """The load of the whole control plane in one interval.

    A configurator that has not reported in the interval is missing, with its partitions.
    """

    at: float  # the end of the interval, in seconds since 1970
    seconds: float  # the length of the interval
    partitions: tuple[PartitionSample, ...]
    configurators: tuple[ConfiguratorSample, ...]
