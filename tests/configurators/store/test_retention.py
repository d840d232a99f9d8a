"""Which groups of finished records and idempotency keys must go."""

from hypothesis import given
from hypothesis import strategies as st

from configurators.store.retention import Bound, Group, kept, removable, surplus

NOW = 10_000.0


def group(lease: int, age: float, keys: int = 10, size: int = 100) -> Group:
    return Group("finished", lease, NOW - age, keys, size)


def test_nothing_goes_within_the_bound() -> None:
    groups = [group(1, 100), group(2, 50)]
    assert surplus(groups, Bound(20, 200, 30), NOW) == []


def test_the_oldest_groups_go_first_by_count() -> None:
    groups = [group(3, 50), group(1, 200), group(2, 100)]
    assert [each.lease for each in surplus(groups, Bound(25, 10_000, 30), NOW)] == [1]
    assert [each.lease for each in surplus(groups, Bound(10, 10_000, 30), NOW)] == [1, 2]


def test_the_oldest_groups_go_first_by_bytes() -> None:
    groups = [group(1, 200, size=1), group(2, 100, size=500), group(3, 50, size=500)]
    assert [each.lease for each in surplus(groups, Bound(1_000, 600, 30), NOW)] == [1, 2]


def test_groups_with_keys_of_the_last_moments_stay_in_any_case() -> None:
    groups = [group(1, 31), group(2, 29)]
    assert [each.lease for each in surplus(groups, Bound(0, 0, 30), NOW)] == [1]
    assert [each.lease for each in removable(groups, 30, NOW)] == [1]


_groups = st.lists(
    st.builds(
        Group,
        st.just("finished"),
        st.integers(1, 1_000),
        st.floats(0, NOW),
        st.integers(1, 50),
        st.integers(1, 5_000),
    ),
    unique_by=lambda each: each.lease,
    max_size=30,
)


@given(_groups, st.integers(0, 500), st.integers(0, 50_000), st.floats(0, NOW))
def test_what_stays_is_within_the_bound_or_too_young_and_no_more_goes_than_must(
    groups: list[Group], keys: int, size: int, floor: float
) -> None:
    bound = Bound(keys, size, floor)
    gone = surplus(groups, bound, NOW)
    stays = [each for each in groups if each not in gone]
    have = kept(stays)
    young = [each for each in stays if each.closed > NOW - floor]
    assert (have.keys <= keys and have.bytes <= size) or stays == young
    assert all(each.closed <= NOW - floor for each in gone)
    if gone:
        before_last = kept([*stays, gone[-1]])
        assert before_last.keys > keys or before_last.bytes > size
