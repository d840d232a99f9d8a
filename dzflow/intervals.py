"""Sets of keys as sorted, disjoint, half-open intervals.

Two equal sets have the same representation, so `==` on `Ranges` compares sets.
"""

from bisect import bisect_right
from collections.abc import Iterable
from operator import itemgetter
from typing import Any

Key = int | float | bytes
"""An attribute's value in its ordered key space; keys of different attributes never meet."""

Interval = tuple[Key, Key | None]
"""Half-open [lo, hi); hi None is unbounded, which only byte strings need."""

Ranges = tuple[Interval, ...]
"""Non-empty intervals in ascending order that neither overlap nor touch."""

_SCAN = 8  # up to here a scan is faster than a binary search
_lower = itemgetter(0)

# Keys are annotated as Any where they are compared: mypy cannot know that both are of one kind.


def normal(intervals: Iterable[Interval]) -> Ranges:
    """The set of keys that lie in any of the intervals, which may be empty, overlap or touch."""
    found: list[Interval] = []
    low: Any
    high: Any
    last: Any
    for low, high in sorted(intervals, key=_lower):
        if high is not None and low >= high:
            continue
        if found:
            start, last = found[-1]
            if last is None:
                break
            if low <= last:
                if high is None or high > last:
                    found[-1] = (start, high)
                continue
        found.append((low, high))
    return tuple(found)


def union(one: Ranges, other: Ranges) -> Ranges:
    """The keys that lie in one of the two or in both."""
    if one == other:
        return one
    return normal(one + other)


def intersect(one: Ranges, other: Ranges) -> Ranges:
    """The keys that lie in both."""
    found: list[Interval] = []
    low: Any
    high: Any
    low2: Any
    high2: Any
    i = j = 0
    while i < len(one) and j < len(other):
        (low, high), (low2, high2) = one[i], other[j]
        first_ends = high is not None and (high2 is None or high <= high2)
        start, end = max(low, low2), high if first_ends else high2
        if end is None or start < end:
            found.append((start, end))
        if first_ends:
            i += 1
        else:
            j += 1
    return tuple(found)


def complement(ranges: Ranges, domain: Interval) -> Ranges:
    """The keys of the domain that do not lie in the ranges."""
    found: list[Interval] = []
    start: Any
    end: Any
    low: Any
    start, end = domain
    for low, high in ranges:
        if end is not None and low >= end:
            break
        if low > start:
            found.append((start, low))
        if high is None:
            return tuple(found)
        start = max(start, high)
    if end is None or start < end:
        found.append((start, end))
    return tuple(found)


def covers(outer: Ranges, inner: Ranges) -> bool:
    """Whether every key of the inner ranges lies in the outer ones."""
    low: Any
    high: Any
    last: Any
    i = 0
    for low, high in inner:
        # Both ascend, so an outer interval that ends before this one is done with.
        while i < len(outer):
            last = outer[i][1]
            if last is None or last > low:
                break
            i += 1
        else:
            return False
        first: Any = outer[i][0]
        if first > low or (last is not None and (high is None or high > last)):
            return False
    return True


def contains(ranges: Ranges, key: Key) -> bool:
    """Whether the key lies in one of the ranges."""
    wanted: Any = key
    low: Any
    high: Any
    if len(ranges) <= _SCAN:
        for low, high in ranges:
            if wanted < low:
                return False
            if high is None or wanted < high:
                return True
        return False
    i = bisect_right(ranges, wanted, key=_lower)
    if i == 0:
        return False
    high = ranges[i - 1][1]
    return high is None or bool(wanted < high)


def prefixed(prefix: bytes) -> Interval:
    """The byte strings that start with a prefix."""
    head = prefix.rstrip(b"\xff")
    return prefix, head[:-1] + bytes([head[-1] + 1]) if head else None
