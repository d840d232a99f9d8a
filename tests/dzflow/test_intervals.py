"""Interval algebra, against plain sets on a small domain."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dzflow.intervals import (
    Interval,
    Ranges,
    complement,
    contains,
    covers,
    intersect,
    normal,
    prefixed,
    union,
)

SIZE = 48
DOMAIN: Interval = (0, SIZE)

ends = st.integers(0, SIZE)
raw = st.lists(st.tuples(ends, ends), max_size=20)
ranges_of_ints = raw.map(normal)

texts = st.binary(max_size=2)
ranges_of_bytes = st.lists(st.tuples(texts, st.none() | texts), max_size=6).map(normal)


def keys(ranges: Ranges) -> set[int]:
    return {key for key in range(SIZE) if contains(ranges, key)}


def assert_normal(ranges: Ranges) -> None:
    for low, high in ranges:
        assert high is None or low < high  # type: ignore[operator]
    for (_, high), (low, _) in pairwise(ranges):
        assert high is not None
        assert high < low  # type: ignore[operator]


@given(raw)
def test_normal_form_holds_the_keys_of_all_intervals(intervals: list[tuple[int, int]]) -> None:
    ranges = normal(intervals)
    assert_normal(ranges)
    assert keys(ranges) == {key for low, high in intervals for key in range(low, high)}


@given(ranges_of_ints)
def test_a_normal_form_is_its_own_normal_form(ranges: Ranges) -> None:
    assert normal(reversed(ranges)) == ranges


@given(ranges_of_ints, ranges_of_ints)
def test_equal_sets_have_equal_forms(one: Ranges, other: Ranges) -> None:
    assert (one == other) == (keys(one) == keys(other))


@given(ranges_of_ints, ranges_of_ints)
def test_algebra_agrees_with_sets(one: Ranges, other: Ranges) -> None:
    for found, wanted in (
        (union(one, other), keys(one) | keys(other)),
        (intersect(one, other), keys(one) & keys(other)),
        (complement(one, DOMAIN), set(range(SIZE)) - keys(one)),
    ):
        assert_normal(found)
        assert keys(found) == wanted
    assert covers(one, other) == (keys(one) >= keys(other))


@given(ranges_of_bytes, ranges_of_bytes, texts)
def test_algebra_agrees_with_membership_where_intervals_are_unbounded(
    one: Ranges, other: Ranges, key: bytes
) -> None:
    domain: Interval = (b"", None)
    in_one, in_other = contains(one, key), contains(other, key)
    assert contains(union(one, other), key) == (in_one or in_other)
    assert contains(intersect(one, other), key) == (in_one and in_other)
    assert contains(complement(one, domain), key) == (not in_one)
    assert covers(one, other) == (intersect(one, other) == other)
    assert complement(complement(one, domain), domain) == one
    for found in (one, union(one, other), intersect(one, other), complement(one, domain)):
        assert_normal(found)


@pytest.mark.parametrize("count", [1, 8, 9, 100])
def test_membership_is_the_same_for_short_and_long_ranges(count: int) -> None:
    ranges = normal((10 * i, 10 * i + 3) for i in range(count))
    assert len(ranges) == count
    for key in range(-1, 10 * count + 1):
        assert contains(ranges, key) == (0 <= key < 10 * count and key % 10 < 3)


def test_a_long_range_may_end_unbounded() -> None:
    ranges = (*normal((bytes([i]), bytes([i, 0])) for i in range(0, 40, 2)), (b"x", None))
    assert contains(ranges, b"zzz")
    assert not contains(ranges, b"\x01")


def test_complement_stays_within_its_domain() -> None:
    assert complement(((-5, 2), (8, 99)), (0, 10)) == ((2, 8),)
    assert complement(((20, 30),), (0, 10)) == ((0, 10),)
    assert complement((), (0, 10)) == ((0, 10),)
    assert complement(((0, 10),), (0, 10)) == ()


@given(texts, st.binary(max_size=4))
def test_a_prefix_interval_holds_exactly_the_keys_with_the_prefix(
    prefix: bytes, key: bytes
) -> None:
    assert contains((prefixed(prefix),), key) == key.startswith(prefix)


def test_the_empty_prefix_is_unbounded() -> None:
    assert prefixed(b"") == (b"", None)
    assert prefixed(b"\xff\xff") == (b"\xff\xff", None)
    assert prefixed(b"a\xff") == (b"a\xff", b"b")
