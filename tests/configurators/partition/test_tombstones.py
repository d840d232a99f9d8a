"""The ids that a partition has removed: for how long it remembers them."""

from configurators.partition.tombstones import FEWEST, MOST, SECONDS, Tombstones


def add(tombstones: Tombstones, first: int, count: int, begin: float, end: float) -> None:
    """Remove ids with numbers from `first` on, evenly between two times."""
    for n in range(count):
        tombstones.add(f"s{first + n}", first + n, begin + (end - begin) * n / count)


def test_an_id_is_known_by_the_number_of_its_last_task() -> None:
    tombstones = Tombstones()
    assert tombstones.seq("s1") == -1
    tombstones.add("s1", 8, 0.0)
    tombstones.add("s1", 12, 1.0)
    assert tombstones.seq("s1") == 12


def test_an_id_that_is_removed_again_is_known_by_its_new_number() -> None:
    tombstones = Tombstones()
    tombstones.add("s1", 8, 0.0)
    add(tombstones, 100, FEWEST, 0.0, SECONDS)
    tombstones.add("s1", 12, 2 * SECONDS)
    assert tombstones.seq("s1") == 12


def test_an_id_is_remembered_for_a_minute_at_least() -> None:
    for age in range(0, 3 * int(SECONDS), 7):
        tombstones = Tombstones()
        add(tombstones, 100, 10 * age, 0.0, age)
        tombstones.add("s1", 8, age)
        add(tombstones, 10_000, MOST - 1, age, age + SECONDS - 0.1)
        assert tombstones.seq("s1") == 8


def test_an_id_is_remembered_until_many_others_are_removed() -> None:
    tombstones = Tombstones()
    tombstones.add("s1", 8, 0.0)
    add(tombstones, 100, FEWEST - 1, 1e6, 2e6)
    assert tombstones.seq("s1") == 8


def test_few_ids_are_remembered_at_a_low_rate() -> None:
    tombstones = Tombstones()
    rate = 10.0
    most = 0
    for minute in range(30):
        begin = minute * 60.0
        add(tombstones, minute * 1_000_000, int(60 * rate), begin, begin + 60)
        most = max(most, len(tombstones))
    assert most <= 2 * SECONDS * rate + 1
    assert tombstones.seq("s0") == -1


def test_no_more_than_a_fixed_number_of_ids_is_remembered_at_any_rate() -> None:
    tombstones = Tombstones()
    for round in range(10):
        add(tombstones, round * MOST, MOST, 0.0, 0.1)
        assert len(tombstones) <= 2 * MOST
    assert tombstones.seq("s0") == -1
