"""Turns the reports of configurators into samples: what was done in each interval. Pure.

Configurators report counters since their start. A sample has the differences.
"""

from collections.abc import Iterable
from sys import intern

from configurators.streams.messages import Load, PartitionLoad, WorkCounters
from monitor.load.samples import ConfiguratorSample, PartitionSample, Sample


class _Interval:
    """What the reports of one interval say so far."""

    def __init__(self) -> None:
        self.work: dict[str, WorkCounters] = {}  # by partition: the sum over its owners
        self.owners: dict[str, tuple[str, PartitionLoad]] = {}  # the last owner, and its report
        self.memory: dict[str, int] = {}
        self.cpu_s: dict[str, float] = {}


class Collector:
    """Gathers reports, in any number, until `sample` ends the interval.

    Work counts in the interval in which the report of it arrives. A report that is missing is made
    up for by the next one.
    """

    def __init__(self) -> None:
        self._counters: dict[str, dict[str, WorkCounters]] = {}  # last ones, by configurator
        self._cpu_s: dict[str, float] = {}
        self._owned: dict[str, frozenset[str]] = {}  # partitions in the last report
        self._interval = _Interval()

    def note(self, report: Load) -> None:
        """Take a report. The first one of a configurator says only where its counters stand."""
        name, interval = intern(report.configurator), self._interval
        known = self._counters.get(name)
        if known is None:
            self._counters[name] = {}
        for part in (*report.left, *report.partitions):
            self._note_partition(name, part, known)
        self._owned[name] = frozenset(part.partition for part in report.partitions)
        before = self._cpu_s.get(name, report.cpu_s)
        gained = report.cpu_s - before if before <= report.cpu_s else report.cpu_s
        self._cpu_s[name] = report.cpu_s
        interval.memory[name] = report.memory
        interval.cpu_s[name] = interval.cpu_s.get(name, 0.0) + gained

    def forget(self, configurator: str) -> None:
        """Expect counters of another process, or after a time of which nothing is known."""
        for known in (self._counters, self._cpu_s, self._owned):
            known.pop(configurator, None)

    def sample(self, at: float, seconds: float) -> Sample:
        """End the interval (of so many seconds) at a time, and begin the next one."""
        ended, self._interval = self._interval, _Interval()
        self._drop_gone(ended.owners)
        return Sample(
            at,
            seconds,
            tuple(
                _partition_sample(name, *ended.owners[name], ended.work[name])
                for name in sorted(ended.owners)
            ),
            tuple(
                ConfiguratorSample(name, ended.memory[name], ended.cpu_s[name])
                for name in sorted(ended.memory)
            ),
        )

    def _note_partition(
        self, configurator: str, part: PartitionLoad, known: dict[str, WorkCounters] | None
    ) -> None:
        name, now = intern(part.partition), part.counters
        if known is None:
            gained = WorkCounters()
        elif (before := known.get(name)) and before.since == now.since:
            gained = _difference(now, before)
        elif now.since == part.epoch:  # the worker is new, and was not there in the last report
            gained = now
        else:  # the worker has owned the partition before, but this process has not seen that
            gained = WorkCounters()
        self._counters[configurator][name] = now
        interval = self._interval
        work = interval.work.setdefault(name, WorkCounters())
        _add(work, gained)
        owner = interval.owners.get(name)
        if owner is None or owner[1].epoch <= part.epoch:
            interval.owners[name] = configurator, part

    def _drop_gone(self, present: Iterable[str]) -> None:
        """Forget the counters of partitions that nobody has any more."""
        alive = set(present).union(*self._owned.values())
        for known in self._counters.values():
            for name in [name for name in known if name not in alive]:
                del known[name]


def _difference(now: WorkCounters, before: WorkCounters) -> WorkCounters:
    """What was done between two reports; all of `now` if the counters began again at zero."""
    gained = WorkCounters(
        now.since,
        now.arrived - before.arrived,
        now.ended - before.ended,
        now.waited_s - before.waited_s,
        now.decided_s - before.decided_s,
        now.pushed_s - before.pushed_s,
        now.slices - before.slices,
        now.flow_ops - before.flow_ops,
    )
    went_down = (
        min(gained.arrived, gained.ended, gained.slices, gained.flow_ops) < 0
        or min(gained.waited_s, gained.decided_s, gained.pushed_s) < 0
    )
    return now if went_down else gained


def _add(total: WorkCounters, more: WorkCounters) -> None:
    total.arrived += more.arrived
    total.ended += more.ended
    total.waited_s += more.waited_s
    total.decided_s += more.decided_s
    total.pushed_s += more.pushed_s
    total.slices += more.slices
    total.flow_ops += more.flow_ops


def _partition_sample(
    name: str, owner: str, load: PartitionLoad, work: WorkCounters
) -> PartitionSample:
    return PartitionSample(
        name,
        owner,
        load.epoch,
        load.queued,
        load.oldest_s,
        work.arrived,
        work.ended,
        work.waited_s,
        work.decided_s,
        work.pushed_s,
        work.slices,
        work.flow_ops,
        load.undefined,
        load.active,
        load.entries,
    )
