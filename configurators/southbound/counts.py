"""What a southbound process, and a configurator as its client, count for metrics."""

from collections.abc import Callable, Iterable, Mapping
from time import time

from configurators.histogram import Histogram
from configurators.streams.messages import SouthboundCounters, SwitchCounters
from sdn.network.events import NetworkEvent, Repaired, SwitchUp
from sdn.outcomes import Acknowledged, Failed, Outcome
from sdn.tables.flows import Batch


class OutcomeCounts:
    """How many batches for one switch have come to which end."""

    __slots__ = ("acknowledged", "refused", "undefined")

    def __init__(self) -> None:
        self.acknowledged = self.refused = self.undefined = 0

    def count(self, outcome: Outcome) -> None:
        """Count a batch by its outcome."""
        if type(outcome) is Acknowledged:
            self.acknowledged += 1
        elif type(outcome) is Failed:
            self.refused += 1
        else:
            self.undefined += 1


class _SwitchCounts:
    __slots__ = ("connections", "operations", "outcomes", "repairs")

    def __init__(self) -> None:
        self.outcomes = OutcomeCounts()
        self.operations = self.repairs = self.connections = 0


class SouthboundCounts:
    """The counts of a southbound process since its start."""

    def __init__(self, southbound: str = "", wall: Callable[[], float] = time) -> None:
        self._southbound = southbound
        self._started = wall()
        self._switches: dict[str, _SwitchCounts] = {}
        self._pushes = Histogram()

    def pushed(self, batch: Batch, outcomes: Mapping[str, Outcome], seconds: float) -> None:
        """Count a batch that was pushed, which took so many seconds."""
        for switch, outcome in outcomes.items():
            counts = self._of(switch)
            counts.outcomes.count(outcome)
            if type(outcome) is Acknowledged:
                counts.operations += len(batch[switch])
        self._pushes.observe(seconds)

    def happened(self, event: NetworkEvent) -> None:
        """Count what a driver has reported."""
        if isinstance(event, Repaired):
            self._of(event.switch).repairs += event.operations
        elif isinstance(event, SwitchUp):
            self._of(event.switch).connections += 1

    def keep(self, switches: Iterable[str]) -> None:
        """Forget all switches but these, because the network no longer has them."""
        wanted = set(switches)
        self._switches = {name: one for name, one in self._switches.items() if name in wanted}

    def current(self) -> SouthboundCounters:
        """What was counted so far."""
        switches = {
            name: SwitchCounters(
                one.outcomes.acknowledged,
                one.outcomes.refused,
                one.outcomes.undefined,
                one.operations,
                one.repairs,
                one.connections,
            )
            for name, one in self._switches.items()
        }
        return SouthboundCounters(self._southbound, self._started, switches, self._pushes.current())

    def _of(self, switch: str) -> _SwitchCounts:
        found = self._switches.get(switch)
        if found is None:
            found = self._switches[switch] = _SwitchCounts()
        return found
