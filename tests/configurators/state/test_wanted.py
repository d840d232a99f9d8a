"""Which workers leave when fewer are wanted."""

from configurators.state.wanted import leaving, read_count, staying
from configurators.store.documents import encode
from configurators.store.model import Wanted

FOUR = [f"configurator-{number}" for number in range(1, 5)]


def test_workers_with_the_highest_numbers_leave() -> None:
    assert leaving(FOUR, 4) == frozenset()
    assert leaving(FOUR, 2) == {"configurator-3", "configurator-4"}
    assert staying(FOUR, 2) == {"configurator-1", "configurator-2"}
    assert leaving(["configurator-9", "configurator-10"], 9) == {"configurator-10"}


def test_nobody_leaves_while_the_count_is_not_known() -> None:
    assert leaving(FOUR, None) == frozenset()
    assert staying(FOUR, None) == set(FOUR)


def test_workers_that_leave_get_work_if_there_are_no_others() -> None:
    assert staying(["southbound-3"], 1) == {"southbound-3"}
    assert staying([], 1) == frozenset()


def test_an_id_without_a_number_stays() -> None:
    assert leaving(["a", "b1", "c-"], 1) == frozenset()


def test_a_count_that_cannot_be_read_counts_as_not_known() -> None:
    assert read_count(encode(Wanted(3))) == 3
    assert read_count(None) is None
    assert read_count(b"three") is None
