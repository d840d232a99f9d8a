"""From reports to samples: differences of counters, whatever happens to reports and workers."""

from copy import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from configurators.streams.messages import Load, PartitionLoad, WorkCounters
from monitor.load.collector import Collector
from monitor.load.samples import ConfiguratorSample, PartitionSample, Sample
from tests.support import state_size


def work(since: int, done: int) -> WorkCounters:
    """The counters of a worker that has done so many tasks."""
    return WorkCounters(since, done, done, done / 8, done / 16, done / 4, done, 3 * done)


def part(done: int, epoch: int = 7, since: int | None = None, name: str = "p") -> PartitionLoad:
    counters = work(epoch if since is None else since, done)
    return PartitionLoad(name, epoch, "ready", 2, 3, 4, done, None, 1, 0.5, counters)


def report(name: str, *parts: PartitionLoad, cpu_s: float = 0.0, **more: Any) -> Load:
    return Load(name, 1, list(parts), 1 << 20, cpu_s, **more)


def done(sample: Sample) -> dict[str, int]:
    """How many tasks of each partition have ended."""
    return {one.partition: one.done for one in sample.partitions}


def test_a_sample_has_the_differences_to_the_report_before() -> None:
    collector = Collector()
    collector.note(report("c1", part(100), cpu_s=5.0))
    assert done(collector.sample(10.0, 1.0)) == {"p": 0}
    collector.note(report("c1", part(116), cpu_s=5.25))
    assert collector.sample(11.0, 1.0) == Sample(
        11.0,
        1.0,
        (PartitionSample("p", "c1", 7, 2, 0.5, 16, 16, 2.0, 1.0, 4.0, 16, 48, 1, 3, 4),),
        (ConfiguratorSample("c1", 1 << 20, 0.25),),
    )


def test_several_reports_in_an_interval_add_up_and_doubled_ones_do_no_harm() -> None:
    collector = Collector()
    for number in (1, 4, 4, 4, 9):
        collector.note(report("c1", part(number), cpu_s=number))
    sample = collector.sample(10.0, 1.0)
    assert done(sample) == {"p": 8}
    assert sample.configurators[0].cpu_s == 8.0


def test_a_configurator_that_has_not_reported_is_missing_and_nothing_is_lost() -> None:
    collector = Collector()
    collector.note(report("c1", part(1)))
    collector.sample(10.0, 1.0)
    assert collector.sample(11.0, 1.0) == Sample(11.0, 1.0, (), ())
    collector.note(report("c1", part(5)))
    assert done(collector.sample(12.0, 1.0)) == {"p": 4}


def test_a_new_worker_counts_from_zero() -> None:
    collector = Collector()
    collector.note(report("c1", part(100)))
    collector.note(report("c1", part(3, epoch=8), part(2, epoch=9, name="q")))
    assert done(collector.sample(10.0, 1.0)) == {"p": 3, "q": 2}


def test_counters_that_went_down_count_from_zero() -> None:
    collector = Collector()
    collector.note(report("c1", part(100), cpu_s=50.0))
    collector.note(report("c1", part(3), cpu_s=2.0))
    sample = collector.sample(10.0, 1.0)
    assert done(sample) == {"p": 3}
    assert sample.configurators[0].cpu_s == 2.0


def test_a_worker_that_owns_its_partition_again_counts_on() -> None:
    collector = Collector()
    collector.note(report("c2"))
    collector.note(report("c1", part(100)))
    collector.note(report("c1", left=[part(110)]))
    assert done(collector.sample(10.0, 1.0)) == {"p": 10}
    collector.note(report("c2", part(5, epoch=8)))
    assert done(collector.sample(11.0, 1.0)) == {"p": 5}
    collector.note(report("c2", left=[part(6, epoch=8)]))
    collector.note(report("c1", part(111, epoch=9, since=7)))
    sample = collector.sample(12.0, 1.0)
    assert done(sample) == {"p": 2}
    assert (sample.partitions[0].configurator, sample.partitions[0].epoch) == ("c1", 9)


def test_a_worker_whose_past_is_not_known_counts_from_now_on() -> None:
    collector = Collector()
    collector.note(report("c1"))
    collector.note(report("c1", part(5_000, epoch=9, since=7)))
    collector.note(report("c1", part(5_002, epoch=9, since=7)))
    assert done(collector.sample(10.0, 1.0)) == {"p": 2}


