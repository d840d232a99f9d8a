"""The load as operators see it: rates, shares and averages, derived from samples. Pure."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import asdict

from monitor.load.samples import ConfiguratorSample, PartitionSample, Sample


class WorkView(Struct, frozen=True):
    """The work on tasks in an interval. A task is the part of a request in one partition."""

    queued: int  # tasks that wait or are in work, at the end of the interval
    oldest_s: float  # how long the oldest of them has waited
    undefined: int  # tasks whose flow changes switches have not acknowledged for long
    arrivals_per_s: float  # tasks that came
    done_per_s: float  # tasks that ended
    wait_ms: float | None  # from arrival to the begin of the slice, per task; None without tasks
    decide_ms: float | None  # processor time of a decision, per slice; None without slices
    push_ms: float | None  # until all switches have acknowledged, per slice; None without slices
    slices_per_s: float
    flow_ops_per_s: float
    active: int  # records with something in a partition, counted in each
    entries: int  # flow entries


class PartitionLoadView(WorkView, frozen=True, kw_only=True):
    """The load of one partition.

    `utilisation` is the share of the time in which the partition was worked on: decided or pushed.
    A slice counts where it ends, so the share is cut off at 1. `service_per_s` is the rate at which
    tasks end while the partition is worked on: what it could do at most. None without tasks.
    """

    id: str
    configurator: str
    epoch: int
    utilisation: float
    service_per_s: float | None


class ConfiguratorLoadView(WorkView, frozen=True, kw_only=True):
    """The load of one configurator: of its process, and of its partitions together.

    `cpu` is its processor time per second: 1 is a whole core.
    """

    id: str
    partitions: int
    memory: int  # resident bytes
    cpu: float


class LoadView(Struct, frozen=True):
    """The load in one interval that ends at `at`, and lasts for so many `seconds`.

    Configurators that have not reported in the interval are missing, with their partitions.
    """

    at: float
    seconds: float
    total: WorkView
    configurators: list[ConfiguratorLoadView]
    partitions: list[PartitionLoadView]


class LoadPage(Struct, frozen=True):
    """The load over time, the oldest interval first; `resolution` is the length of each in seconds.

    `next` is there if more follows: `since` of the next page, with the same resolution.
    """

    resolution: int
    items: list[LoadView]
    next: float | None


def show_load(sample: Sample) -> LoadView:
    """The view of a sample; numbers have three decimals."""
    by_owner: dict[str, list[PartitionSample]] = {}
    for part in sample.partitions:
        by_owner.setdefault(part.configurator, []).append(part)
    return LoadView(
        sample.at,
        round(sample.seconds, 3),
        _work(sample.partitions, sample.seconds),
        [
            _configurator(one, by_owner.get(one.configurator, ()), sample.seconds)
            for one in sample.configurators
        ],
        [_partition(part, sample.seconds) for part in sample.partitions],
    )


def _configurator(
    sample: ConfiguratorSample, parts: Sequence[PartitionSample], seconds: float
) -> ConfiguratorLoadView:
    return ConfiguratorLoadView(
        **asdict(_work(parts, seconds)),
        id=sample.configurator,
        partitions=len(parts),
        memory=sample.memory,
        cpu=_ratio(sample.cpu_s, seconds) or 0.0,
    )


def _partition(part: PartitionSample, seconds: float) -> PartitionLoadView:
    busy = part.decided_s + part.pushed_s
    return PartitionLoadView(
        **asdict(_work((part,), seconds)),
        id=part.partition,
        configurator=part.configurator,
        epoch=part.epoch,
        utilisation=min(1.0, _ratio(busy, seconds) or 0.0),
        service_per_s=_ratio(part.done, busy) if part.done else None,
    )


def _work(parts: Sequence[PartitionSample], seconds: float) -> WorkView:
    """The work on some partitions together."""
    queued = undefined = arrived = done = slices = flow_ops = active = entries = 0
    waited = decided = pushed = oldest = 0.0
    for part in parts:
        queued += part.queued
        undefined += part.undefined
        arrived += part.arrived
        done += part.done
        slices += part.slices
        flow_ops += part.flow_ops
        active += part.active
        entries += part.entries
        waited += part.waited_s
        decided += part.decided_s
        pushed += part.pushed_s
        oldest = max(oldest, part.oldest_s)
    return WorkView(
        queued,
        round(oldest, 3),
        undefined,
        _ratio(arrived, seconds) or 0.0,
        _ratio(done, seconds) or 0.0,
        _ratio(waited * 1000, done),
        _ratio(decided * 1000, slices),
        _ratio(pushed * 1000, slices),
        _ratio(slices, seconds) or 0.0,
        _ratio(flow_ops, seconds) or 0.0,
        active,
        entries,
    )


def _ratio(amount: float, per: float) -> float | None:
    return round(amount / per, 3) if per else None
