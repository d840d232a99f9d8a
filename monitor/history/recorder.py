"""Records what happens to workers and partitions, from what the dispatcher hears."""

from collections.abc import Callable

from configurators.environment import Clock
from configurators.store.model import WorkerKind
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.knowledge.fleet import Fleet
from dispatcher.knowledge.workers import Workers
from dzflow.aio import OncePerTurn
from monitor.history.event import HistoryEvent, HistoryPage
from monitor.history.reducer import HistoryReducer, coalesce
from monitor.history.ring import HistoryRing
from monitor.jobs.state import JobState

DEFAULT_SIZE = 5_000
"""Events that an API process keeps, unless a setting says otherwise."""

_KINDS: tuple[WorkerKind, ...] = ("configurators", "southbound")


class HistoryRecorder:
    """The history since this process has started; `on_event` is called with each new event.

    Each API process records by itself, and forgets everything when it ends. Nothing is recorded of
    single requests, so requests do not pay for it.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        fleet: Fleet,
        workers: Workers,
        clock: Clock,
        process: str,
        on_event: Callable[[HistoryEvent], None],
        size: int = DEFAULT_SIZE,
    ) -> None:
        self._catalogue = catalogue
        self._fleet = fleet
        self._workers = workers
        self._clock = clock
        self._on_event = on_event
        self._ring = HistoryRing(size, process)
        self._reducer = HistoryReducer(clock.wall())
        self._take_overs: list[HistoryEvent] = []  # heard of in this turn of the event loop
        self._soon = OncePerTurn(self._record_take_overs)

    def begin(self) -> None:
        """Listen from now on; what the dispatcher knows already is where things stand."""
        now = self._clock.wall()
        catalogue, reducer = self._catalogue, self._reducer
        for partition, (move, _) in catalogue.moves.items():
            reducer.move(partition, move, now)
        for number, (plan, _) in catalogue.plans.items():
            reducer.plan(number, plan, now)
        if not catalogue.partitions_locked:  # in mode sea, partitions change hands all the time
            for partition, owner in catalogue.owners.items():
                reducer.owner(partition, owner, now)
            catalogue.owner_changed.subscribe(self._owner_changed)
        catalogue.move_changed.subscribe(self._move_changed)
        catalogue.plan_changed.subscribe(self._plan_changed)
        self._fleet.registrations_changed.subscribe(self._registrations_changed)
        self._fleet.switches_changed.subscribe(self._switches_changed)
        self._workers.changed.subscribe(self._wanted_changed)
        self._wanted_changed()
        self._registrations_changed()
        self._switches_changed()

    def page(self, since: float) -> HistoryPage:
        """The events after a time (seconds since 1970, or if negative: seconds before now)."""
        return self._ring.page(since if since >= 0 else self._clock.wall() + since)

    def job_changed(self, state: JobState) -> None:
        """Take the state of the scheduled job."""
        self._record(self._reducer.job(state, self._clock.wall()))

    def leader_changed(self, leader: str | None) -> None:
        """Take the process whose monitor leads."""
        self._record(self._reducer.leader(leader, self._clock.wall()))

    def _record(self, events: list[HistoryEvent]) -> None:
        for event in events:
            self._on_event(self._ring.add(event))

    def _owner_changed(self, partition: str, epoch: int | None) -> None:  # noqa: ARG002
        owner = self._catalogue.owners.get(partition)
        self._take_overs += self._reducer.owner(partition, owner, self._clock.wall())
        if self._take_overs:
            self._soon.schedule()

    def _record_take_overs(self) -> None:
        found, self._take_overs = self._take_overs, []
        self._record(coalesce(found))

    def _move_changed(self, partition: str) -> None:
        known = self._catalogue.moves.get(partition)
        move = known[0] if known else None
        self._record(self._reducer.move(partition, move, self._clock.wall()))

    def _plan_changed(self, number: int) -> None:
        known = self._catalogue.plans.get(number)
        plan = known[0] if known else None
        self._record(self._reducer.plan(number, plan, self._clock.wall()))

    def _registrations_changed(self) -> None:
        now = self._clock.wall()
        for kind, peers in zip(
            _KINDS, (self._fleet.configurators, self._fleet.southbound), strict=True
        ):
            self._record(self._reducer.workers(kind, peers.processes, now))

    def _wanted_changed(self) -> None:
        now = self._clock.wall()
        for kind in _KINDS:
            self._record(self._reducer.wanted(kind, self._workers.wanted(kind), now))

    def _switches_changed(self) -> None:
        reports = self._fleet.switch_reports.values()
        up = frozenset(switch for report in reports for switch in report.switches)
        down = {switch: why for report in reports for switch, why in report.down.items()}
        self._record(self._reducer.switches(up, down, self._clock.wall()))
