"""How attribute values become bits: every attribute is one axis of the event space, or two.

An axis numbers the values of its attribute in order with codes of `width` bits. Codes must come out
the same on every machine, hosts and control plane alike, and must never go down when values go up:
hence integer arithmetic and single IEEE operations only, and no logarithm from a C library.
"""

import hashlib
import math
from collections.abc import Callable, Iterable
from typing import Protocol

from dzflow.attribute import Attribute
from dzflow.intervals import Key, Ranges
from dzflow.region import WIDTH
from dzflow.space import Space

Span = tuple[int, int]  # a run of codes, both ends included


class Axis(Protocol):
    """One dimension of the event space."""

    attribute: str
    width: int

    def code(self, key: Key) -> int:
        """The code of a value."""

    def spans(self, ranges: Ranges) -> tuple[Span, ...] | None:
        """The codes that values in these ranges can have, disjoint and rising.

        None if the axis cannot tell them from others.
        """

    def weight(self, span: Span) -> float:
        """The share of all values that have these codes."""

    def ranges(self, span: Span) -> Ranges | None:
        """The values that have these codes; None if these are not ranges."""


class NumberAxis:
    """Whole numbers (also positions of an enum, booleans, microseconds) and floats, in order."""

    def __init__(self, attribute: Attribute, width: int) -> None:
        self.attribute = attribute.name
        self.width = width
        low, high = attribute.domain
        assert isinstance(low, int | float)
        assert isinstance(high, int | float)
        self._low, self._high = low, high
        self._cells = 1 << width
        self._whole = attribute.type != "float"
        self._log = attribute.scale == "log" and not _too_narrow_for_log(low, high)
        if self._whole and not self._log:
            self._code: Callable[[float], int] = self._whole_code
        else:
            self._span = float(self._below(high) - low)
            self._scale: Callable[[float], float] = _log_scale if self._log else float
            self._first = self._scale(self._up(low))
            self._width = self._scale(self._up(self._below(high))) - self._first
            self._code = self._scaled_code

    def code(self, key: Key) -> int:
        """The code of a value."""
        return self._code(key)  # type: ignore[arg-type]

    def spans(self, ranges: Ranges) -> tuple[Span, ...]:
        """The codes that values in these ranges can have."""
        if len(ranges) == 1:
            low, high = ranges[0]
            return ((self._code(low), self._code(self._below(high))),)  # type: ignore[arg-type]
        return _joined(
            (self._code(low), self._code(self._below(high)))  # type: ignore[arg-type]
            for low, high in ranges
        )

    def weight(self, span: Span) -> float:
        """The share of values with these codes; on a log scale each code weighs the same."""
        first, last = span
        if self._whole and not self._log:
            size = int(self._high - self._low)
            return (self._rank(last + 1) - self._rank(first)) / size
        return (last + 1 - first) / self._cells

    def ranges(self, span: Span) -> Ranges | None:
        """The values that have these codes."""
        low, high = self._edge(span[0]), self._edge(span[1] + 1)
        return ((low, high),) if low < high else ()

    def _whole_code(self, key: float) -> int:
        return (int(key) - int(self._low)) * self._cells // int(self._high - self._low)

    def _scaled_code(self, key: float) -> int:
        code = int((self._scale(self._up(key)) - self._first) / self._width * self._cells)
        return min(code, self._cells - 1)

    def _rank(self, code: int) -> int:
        """How many whole numbers have a smaller code."""
        return -(-code * int(self._high - self._low) // self._cells)

    def _up(self, key: float) -> float:
        """A log scale whose domain does not start above zero counts from 1 at its start.

        Whole numbers one by one, floats in steps of 1/65,535 of the domain.
        """
        if not self._log or self._low > 0:
            return key
        if self._whole:
            return key - self._low + 1
        return (key - self._low) / self._span * 65_535 + 1

    def _below(self, high: float | bytes | None) -> float:
        """The greatest value below an open end."""
        assert isinstance(high, int | float)
        return high - 1 if self._whole else math.nextafter(high, -math.inf)

    def _edge(self, code: int) -> float:
        """The least value whose code is at least this."""
        if code >= self._cells:
            return self._high
        if self._whole and not self._log:
            return int(self._low) + self._rank(code)
        return self._search(code)

    def _search(self, code: int) -> float:
        # Codes never go down, so the edge can be bisected; exact, and needs no inverse function.
        low, high = self._low, self._high
        if self._code(low) >= code:
            return low
        while True:
            middle = low + (high - low) // 2 if self._whole else low + (high - low) / 2
            if not low < middle < high:
                return high
            if self._code(middle) < code:
                low = middle
            else:
                high = middle


def _too_narrow_for_log(low: float, high: float) -> bool:
    """Whether a domain above zero is so narrow that a logarithm would not tell its ends apart."""
    return low > 0 and _log_scale(high) - _log_scale(low) < 2.0**-20


def _log_scale(value: float) -> float:
    """A logarithm to base 2 that is exact at powers of two and straight in between."""
    mantissa, exponent = math.frexp(value)
    return exponent + 2 * mantissa


class OrderAxis:
    """Strings by their first characters, in byte order: for prefixes and comparisons.

    Where several bytes share a level, nothing after them may count, or codes could fall while
    strings rise: such a byte ends the code.
    """

    _LEVEL_BITS = 6

    def __init__(self, attribute: Attribute, width: int) -> None:
        self.attribute = attribute.name
        self.width = width
        self._length = -(-width // self._LEVEL_BITS)
        self._drop = self._length * self._LEVEL_BITS - width

    def code(self, key: Key) -> int:
        """The code of a string."""
        assert isinstance(key, bytes)
        code, ended = 0, False
        for byte in key[: self._length].ljust(self._length, b"\0"):
            level = 0 if ended else _LEVELS[byte]
            ended |= level in _SHARED
            code = code << self._LEVEL_BITS | level
        return code >> self._drop

    def spans(self, ranges: Ranges) -> tuple[Span, ...]:
        """The codes that strings in these ranges can have."""
        return _joined((self.code(low), self._last(high)) for low, high in ranges)

    def weight(self, span: Span) -> float:
        """The share of all codes."""
        return (span[1] + 1 - span[0]) / (1 << self.width)

    def ranges(self, span: Span) -> Ranges | None:
        """The strings that have these codes."""
        low, high = self._least(span[0]), self._least(span[1] + 1)
        if low is None or (high is not None and low >= high):
            return ()
        return ((low, high),)

    def _last(self, high: Key | None) -> int:
        if high is None:
            return (1 << self.width) - 1
        assert isinstance(high, bytes)
        # What is below x + "\0" is at most x; below any other end there is no greatest string, and
        # the end's own code is the least upper bound, unless the end is the first with that code.
        if high.endswith(b"\0"):
            return self.code(high[:-1])
        code = self.code(high)
        return code - 1 if code and high == self._least(code) else code

    def _least(self, code: int) -> bytes | None:
        """The least string whose code is at least this; None if there is no such string."""
        code <<= self._drop
        top = (1 << self._LEVEL_BITS) - 1
        levels = [
            code >> shift & top
            for shift in range((self._length - 1) * self._LEVEL_BITS, -1, -self._LEVEL_BITS)
        ]
        if code >> self._length * self._LEVEL_BITS:
            return None
        ends = next((n for n, level in enumerate(levels) if level in _SHARED), self._length)
        if any(levels[ends + 1 :]):
            # No string has anything there: it is the next one at the place before.
            levels = levels[: ends + 1]
            while levels and levels[-1] == top:
                levels.pop()
            if not levels:
                return None
            levels[-1] += 1
        return bytes(_LEVELS.index(level) for level in levels).rstrip(b"\0")


def _levels() -> tuple[int, ...]:
    """Bytes in 64 steps that never go down: digits and letters have one each, the rest share."""
    own = set(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz{")
    level, levels = 0, []
    for byte in range(256):
        level += byte in own
        levels.append(level)
    return tuple(levels)


_LEVELS = _levels()
_SHARED = frozenset(level for level in _LEVELS if _LEVELS.count(level) > 1)


class HashAxis:
    """Strings by a hash: for equality, where the first characters do not tell them apart."""

    def __init__(self, attribute: Attribute, width: int) -> None:
        self.attribute = attribute.name
        self.width = width

    def code(self, key: Key) -> int:
        """The code of a string."""
        assert isinstance(key, bytes)
        digest = hashlib.blake2b(key, digest_size=8).digest()
        return int.from_bytes(digest, "big") >> (64 - self.width)

    def spans(self, ranges: Ranges) -> tuple[Span, ...] | None:
        """The codes of single strings; a range of strings can have any code."""
        codes = []
        for low, high in ranges:
            assert isinstance(low, bytes)
            if high != low + b"\0":
                return None
            codes.append(self.code(low))
        return _joined((code, code) for code in codes)

    def weight(self, span: Span) -> float:
        """The share of all codes."""
        return (span[1] + 1 - span[0]) / (1 << self.width)

    def ranges(self, span: Span) -> Ranges | None:
        """None, unless the span has all codes: a hash has no inverse."""
        return ((b"", None),) if span == (0, (1 << self.width) - 1) else None


def _joined(spans: Iterable[Span]) -> tuple[Span, ...]:
    joined: list[Span] = []
    for first, last in sorted(spans):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return tuple(joined)


_FLOAT_BITS, _ORDER_BITS, _HASH_BITS = 16, 18, 14


def make_axes(space: Space) -> tuple[tuple[Axis, ...], tuple[str, ...]]:
    """The axes of a space in the order of its attributes, at most 96 bits together; what is lost.

    Lost are bits that it would take to tell all values of an attribute apart.
    """
    wanted = [_wanted_bits(attribute) for attribute in space.attributes]
    widths = _fit([sum(parts) for parts in wanted], [bool(a.bits) for a in space.attributes])
    lost = tuple(
        f"{attribute.name} ({width} of {sum(parts)} bits)"
        for attribute, parts, width in zip(space.attributes, wanted, widths, strict=True)
        if width < sum(parts)
    )
    axes = tuple(
        axis
        for attribute, width in zip(space.attributes, widths, strict=True)
        for axis in _axes(attribute, width)
    )
    return axes, lost


def _wanted_bits(attribute: Attribute) -> tuple[int, ...]:
    if attribute.bits:
        return (attribute.bits,)
    if attribute.type == "string":
        return (_ORDER_BITS, _HASH_BITS)
    if attribute.type == "float":
        return (_FLOAT_BITS,)
    low, high = attribute.domain
    return (max(1, (int(high) - int(low) - 1).bit_length()),)  # type: ignore[arg-type]


def _axes(attribute: Attribute, width: int) -> tuple[Axis, ...]:
    if attribute.type != "string":
        return (NumberAxis(attribute, width),)
    by_hash = max(1, width * _HASH_BITS // (_ORDER_BITS + _HASH_BITS))
    if by_hash == width:
        return (HashAxis(attribute, width),)
    return (OrderAxis(attribute, width - by_hash), HashAxis(attribute, by_hash))


def _fit(wanted: list[int], chosen: list[bool]) -> list[int]:
    """Shorten the widest axes until all fit; those with bits from the schema come last."""
    widths = list(wanted)
    while sum(widths) > WIDTH:
        cuttable = [i for i, width in enumerate(widths) if width > 1 and not chosen[i]]
        candidates = cuttable or [i for i, width in enumerate(widths) if width > 1]
        widest = max(candidates, key=lambda i: (widths[i], i))
        widths[widest] -= 1
    return widths
