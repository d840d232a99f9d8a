"""The predicted work of each configurator, while moves are being chosen. Pure."""

from collections.abc import Collection, Mapping

from monitor.balancing.forecast import Forecast

_IDLE = 0.001  # processors that a partition counts for besides its work
# So partitions are spread by number where there is no work, and by work where there is.


class Placement:
    """The work of every configurator according to one forecast, as moves are tried out.

    `homes` names the configurator of each partition; only `configurators` count.
    """

    def __init__(
        self, forecast: Forecast, homes: Mapping[str, str], configurators: Collection[str]
    ) -> None:
        self._forecast = forecast
        self._loads = dict.fromkeys(sorted(configurators), 0.0)
        for partition, home in sorted(homes.items()):
            if home in self._loads:
                self._loads[home] += self._weight(partition, home)

    def load(self, configurator: str) -> float:
        """The processors that a configurator needs."""
        return self._loads[configurator]

    @property
    def average(self) -> float:
        """The processors that a configurator needs on average."""
        return sum(self._loads.values()) / len(self._loads)

    def relief(self, partition: str, source: str, target: str) -> float:
        """By how much less work the busier of two configurators has after a move.

        It is negative if the target would have more work than the source has now.
        """
        before = self._loads[source]
        source_after = before - self._weight(partition, source)
        target_after = self._loads[target] + self._weight(partition, target)
        return before - max(source_after, target_after)

    def move(self, partition: str, source: str, target: str) -> None:
        """Count a partition at its target from now on."""
        self._loads[source] -= self._weight(partition, source)
        self._loads[target] += self._weight(partition, target)

    def _weight(self, partition: str, at: str) -> float:
        return self._forecast.work(partition, at) + _IDLE
