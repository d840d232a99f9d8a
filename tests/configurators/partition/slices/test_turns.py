"""Partitions take turns: so many at a time, the one whose task waits longest first."""

from hypothesis import given
from hypothesis import strategies as st

from configurators.partition.slices.turns import Turn, Turns


def nothing() -> None:
    pass


def test_the_partition_whose_task_waits_longest_is_next() -> None:
    turns, woken = Turns(1), list[float]()
    first = turns.ask(9.0, lambda: woken.append(9.0)).__enter__()
    assert first.granted
    for since in (7.0, 5.0, 6.0):
        turns.ask(since, lambda since=since: woken.append(since)).__enter__()  # type: ignore[misc]
    with first:
        assert woken == [9.0]
    assert woken == [9.0, 5.0]


def test_a_partition_that_no_longer_waits_is_passed_over() -> None:
    turns = Turns(1)
    with turns.ask(1.0, nothing) as first:
        with turns.ask(2.0, nothing) as second:
            third = turns.ask(3.0, nothing).__enter__()
        assert not second.granted
    assert first.granted
    assert third.granted


@given(st.integers(1, 4), st.lists(st.one_of(st.floats(0, 9), st.integers(0, 30))))
def test_no_more_than_the_limit_work_and_none_waits_while_there_is_room(
    limit: int, steps: list[float | int]
) -> None:
    """A float asks for a turn, an integer ends one."""
    turns, there = Turns(limit), list[Turn]()
    for step in steps:
        if isinstance(step, float):
            there.append(turns.ask(step, nothing).__enter__())
        elif there:
            there.pop(step % len(there)).__exit__(None, None, None)
        granted = sum(turn.granted for turn in there)
        assert granted == min(limit, len(there))
