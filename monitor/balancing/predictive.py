"""Our policy: balances the work that is to be expected, if the move pays. Pure.

- Configurators that are leaving are drained first.
- A configurator with clearly more work than the average gives partitions away. A move must pay:
  what it saves within a time must be worth more than what it costs.
- A configurator that had no partition gets its share, even if nothing is overloaded.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from msgspec import Struct

from monitor.balancing.draining import drain
from monitor.balancing.forecast import ForecastOptions, Outlook, predict
from monitor.balancing.placement import Placement
from monitor.balancing.policy import ProposedMove, Situation
from monitor.balancing.recent import covers, latest, reporting
from monitor.balancing.restraint import Restraint, RestraintOptions
from monitor.load.samples import PartitionSample

_CAPACITY = 1.0  # processors: a configurator decides in one thread
_CANDIDATES = 4  # targets that are compared for a move: those with the least work


class MoveCosts(Struct, frozen=True):
    """The processor seconds that a move takes: the target builds the partition from its records."""

    move: float = 0.1
    record: float = 60e-6  # 100,000 records take about 6 s
    entry: float = 5e-6

    def price(self, sample: PartitionSample | None) -> float:
        """The price of moving a partition; that of an empty one if nothing is known of it."""
        if sample is None:
            return self.move
        return self.move + self.record * sample.active + self.entry * sample.entries


class PredictiveOptions(Struct, frozen=True):
    """When a configurator has too much work, and when a move pays."""

    imbalance: float = 0.2  # share of the average that work may be above the average
    floor: float = 0.05  # processors that it may be above the average in any case
    horizon: float = 120.0  # seconds within which a move must pay
    costs: MoveCosts = MoveCosts()
    forecast: ForecastOptions = ForecastOptions()
    restraint: RestraintOptions = RestraintOptions()


class _Move(Struct, frozen=True):
    """A move that is possible."""

    partition: str
    source: str
    target: str
    relief: float  # processors that the busier of the two saves
    price: float  # processor seconds
    value: float  # processor seconds saved within the horizon, minus the price


class PredictivePolicy:
    """Evens out the predicted work of configurators, with as few moves as possible."""

    def __init__(self, options: PredictiveOptions | None = None) -> None:
        self._options = options or PredictiveOptions()

    def propose(self, situation: Situation) -> list[ProposedMove]:
        """The moves that drain leaving configurators, or else those that even out the work."""
        outlook = predict(situation, self._options.forecast)
        moves = drain(situation, outlook.window[0].work)
        configurators = reporting(situation).intersection(situation.targets)
        if moves or not configurators:
            return moves
        return _Round(self._options, situation, outlook, configurators).propose()


class _Round:
    """One decision: moves are chosen one after the other, each as if those before were done."""

    def __init__(
        self,
        options: PredictiveOptions,
        situation: Situation,
        outlook: Outlook,
        configurators: set[str],
    ) -> None:
        homes = {name: situation.home(name) for name in situation.owners}
        self._options = options
        self._window = [Placement(each, homes, configurators) for each in outlook.window]
        self._minutes = Placement(outlook.minutes, homes, configurators)
        self._work = self._window[0]
        self._partitions = {
            name: {each for each, home in homes.items() if home == name}
            for name in sorted(configurators)
        }
        self._samples = latest(situation)
        self._restraint = Restraint(situation, options.restraint)
        self._moving = set(situation.moving)
        self._settled = covers(situation.history, options.forecast.window)
        self._new = _newcomers(situation, self._partitions)

    def propose(self) -> list[ProposedMove]:
        proposals: list[ProposedMove] = []
        while len(proposals) < self._restraint.allowed:
            found = self._relieve() or self._fill()
            if found is None:
                break
            move, reason = found
            proposals.append(ProposedMove(move.partition, move.source, move.target, reason))
            self._apply(move)
        return proposals

    def _relieve(self) -> tuple[_Move, str] | None:
        """The move that pays most, away from the busiest configurator that has too much work."""
        work, horizon = self._work, self._options.horizon
        if not self._settled:
            return None
        busiest_first = sorted(self._partitions, key=lambda name: (-work.load(name), name))
        for source in busiest_first:
            if not self._has_too_much(source):
                continue
            targets = [name for name in reversed(busiest_first) if name != source]
            best = _best(self._moves(source, targets[:_CANDIDATES]))
            if best and best.value > 0:
                return best, (
                    f"{source} is expected to need {work.load(source):.2f} processors, and the"
                    f" average is {work.average:.2f}; the move saves {best.relief:.2f} of them,"
                    f" which is worth {best.relief * horizon:.1f} s within {horizon:g} s, and costs"
                    f" {best.price:.1f} s"
                )
        return None

    def _fill(self) -> tuple[_Move, str] | None:
        """The best move to a configurator that is new and has fewer partitions than the others."""
        for target in sorted(self._new, key=lambda name: (len(self._partitions[name]), name)):
            few = len(self._partitions[target])
            sources = [name for name, own in self._partitions.items() if len(own) >= few + 2]
            best = _best(move for source in sources for move in self._moves(source, [target]))
            if best:
                return best, (
                    f"{target} is new and has {few} partitions; {best.source} has"
                    f" {len(self._partitions[best.source])}, and is expected to need"
                    f" {self._work.load(best.source):.2f} processors"
                )
        return None

    def _has_too_much(self, configurator: str) -> bool:
        """Whether a configurator has clearly more work than the average, in all of the window."""
        options = self._options
        return all(
            work.load(configurator) - work.average
            > max(options.imbalance * work.average, options.floor)
            for work in self._window
        )

    def _moves(self, source: str, targets: list[str]) -> Iterator[_Move]:
        """All moves from one configurator to others that leave the busier one with less work.

        If the configurator can do its work, this must hold for the last minutes, too.
        """
        overloaded = all(work.load(source) > _CAPACITY for work in self._window)
        for partition in sorted(filter(self._may_move, self._partitions[source])):
            price = self._options.costs.price(self._samples.get(partition))
            for target in targets:
                relief = min(each.relief(partition, source, target) for each in self._window)
                lasting = overloaded or self._minutes.relief(partition, source, target) > 0
                if relief > 0 and lasting:
                    value = relief * self._options.horizon - price
                    yield _Move(partition, source, target, relief, price, value)

    def _may_move(self, partition: str) -> bool:
        sample = self._samples.get(partition)
        # The owner cannot hand over what waits for a switch, and another one could not do it.
        stuck = sample is not None and sample.undefined > 0
        return not (stuck or partition in self._moving or self._restraint.rests(partition))

    def _apply(self, move: _Move) -> None:
        self._moving.add(move.partition)
        self._partitions[move.source].remove(move.partition)
        self._partitions[move.target].add(move.partition)
        for placement in (*self._window, self._minutes):
            placement.move(move.partition, move.source, move.target)


def _best(moves: Iterable[_Move]) -> _Move | None:
    return min(moves, key=lambda move: (-move.value, move.partition, move.target), default=None)


def _newcomers(situation: Situation, partitions: Mapping[str, Collection[str]]) -> set[str]:
    """The configurators without a partition, now or when the history first knows them."""
    found = {name for name, own in partitions.items() if not own}
    unknown = set(partitions)
    for sample in situation.history:
        if not unknown:
            break
        present = unknown.intersection(each.configurator for each in sample.configurators)
        if present:
            found |= present.difference(each.configurator for each in sample.partitions)
            unknown -= present
    return found
