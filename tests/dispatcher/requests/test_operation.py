"""The life of an operation: whatever happens in whatever order, it ends, and never too early."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from configurators.store.model import NextFilter, Record, State, Timing
from configurators.streams.messages import Done, Task
from dispatcher.requests.operation import NOTHING, Next, Operation, Share, union

PARTITIONS = ("1.0/a", "1.0/b", "1.0/c", "1.0/d")
REGIONS = [bytes([n]) * 24 for n in range(4)]

shares = st.dictionaries(
    st.sampled_from(PARTITIONS),
    st.sets(st.sampled_from(REGIONS), min_size=1).map(lambda some: (b"".join(sorted(some)), b"")),
    max_size=4,
)


STATES: dict[str, State] = {"begin": "pending", "end": "removing", "update": "active"}


def record_for(action: str) -> Record:
    following = NextFilter({}, {0: b""}) if action == "update" else None
    regions = {0: b""}
    return Record(
        "s1-1", "subscription", "h1", "stocks", {}, regions, STATES[action], 3, 0.0, "d1",
        next=following,
    )  # fmt: skip


class Partitions:
    """What owners do with tasks: each keeps the last; a new owner has what is settled."""

    def __init__(self, settled: dict[str, Share]) -> None:
        self.settled = settled
        self.epochs = dict.fromkeys(PARTITIONS, 10)
        self.has: dict[str, Share] = dict(settled)
        self.seqs: dict[str, int] = {}

    def carry_out(self, name: str, task: Task) -> None:
        assert task.seq >= self.seqs.get(name, 0)
        self.seqs[name] = task.seq
        self.has[name] = task.regions, task.edge

    def new_owner(self, name: str) -> int:
        self.epochs[name] = max(self.epochs.values()) + 1
        self.has[name] = self.settled.get(name, NOTHING)
        self.seqs.pop(name, None)
        return self.epochs[name]


def same(name: str, share: Share, wanted: dict[str, Share]) -> bool:
    """Whether a share has the regions it should, in whatever order."""

    def parts(some: Share) -> set[bytes]:
        return {some[0][at : at + 24] for at in range(0, len(some[0]), 24)}

    return parts(share) == parts(wanted.get(name, NOTHING))


@settings(max_examples=150, deadline=None)
@given(st.data(), st.sampled_from(["begin", "end", "update"]), shares, shares, st.booleans())
def test_every_operation_ends_and_never_before_all_is_done_under_current_epochs(
    data: st.DataObject, action: str, old: dict[str, Share], new: dict[str, Share], sure: bool
) -> None:
    before = {} if action == "begin" else old
    after = {} if action == "end" else new
    world = Partitions(dict(before))
    operation = Operation(record_for(action), 5, before, after, sure)
    wire: list[tuple[str, Task]] = []
    late: list[Done] = []

    def answer(name: str, task: Task, outcome: str) -> Done:
        done = Done(name, task.id, task.seq, world.epochs[name], outcome, "no", 1, 1)  # type: ignore[arg-type]
        late.append(done)
        return done

    what = operation.start()
    for step in range(200):
        if what is Next.SEND:
            wire += operation.to_send()
        elif what is Next.PAUSE:
            what = operation.again()
            continue
        elif what is Next.SETTLE:
            if step > 150 or data.draw(st.booleans(), "settle succeeds"):
                break
            # Somebody took a partition over just before: the store refuses.
            name = data.draw(st.sampled_from(PARTITIONS), "lost")
            what = operation.owner_changed(name, world.new_owner(name))
            if what is Next.WAIT:
                what = Next.SETTLE
            continue
        assert operation.open, "it waits for nothing"
        calm = step > 60
        kind = (
            "answer" if calm else data.draw(st.sampled_from(["answer", "owner", "late"]), "event")
        )
        if kind == "owner":
            name = data.draw(st.sampled_from(PARTITIONS), "partition")
            what = operation.owner_changed(name, world.new_owner(name))
        elif kind == "late" and late:
            what = operation.done(data.draw(st.sampled_from(late), "again"))
            assert what in (Next.WAIT, Next.SEND, Next.SETTLE, Next.PAUSE)
        else:
            if not wire:
                wire += operation.to_send()
            name, task = wire.pop(data.draw(st.integers(0, len(wire) - 1), "which"))
            if task.seq < world.seqs.get(name, 0):
                what = operation.done(answer(name, task, "superseded"))
            elif not calm and data.draw(st.integers(0, 4), "luck") == 0:
                what = operation.done(answer(name, task, "failed"))
            else:
                world.carry_out(name, task)
                what = operation.done(answer(name, task, "done"))
    else:
        raise AssertionError("it never ended")
    assert not operation.open
    for name, epoch in operation.held.items():
        assert epoch == world.epochs[name]
    settled = operation.settlement(9.0, Timing())
    wanted = before if operation.refused else after
    for name in PARTITIONS:
        assert same(name, world.has.get(name, NOTHING), wanted), name
    assert settled.by == ""
    assert settled.next is None
    states = {
        "begin": ("active", "failed"),
        "end": ("removed", "active"),
        "update": ("active",) * 2,
    }
    assert settled.state == states[action][operation.refused]
    assert (settled.acknowledged == 9.0) is not operation.refused


def done_for(operation: Operation, name: str, outcome: str = "done", epoch: int = 1) -> Done:
    return Done(name, "s1-1", operation.latest[name].seq, epoch, outcome)  # type: ignore[arg-type]


def test_an_update_tells_old_partitions_only_after_all_new_ones_have_it() -> None:
    old, new = {"1.0/a": (REGIONS[0], b"")}, {"1.0/b": (REGIONS[1], b"")}
    operation = Operation(record_for("update"), 5, old, new)
    assert operation.start() is Next.SEND
    assert [name for name, _ in operation.to_send()] == ["1.0/b"]
    assert operation.done(done_for(operation, "1.0/b")) is Next.SEND
    [(name, task)] = operation.to_send()
    assert (name, task.regions) == ("1.0/a", b"")
    assert operation.done(done_for(operation, "1.0/a")) is Next.SETTLE


def test_what_does_not_change_is_not_told() -> None:
    have = {"1.0/a": (REGIONS[0], b"")}
    operation = Operation(record_for("update"), 5, have, {**have, "1.1/a": (REGIONS[1], b"")})
    assert operation.start() is Next.SEND
    assert [name for name, _ in operation.to_send()] == ["1.1/a"]
    assert operation.done(done_for(operation, "1.1/a")) is Next.SETTLE


def test_what_was_done_under_an_old_epoch_is_told_again_even_while_it_is_settled() -> None:
    operation = Operation(record_for("begin"), 5, {}, {"1.0/a": (REGIONS[0], b"")})
    operation.start()
    assert operation.done(done_for(operation, "1.0/a", epoch=7)) is Next.SETTLE
    assert operation.outdated(lambda _: 8) == ["1.0/a"]
    assert operation.owner_changed("1.0/a", 8) is Next.SEND
    assert not operation.complete
    assert operation.done(done_for(operation, "1.0/a", epoch=8)) is Next.SETTLE


def test_an_owner_that_is_known_from_its_answer_first_is_not_asked_twice() -> None:
    operation = Operation(record_for("begin"), 5, {}, {"1.0/a": (REGIONS[0], b"")})
    operation.start()
    assert operation.done(done_for(operation, "1.0/a", epoch=8)) is Next.SETTLE
    assert operation.owner_changed("1.0/a", 8) is Next.WAIT
    assert operation.complete


def test_a_partition_that_is_no_more_is_not_waited_for() -> None:
    operation = Operation(
        record_for("begin"), 5, {}, {"1.0/a": (REGIONS[0], b""), "1.1/a": (REGIONS[0], b"")}
    )
    operation.start()
    assert operation.done(done_for(operation, "1.1/a")) is Next.WAIT
    assert operation.owner_changed("1.0/a", None) is Next.SETTLE


def test_somebody_elses_newer_task_makes_it_look() -> None:
    operation = Operation(record_for("begin"), 5, {}, {"1.0/a": (REGIONS[0], b"")})
    operation.start()
    assert operation.done(done_for(operation, "1.0/a", "superseded")) is Next.CHECK


def test_what_a_former_owner_did_is_told_to_its_successor() -> None:
    operation = Operation(record_for("begin"), 1, {}, {"1.0/a": (REGIONS[0], b"")})
    operation.start()
    assert operation.owner_changed("1.0/a", 20) is Next.SEND
    late = Done("1.0/a", "s1-1", 12, 10, "done")
    assert operation.outlived(late)
    assert operation.done(late) is Next.WAIT
    assert [name for name, _ in operation.to_send()] == ["1.0/a"]


def test_what_was_told_of_a_record_that_is_gone_is_withdrawn() -> None:
    wanted = {"1.0/a": (REGIONS[0], b""), "1.0/b": (REGIONS[1], b"")}
    operation = Operation(record_for("begin"), 1, {}, wanted)
    operation.start()
    assert operation.withdraw() is Next.SEND
    assert operation.gone
    sent = dict(operation.to_send())
    assert {name: (task.seq, task.regions) for name, task in sent.items()} == {
        "1.0/a": (15, b""),
        "1.0/b": (15, b""),
    }
    assert operation.done(Done("1.0/a", "s1-1", 15, 10, "superseded")) is Next.WAIT
    assert operation.done(Done("1.0/b", "s1-1", 15, 10, "done")) is Next.SETTLE


@pytest.mark.parametrize("started", [False, True])
def test_nothing_is_withdrawn_where_nothing_was_told(started: bool) -> None:
    operation = Operation(record_for("end"), 1, {"1.0/a": (REGIONS[0], b"")}, {})
    if started:
        operation.start()
    assert operation.withdraw() is Next.SETTLE


@pytest.mark.parametrize("order", [lambda a, b: (a, b), lambda a, b: (b, a)])
def test_a_union_has_each_region_once(
    order: Callable[[Share, Share], tuple[Share, Share]],
) -> None:
    first, second = order((REGIONS[0] + REGIONS[1], b""), (REGIONS[1] + REGIONS[2], REGIONS[3]))
    both = union(first, second)
    assert sorted(both[0][at : at + 24] for at in range(0, len(both[0]), 24)) == REGIONS[:3]
    assert both[1] == REGIONS[3]