def test_after_a_stream_was_closed_counters_begin_again() -> None:
    collector = Collector()
    collector.note(report("c1", part(100), cpu_s=5.0))
    collector.forget("c1")
    collector.note(report("c1", part(900), cpu_s=70.0))
    collector.note(report("c1", part(901), cpu_s=71.0))
    sample = collector.sample(10.0, 1.0)
    assert done(sample) == {"p": 1}
    assert sample.configurators[0].cpu_s == 1.0
    collector.forget("never seen")


def test_the_owner_is_the_one_with_the_highest_epoch() -> None:
    collector = Collector()
    for name in ("c1", "c2"):
        collector.note(report(name))
    collector.note(report("c2", part(1, epoch=9)))
    collector.note(report("c1", part(1, epoch=7)))  # does not know yet that it has lost it
    sample = collector.sample(10.0, 1.0)
    assert [(one.configurator, one.epoch, one.done) for one in sample.partitions] == [("c2", 9, 2)]


def test_partitions_that_are_gone_are_forgotten() -> None:
    collector = Collector()
    sizes = []
    for number in range(100):
        collector.note(report("c1", part(1, epoch=number, name=f"p{number}")))
        collector.sample(10.0 + number, 1.0)
        sizes.append(state_size(collector))
    assert sizes[-1] < 1.5 * sizes[1]


class Worker:
    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.counters = WorkCounters(since=epoch)

    def load(self, name: str) -> PartitionLoad:
        return PartitionLoad(name, self.epoch, "ready", 0, 0, 0, 0, counters=copy(self.counters))


class Model:
    """Two configurators that hand two partitions over to each other, and what they really do."""

    def __init__(self) -> None:
        self.collector = Collector()
        self.epoch = 0
        self.owned: dict[str, dict[str, Worker]] = {"c1": {}, "c2": {}}
        self.replicas: dict[str, dict[str, Worker]] = {"c1": {}, "c2": {}}
        self.reported: dict[str, dict[str, Worker]] = {"c1": {}, "c2": {}}
        self.done = {"p": 0, "q": 0}
        self.counted = {"p": 0, "q": 0}
        for name in self.owned:
            self.report(name)

    def own(self, configurator: str, partition: str, keeps: bool) -> None:
        """Give a partition to a configurator, which may have its state from before."""
        self.epoch += 1
        for name, owned in self.owned.items():
            worker = owned.pop(partition, None)
            if worker:
                self.replicas[name][partition] = worker
                self.report(name)
        worker = self.replicas[configurator].pop(partition, None)
        if worker is None or not keeps:
            worker = Worker(self.epoch)
        worker.epoch = self.epoch
        self.owned[configurator][partition] = worker
        self.report(configurator)

    def work(self, partition: str, tasks: int) -> None:
        for owned in self.owned.values():
            if worker := owned.get(partition):
                worker.counters.arrived += tasks
                worker.counters.ended += tasks
                self.done[partition] += tasks

    def report(self, name: str, copies: int = 1) -> None:
        owned, before = self.owned[name], self.reported[name]
        left = [w.load(part) for part, w in before.items() if owned.get(part) is not w]
        parts = [worker.load(part) for part, worker in owned.items()]
        self.reported[name] = dict(owned)
        for _ in range(copies):
            self.collector.note(Load(name, 1, parts, left=left))

    def sample(self) -> None:
        for one in self.collector.sample(0.0, 1.0).partitions:
            assert one.done >= 0
            self.counted[one.partition] += one.done


_configurators = st.sampled_from(["c1", "c2"])
_partitions = st.sampled_from("pq")
_steps = st.one_of(
    st.tuples(st.just("own"), _configurators, _partitions, st.booleans()),
    st.tuples(st.just("work"), _partitions, st.integers(1, 100)),
    st.tuples(st.just("report"), _configurators, st.integers(0, 2)),
    st.tuples(st.just("sample")),
)


@given(st.lists(_steps, max_size=60), st.booleans())
def test_every_task_is_counted_exactly_once(steps: list[tuple[Any, ...]], closes: bool) -> None:
    model = Model()
    for step, *arguments in steps:
        getattr(model, step)(*arguments)
    if closes:
        model.collector.forget("c1")
    for name in model.owned:
        model.report(name)
    model.sample()
    assert all(model.counted[name] <= model.done[name] for name in model.done)
    if not closes:
        assert model.counted == model.done
