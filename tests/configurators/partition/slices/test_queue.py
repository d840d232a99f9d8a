"""The queue of a partition: which tasks count, and which are decided together."""

import pytest

from configurators.engine.engine import Engine, Ordering
from configurators.engine.partials import Kind
from configurators.environment import Clock
from configurators.partition.slices.queue import Item, Queue, Slice, partial_of
from configurators.state.network import Network, first_network
from configurators.streams.messages import Task
from configurators.streams.packing import pack_regions
from dzflow.address import Scope
from dzflow.errors import BadInput
from dzflow.region import Region
from sdn.network.topologies import topology
from sdn.tables.pipeline import PlanName
from tests.configurators.partition.source import Source


def engine(plan: PlanName = "legs") -> Engine:
    return Engine(Network.of(first_network(topology("line:3"), plan, 1)).plan(Scope(1)))


def packed(*texts: str) -> bytes:
    return pack_regions(map(Region.parse, texts))


def task(name: str, seq: int, *texts: str, host: str = "h1", advertised: bool = False) -> Task:
    regions = packed(*texts)
    return Task(name, seq, host, advertised, regions, regions if advertised else b"")


def item(name: str, seq: int, *texts: str, advertised: bool = False) -> Item:
    return Item(task(name, seq, *texts, advertised=advertised), Source(), 0.0)


def names(part: Slice) -> list[str]:
    return [one.task.id for one in part.items]


def settle(queue: Queue, to: Engine, ordering: Ordering = "net") -> Slice:
    """Decide what waits, as if the switches had acknowledged."""
    taken = queue.take(to, ordering, 100)
    to.commit(to.decide(taken.slice.partials, ordering))
    queue.ended(to, (*taken.slice.items, *taken.settled))
    return taken.slice


def test_a_newer_task_replaces_one_that_waits() -> None:
    queue = Queue()
    old, new = item("s1", 4, "0"), item("s1", 8, "1")
    assert queue.put(old) == []
    assert queue.put(new) == [old]
    assert names(queue.take(engine(), "net", 10).slice) == ["s1"]
    assert len(queue) == 0


def test_an_older_task_is_superseded_at_any_time() -> None:
    queue, of = Queue(), engine()
    late = item("s1", 4, "0")
    queue.put(item("s1", 8, "1"))
    assert queue.put(late) == [late]
    taken = queue.take(of, "net", 10)
    assert queue.put(late) == [late]  # while it is worked on
    of.commit(of.decide(taken.slice.partials))
    queue.ended(of, taken.slice.items)
    assert queue.put(late) == [late]  # while it is active
    queue.put(item("s1", 12))
    settle(queue, of)
    assert queue.put(late) == [late]  # after it is gone


def test_a_repeated_task_gets_one_reply_to_its_last_source() -> None:
    queue = Queue()
    first = item("s1", 4, "0")
    again = first._replace(to=Source())
    queue.put(first)
    assert queue.put(again) == []
    assert queue.take(engine(), "net", 10).slice.items == [again]


def test_a_task_in_work_counts_until_a_newer_one_comes() -> None:
    queue = Queue()
    queue.put(first := item("s1", 4, "0"))
    queue.take(engine(), "net", 10)
    assert queue.counts(first)
    queue.put(item("s1", 8))
    assert not queue.counts(first)


def test_removed_ids_are_forgotten_after_a_while() -> None:
    now = 0.0
    queue, of = Queue(Clock(monotonic=lambda: now)), engine()
    for number in range(3_000):
        now += 0.1
        queue.put(item(f"s{number}", 8))
        settle(queue, of)
    assert [queue.seq(name) for name in ("s0", "s1000", "s2500")] == [-1, -1, 8]


def test_loaded_requests_supersede_older_tasks_that_came_meanwhile() -> None:
    queue = Queue()
    queue.put(old := item("s1", 3, "0"))
    queue.put(item("s2", 8, "0"))
    assert queue.know("s1", 4) == [old]
    assert queue.know("s2", 4) == []
    assert queue.know("s3", 4) == []
    assert [queue.seq(name) for name in ("s1", "s2", "s3")] == [4, 8, 4]
    assert len(queue) == 1


