"""Proposes how many configurators there should be, from their load. Pure.

More are proposed as soon as those that there are have too much to do, fewer only when they have had
little to do for a while. Between the two, the number stays.
"""

import math
from collections.abc import Sequence

from msgspec import Struct

from monitor.balancing.costs import busy_seconds
from monitor.balancing.forecast import ForecastOptions, predict
from monitor.balancing.policy import Situation
from monitor.balancing.recent import between, covers
from monitor.load.samples import Sample


class SizingOptions(Struct, frozen=True):
    """Busy is the share of its time that a configurator works."""

    smallest: int = 1
    largest: int = 16
    target: float = 0.5  # how busy configurators should be
    grow_at: float = 0.7  # how busy they are when there should be more; above `target`
    pause: float = 60.0  # seconds after a change before there may be more
    patience: float = 300.0  # seconds of little load before there may be fewer; below LOOK_BACK
    forecast: ForecastOptions = ForecastOptions()


class ProposedSize(Struct, frozen=True):
    """How many configurators there should be, and why."""

    count: int
    reason: str  # for operators, with the figures that led to it


def propose_size(situation: Situation, options: SizingOptions) -> ProposedSize:
    """How many configurators there should be; those that are leaving do not count.

    There are never more than partitions, because each partition has one owner.
    """
    now = len(situation.targets)
    most = max(options.smallest, min(options.largest, len(situation.owners)))
    if not options.smallest <= now <= most:
        count = min(max(now, options.smallest), most)
        return ProposedSize(
            count,
            f"there are {now}, {len(situation.owners)} partitions, and bounds of"
            f" {options.smallest} and {options.largest}",
        )
    if not covers(situation.history, options.forecast.window):
        return ProposedSize(now, "the load is not known for long enough")
    since = situation.now - _last_change(situation)
    demand = _demand(situation, options)
    busy = demand / now
    if busy > options.grow_at:
        # Twice as many at the most: what is measured of an overload is not exact.
        count = min(_needed(demand, options), 2 * now, most)
        reason = (
            f"configurators are {_percent(busy)} busy, and should be {_percent(options.target)}"
        )
        if count > now and since < options.pause:
            return ProposedSize(now, f"{reason}, but their number has just changed")
        if count == now:
            return ProposedSize(now, f"{reason}, but there may be no more than {most}")
        return ProposedSize(count, reason)
    peak = max(demand, _peak(situation, options))
    count = max(_needed(peak, options), options.smallest)
    if count < now and since >= options.patience and covers(situation.history, options.patience):
        return ProposedSize(
            count,
            f"for {options.patience:g} s, configurators were at most {_percent(peak / now)} busy;"
            f" {count} would be {_percent(peak / count)}",
        )
    return ProposedSize(now, f"configurators are {_percent(busy)} busy")


def _last_change(situation: Situation) -> float:
    """When a configurator came or went, within the history; 0 if none did."""
    first: dict[str, float] = {}
    last: dict[str, float] = {}
    for sample in situation.history:
        for each in sample.configurators:
            first.setdefault(each.configurator, sample.at)
            last[each.configurator] = sample.at
    begin = situation.history[0].at
    came = [at for name, at in first.items() if name in situation.targets and at > begin]
    went = [at for name, at in last.items() if name not in situation.targets]
    return max([*came, *went], default=0.0)


def _needed(demand: float, options: SizingOptions) -> int:
    """How many configurators are as busy as they should be with a demand, in processors."""
    return max(1, math.ceil(demand / options.target - 1e-9))


def _demand(situation: Situation, options: SizingOptions) -> float:
    """The processors that all configurators need: what they use, or are expected to need."""
    outlook = predict(situation, options.forecast)
    expected = min(
        sum(forecast.work(name, owner) for name, owner in situation.owners.items())
        for forecast in outlook.window
    )
    end = situation.history[-1].at
    window = between(situation.history, end - options.forecast.window, end)
    return max(expected, _used(window, options))


def _peak(situation: Situation, options: SizingOptions) -> float:
    """The most processors that were used in any window of the time that is looked back at."""
    end, window = situation.history[-1].at, options.forecast.window
    windows = range(math.ceil(options.patience / window))
    history = situation.history
    return max(
        _used(between(history, end - (n + 1) * window, end - n * window), options) for n in windows
    )


def _used(samples: Sequence[Sample], options: SizingOptions) -> float:
    """The processors that were used on average, for decisions or by whole processes."""
    seconds = sum(sample.seconds for sample in samples)
    if not seconds:
        return 0.0
    cpu = sum(each.cpu_s for sample in samples for each in sample.configurators)
    at_once = options.forecast.at_once
    busy = sum(busy_seconds(each, at_once) for sample in samples for each in sample.partitions)
    return max(cpu, busy) / seconds


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
