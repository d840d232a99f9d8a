"""Configurators that own no partition get their share."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from monitor.balancing.shares import fill
from tests.monitor.balancing.situations import moved, part, situation

NAMES = ("c1", "c2", "c3", "c4")


@given(st.lists(st.sampled_from(NAMES), max_size=40), st.sets(st.sampled_from(NAMES)))
def test_after_the_moves_nobody_is_empty_who_could_have_a_partition(
    owners: list[str], idle: set[str]
) -> None:
    parts = [part(f"p{number}", owner) for number, owner in enumerate(owners)]
    seen = situation(lambda _: parts, idle=idle)
    moves = fill(seen)
    assert len({move.partition for move in moves}) == len(moves)
    after = dict(seen.owners)
    for move in moves:
        assert after[move.partition] == move.source
        after[move.partition] = move.target
    counts = Counter(after.values())
    had = Counter(seen.owners.values())
    share = len(owners) // max(1, len(seen.targets))
    for name in seen.targets:
        assert counts[name] >= min(share, 1)
        # Those that had partitions keep at least an equal share.
        assert not had[name] or counts[name] >= min(had[name], share)


def test_a_configurator_with_one_partition_is_left_alone() -> None:
    parts = [part(f"p{number}", "c1") for number in range(8)] + [part("q", "c2")]
    assert fill(situation(lambda _: parts)) == []


def test_busy_partitions_stay() -> None:
    parts = [part("busy", "c1", queued=50), part("calm", "c1")]
    (move,) = fill(situation(lambda _: parts, idle=["c2"]))
    assert (move.partition, move.target) == ("calm", "c2")


def test_a_partition_whose_move_has_failed_holds_up_no_other() -> None:
    parts = [part(name, "c1") for name in ("a", "b", "c")]
    past = [moved("b", 30, done=False), moved("a", 20, done=False)]
    (move,) = fill(situation(lambda _: parts, idle=["c2", "c3"], past=past))[:1]
    assert move.partition == "c"


def test_leaving_configurators_get_nothing() -> None:
    parts = [part(f"p{number}", "c1") for number in range(8)]
    assert fill(situation(lambda _: parts, idle=["c2"], leaving=["c2"])) == []