def test_the_partial_of_a_task_depends_on_what_is_active() -> None:
    of = engine()
    for advertised, begins, ends in (
        (False, Kind.SUBSCRIBE, Kind.UNSUBSCRIBE),
        (True, Kind.ADVERTISE, Kind.UNADVERTISE),
    ):
        new = partial_of(of, task("x", 4, "0", "10", advertised=advertised))
        assert new
        assert new.kind is begins
        assert partial_of(of, task("x", 4, advertised=advertised)) is None  # nothing to remove
        of.commit(of.decide([new]))
        assert partial_of(of, task("x", 5, "10", "0", advertised=advertised)) is None
        changed = partial_of(of, task("x", 5, "1", advertised=advertised))
        assert changed
        assert changed.kind is Kind.UPDATE
        gone = partial_of(of, task("x", 8, advertised=advertised))
        assert gone
        assert gone.kind is ends
        of.commit(of.decide([gone]))


def test_an_advertisement_whose_edge_changes_is_updated() -> None:
    of = engine()
    new = partial_of(of, Task("a", 4, "h1", True, packed("0")))
    assert new
    of.commit(of.decide([new]))
    assert partial_of(of, Task("a", 5, "h1", True, packed("0"), packed("0")))


@pytest.mark.parametrize(
    "bad", [task("x", 4, "0", host="nobody"), task("x", 4, "0*1"), Task("x", 4, "h1", False, b"?")]
)
def test_impossible_tasks_are_refused(bad: Task) -> None:
    of = engine("lpm")
    with pytest.raises(BadInput):
        partial_of(of, bad)
    queue = Queue()
    queue.put(Item(bad, None, 0))
    queue.put(item("y", 4, "0"))
    taken = queue.take(of, "fifo", 10)
    assert [one.task for one, _ in taken.refused] == [bad]
    assert names(taken.slice) == ["y"]


def test_net_takes_all_kinds_together_and_other_orderings_a_run_of_one_kind() -> None:
    def filled() -> tuple[Queue, Engine]:
        queue, of = Queue(), engine()
        queue.put(item("old", 4, "0"))
        settle(queue, of)
        for one in (
            item("s1", 4, "0"),
            item("old", 5, "0"),  # as it is: costs nothing, and ends no run
            item("s2", 4, "1"),
            item("a1", 4, "0", advertised=True),
            item("s3", 4, "1"),
        ):
            queue.put(one)
        return queue, of

    queue, of = filled()
    taken = queue.take(of, "net", 10)
    assert names(taken.slice) == ["s1", "s2", "a1", "s3"]
    assert [one.task.id for one in taken.settled] == ["old"]
    orderings: tuple[Ordering, ...] = ("fifo", "ordered")
    for ordering in orderings:
        queue, of = filled()
        found = []
        while len(queue):
            found.append(names(settle(queue, of, ordering)))
        assert found == [["s1", "s2"], ["a1"], ["s3"]]


def test_a_slice_has_a_limit() -> None:
    queue, of = Queue(), engine()
    for n in range(5):
        queue.put(item(f"s{n}", 4, "0"))
    assert names(queue.take(of, "net", 2).slice) == ["s0", "s1"]
    assert len(queue) == 3
    assert len(queue.clear()) == 3
    assert len(queue) == 0


def test_a_slice_is_parted_into_removals_and_the_rest_or_into_halves() -> None:
    queue, of = Queue(), engine()
    for n in range(3):
        queue.put(item(f"s{n}", 4, "0"))
    settle(queue, of)
    for n in range(5):
        queue.put(item(f"s{n}", 8, *(["1"] if n % 2 == 0 else [])))
    part = queue.take(of, "net", 10).slice
    assert names(part) == ["s0", "s1", "s2", "s4"]  # s3 is not there, and stays so
    first, rest = part.parts()
    assert names(first) == ["s1"]
    assert [names(half) for half in rest.parts()] == [["s0"], ["s2", "s4"]]
