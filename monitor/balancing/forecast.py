"""Predicts the work of each partition: the processor time that it will ask for per second. Pure.

A partition's work is the rate at which its tasks arrive, times the processor time that one of them
takes, plus its backlog, spread over the time in which it should be done. The unit is processors: a
configurator decides in one thread, so it can do 1 at the most.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from monitor.balancing.costs import TaskCosts
from monitor.balancing.policy import Situation
from monitor.balancing.recent import between, latest
from monitor.load.samples import PartitionSample, Sample

_MEMORY = 300.0  # seconds of history that are looked at, of those that there are
_SAMPLES = 60  # of them: more would not tell more of an average
_CATCH_UP = 30.0  # seconds in which a backlog should be done


class ForecastOptions(Struct, frozen=True):
    """How work is predicted."""

    window: float = 20.0  # seconds of history that tell the rate of arrivals
    at_once: int | None = None  # partitions that a configurator works on at a time; None: all


class Forecast:
    """The predicted work of every partition, at any configurator."""

    def __init__(
        self,
        samples: Mapping[str, PartitionSample],
        rates: Mapping[str, float],
        costs: TaskCosts,
    ) -> None:
        self._samples = samples
        self._rates = rates
        self._costs = costs

    def work(self, partition: str, at: str) -> float:
        """The processors that a partition asks for at a configurator."""
        sample = self._samples.get(partition)
        # What waits for a switch is no work before the switch answers.
        backlog = 0 if sample is None or sample.undefined else sample.queued
        rate = self._rates.get(partition, 0.0) + backlog / _CATCH_UP
        return rate * self._costs.per_task(partition, at) if rate else 0.0


class _Arrivals:
    """Tasks that arrived, by partition, and the seconds in which they did."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self.tasks: dict[str, int] = {}
        self.seconds: dict[str, float] = {}
        tasks, seconds = self.tasks, self.seconds
        seen: dict[str, Sample] = {}
        for sample in samples:
            for each in sample.partitions:
                name = each.partition
                tasks[name] = tasks.get(name, 0) + each.arrived
                # Just after a move, both owners may report on a partition: the time counts once.
                if seen.get(name) is not sample:
                    seen[name] = sample
                    seconds[name] = seconds.get(name, 0.0) + sample.seconds


def _rates(parts: Iterable[_Arrivals]) -> dict[str, float]:
    """Tasks per second, by partition, over the samples that report on it."""
    tasks: dict[str, int] = {}
    seconds: dict[str, float] = {}
    for part in parts:
        for name, count in part.tasks.items():
            tasks[name] = tasks.get(name, 0) + count
            seconds[name] = seconds.get(name, 0.0) + part.seconds[name]
    return {name: count / seconds[name] for name, count in tasks.items() if count}


class Outlook(Struct, frozen=True):
    """What to expect if tasks arrive as they did in the window, or in the last minutes.

    `window` has three forecasts: of the whole window, of its first half, and of its second half.
    What holds for all three is no short peak. What holds for the last minutes, too, is not just one
    side of a load that swings.
    """

    window: tuple[Forecast, Forecast, Forecast]
    minutes: Forecast


def predict(situation: Situation, options: ForecastOptions) -> Outlook:
    """What to expect, from the history."""
    history = situation.history
    end = history[-1].at if history else situation.now
    begin, middle = end - options.window, end - options.window / 2
    first = _Arrivals(between(history, begin, middle))
    second = _Arrivals(between(history, middle, end))
    minutes = between(history, end - _MEMORY, end)
    minutes = minutes[:: -max(1, len(minutes) // _SAMPLES)]
    costs = TaskCosts(minutes, options.at_once)
    samples = latest(situation)

    def forecast(*parts: _Arrivals) -> Forecast:
        return Forecast(samples, _rates(parts), costs)

    window = forecast(first, second), forecast(first), forecast(second)
    return Outlook(window, forecast(_Arrivals(minutes)))
