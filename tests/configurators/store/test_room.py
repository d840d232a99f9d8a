"""How full etcd is, and what follows from that."""

import pytest

from configurators.store.room import History, Level, Room, defragmentation_pays, describe, level

MIB = 1 << 20
QUOTA = 1_000 * MIB


@pytest.mark.parametrize(
    ("size", "in_use", "full", "expected"),
    [
        (699, 699, False, "normal"),
        (700, 100, False, "high"),
        (999, 949, False, "high"),
        (999, 950, False, "refusing"),
        (300, 300, True, "full"),
    ],
)
def test_levels(size: int, in_use: int, full: bool, expected: Level) -> None:
    assert level(Room(size * MIB, in_use * MIB, full), QUOTA) == expected


@pytest.mark.parametrize(
    ("size", "in_use", "since", "pays"),
    [
        (600, 200, 4_000, True),  # much is free, and little has to be copied
        (600, 200, 3_000, False),  # but not so often
        (600, 400, 4_000, False),  # too little is free
        (100, 10, 4_000, False),  # small
        (720, 530, 601, True),  # near the quota
        (720, 530, 500, False),
        (720, 600, 9_000, False),  # near the quota, but that does not help
        (960, 860, 601, True),  # just below the quota
        (960, 860, 500, False),
        (960, 870, 9_000, False),
    ],
)
def test_defragmentation_is_rare_and_only_when_it_pays(
    size: int, in_use: int, since: float, pays: bool
) -> None:
    assert defragmentation_pays(Room(size * MIB, in_use * MIB, False), QUOTA, since) is pays


def test_a_large_database_is_not_blocked_as_a_routine() -> None:
    room = Room(2_000 * MIB, 600 * MIB, False)
    assert not defragmentation_pays(room, 4_000 * MIB, 1e9)


def test_the_state_is_said_in_words() -> None:
    text = describe(Room(700 * MIB, 70 * MIB, False), QUOTA)
    assert text == "700 MiB of the quota of 1,000 MiB (70%), 70 MiB of it in use"


def test_history_is_kept_for_at_least_so_many_seconds() -> None:
    history = History(60)
    assert history.note(0, 100) is None
    assert history.note(30, 200) is None
    assert history.note(59, 300) is None
    assert history.note(60, 400) == 100
    assert history.note(90, 500) == 200
    assert history.note(300, 600) == 500


def test_history_is_not_dropped_twice() -> None:
    history = History(60)
    history.note(0, 100)
    assert history.note(60, 100) == 100
    assert history.note(120, 100) is None
