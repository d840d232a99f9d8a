"""A rollout: in whatever order events come, it completes, and never too early."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from configurators.store.model import NextFilter, Record, State
from configurators.streams.messages import Done, Task
from configurators.streams.task_numbers import Phase, task_number
from dispatcher.requests.rollout import Next, Rollout
from dispatcher.requests.shares import NOTHING, Share, union

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
def test_every_rollout_completes_and_never_before_all_is_done_under_current_epochs(
    data: st.DataObject, action: str, old: dict[str, Share], new: dict[str, Share], sure: bool
) -> None:
    before = {} if action == "begin" else old
    after = {} if action == "end" else new
    world = Partitions(dict(before))
    rollout = Rollout(record_for(action), before, after, sure)
    wire: list[tuple[str, Task]] = []
    late: list[Done] = []

    def answer(name: str, task: Task, outcome: str) -> Done:
        done = Done(name, task.id, task.seq, world.epochs[name], outcome, "no", 1, 1)  # type: ignore[arg-type]
        late.append(done)
        return done

    what = rollout.start()
    for step in range(200):
        if what is Next.SEND:
            wire += rollout.to_send()
        elif what is Next.PAUSE:
            what = rollout.retry()
            continue
        elif what is Next.SETTLE:
            if step > 150 or data.draw(st.booleans(), "settle succeeds"):
                break
            # Somebody took a partition over just before: the store refuses.
            name = data.draw(st.sampled_from(PARTITIONS), "lost")
            what = rollout.owner_changed(name, world.new_owner(name))
            if what is Next.WAIT:
                what = Next.SETTLE
            continue
        assert rollout.open, "it waits for nothing"
        calm = step > 60
        kind = (
            "answer" if calm else data.draw(st.sampled_from(["answer", "owner", "late"]), "event")
        )
        if kind == "owner":
            name = data.draw(st.sampled_from(PARTITIONS), "partition")
            what = rollout.owner_changed(name, world.new_owner(name))
        elif kind == "late" and late:
            what = rollout.done(data.draw(st.sampled_from(late), "again"))
            assert what in (Next.WAIT, Next.SEND, Next.SETTLE, Next.PAUSE)
        else:
            if not wire:
                wire += rollout.to_send()
            name, task = wire.pop(data.draw(st.integers(0, len(wire) - 1), "which"))
            if task.seq < world.seqs.get(name, 0):
                what = rollout.done(answer(name, task, "superseded"))
            elif not calm and data.draw(st.integers(0, 4), "luck") == 0:
                what = rollout.done(answer(name, task, "failed"))
            else:
                world.carry_out(name, task)
                what = rollout.done(answer(name, task, "done"))
    else:
        raise AssertionError("it never ended")
    assert not rollout.open
    assert not rollout.outdated(world.epochs.get)
    wanted = before if rollout.refusal else after
    for name in PARTITIONS:
        assert same(name, world.has.get(name, NOTHING), wanted), name


def done_for(rollout: Rollout, name: str, outcome: str = "done", epoch: int = 1) -> Done:
    return Done(name, "s1-1", rollout.latest[name].seq, epoch, outcome)  # type: ignore[arg-type]


def test_an_update_tells_old_partitions_only_after_all_new_ones_have_it() -> None:
    old, new = {"1.0/a": (REGIONS[0], b"")}, {"1.0/b": (REGIONS[1], b"")}
    rollout = Rollout(record_for("update"), old, new)
    assert rollout.start() is Next.SEND
    assert [name for name, _ in rollout.to_send()] == ["1.0/b"]
    assert rollout.done(done_for(rollout, "1.0/b")) is Next.SEND
    [(name, task)] = rollout.to_send()
    assert (name, task.regions) == ("1.0/a", b"")
    assert rollout.done(done_for(rollout, "1.0/a")) is Next.SETTLE


def test_what_does_not_change_is_not_told() -> None:
    have = {"1.0/a": (REGIONS[0], b"")}
    rollout = Rollout(record_for("update"), have, {**have, "1.1/a": (REGIONS[1], b"")})
    assert rollout.start() is Next.SEND
    assert [name for name, _ in rollout.to_send()] == ["1.1/a"]
    assert rollout.done(done_for(rollout, "1.1/a")) is Next.SETTLE


def test_what_was_done_under_an_old_epoch_is_told_again_even_while_it_is_settled() -> None:
    rollout = Rollout(record_for("begin"), {}, {"1.0/a": (REGIONS[0], b"")})
    rollout.start()
    assert rollout.done(done_for(rollout, "1.0/a", epoch=7)) is Next.SETTLE
    assert rollout.outdated(lambda _: 8) == ["1.0/a"]
    assert rollout.owner_changed("1.0/a", 8) is Next.SEND
    assert rollout.open
    assert rollout.done(done_for(rollout, "1.0/a", epoch=8)) is Next.SETTLE


def test_an_owner_that_is_known_from_its_answer_first_is_not_asked_twice() -> None:
    rollout = Rollout(record_for("begin"), {}, {"1.0/a": (REGIONS[0], b"")})
    rollout.start()
    assert rollout.done(done_for(rollout, "1.0/a", epoch=8)) is Next.SETTLE
    assert rollout.owner_changed("1.0/a", 8) is Next.WAIT
    assert not rollout.open


def test_a_partition_that_no_longer_exists_is_not_waited_for() -> None:
    rollout = Rollout(
        record_for("begin"), {}, {"1.0/a": (REGIONS[0], b""), "1.1/a": (REGIONS[0], b"")}
    )
    rollout.start()
    assert rollout.done(done_for(rollout, "1.1/a")) is Next.WAIT
    assert rollout.partition_gone("1.0/a") is Next.SETTLE


def test_a_newer_task_of_another_operation_makes_it_check_the_record() -> None:
    rollout = Rollout(record_for("begin"), {}, {"1.0/a": (REGIONS[0], b"")})
    rollout.start()
    assert rollout.done(done_for(rollout, "1.0/a", "superseded")) is Next.CHECK


def test_what_a_former_owner_did_is_told_to_its_successor() -> None:
    rollout = Rollout(record_for("begin"), {}, {"1.0/a": (REGIONS[0], b"")})
    rollout.start()
    assert rollout.owner_changed("1.0/a", 20) is Next.SEND
    late = Done("1.0/a", "s1-1", task_number(3, Phase.GROW), 10, "done")
    assert rollout.by_former_owner(late)
    assert rollout.done(late) is Next.WAIT
    assert [name for name, _ in rollout.to_send()] == ["1.0/a"]


def test_what_partitions_were_told_of_a_removed_record_is_withdrawn_once() -> None:
    wanted = {"1.0/a": (REGIONS[0], b""), "1.0/b": (REGIONS[1], b"")}
    rollout = Rollout(record_for("begin"), {}, wanted)
    rollout.start()
    assert rollout.withdraw() is Next.SEND
    assert rollout.withdrawn
    assert rollout.withdraw() is Next.WAIT
    sent = dict(rollout.to_send())
    gone = task_number(3, Phase.GONE)
    assert {name: (task.seq, task.regions) for name, task in sent.items()} == {
        "1.0/a": (gone, b""),
        "1.0/b": (gone, b""),
    }
    assert rollout.done(Done("1.0/a", "s1-1", gone, 10, "superseded")) is Next.WAIT
    assert rollout.done(Done("1.0/b", "s1-1", gone, 10, "done")) is Next.SETTLE


@pytest.mark.parametrize("started", [False, True])
def test_nothing_is_withdrawn_where_nothing_was_told(started: bool) -> None:
    rollout = Rollout(record_for("end"), {"1.0/a": (REGIONS[0], b"")}, {})
    if started:
        rollout.start()
    assert rollout.withdraw() is Next.SETTLE


@pytest.mark.parametrize("order", [lambda a, b: (a, b), lambda a, b: (b, a)])
def test_a_union_has_each_region_once(
    order: Callable[[Share, Share], tuple[Share, Share]],
) -> None:
    first, second = order((REGIONS[0] + REGIONS[1], b""), (REGIONS[1] + REGIONS[2], REGIONS[3]))
    both = union(first, second)
    assert sorted(both[0][at : at + 24] for at in range(0, len(both[0]), 24)) == REGIONS[:3]
    assert both[1] == REGIONS[3]
