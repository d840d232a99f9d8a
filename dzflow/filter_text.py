"""Writes ranges of values as text: expressions that parse back to the same ranges."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from dzflow.attribute import Attribute
from dzflow.intervals import Interval, Key, Ranges, complement, normal, prefixed
from dzflow.space import Space

_LISTED = 12  # up to this many values of an enum are listed; more are compared


def ranges_text(space: Space, ranges: Mapping[str, Ranges]) -> str:
    """Ranges of some attributes as a readable expression.

    `parse` reads ranges that came from an expression back exactly. Other ranges may have string
    bounds that are not valid text; these are approximated.
    """
    parts = [
        _alternatives(attribute, normal(ranges[attribute.name]))
        for attribute in space.attributes
        if attribute.name in ranges
    ]
    texts = [
        f"({' or '.join(part)})" if len(part) > 1 and len(parts) > 1 else " or ".join(part)
        for part in parts
    ]
    return " and ".join(texts) or "true"


def _alternatives(attribute: Attribute, ranges: Ranges) -> list[str]:
    outside = complement(ranges, attribute.domain)
    if not ranges or not outside:
        return ["true" if ranges else "false"]
    if attribute.type == "enum":
        apart = _one_by_one(ranges), _one_by_one(outside)
        if min(map(len, apart)) <= _LISTED:
            ranges, outside = apart
    points = [low for low, high in ranges if attribute.after(low) == high]
    gaps = [low for low, high in outside if attribute.after(low) == high]
    few_gaps = len(gaps) < len(ranges) or len(points) < len(ranges) > 1
    if len(gaps) == len(outside) and few_gaps:
        return [_listed(attribute, gaps, "!=", "not in")]
    if len(ranges) == 2 and len(outside) == 1 and _is_prefix(outside[0]):
        return [f"{attribute.name} not prefix {_literal(attribute, outside[0][0])}"]
    found = [_listed(attribute, points, "==", "in")] if points else []
    listed = set(points)
    return found + [_written(attribute, part) for part in ranges if part[0] not in listed]


def _one_by_one(ranges: Ranges) -> Ranges:
    return tuple((i, i + 1) for low, high in cast(Any, ranges) for i in range(low, high))


def _listed(attribute: Attribute, keys: Sequence[Key], one: str, several: str) -> str:
    literals = [_literal(attribute, key) for key in keys]
    if len(literals) == 1:
        return f"{attribute.name} {one} {literals[0]}"
    return f"{attribute.name} {several} ({', '.join(literals)})"


def _literal(attribute: Attribute, key: Key) -> str:
    value = attribute.value(key)
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    return json.dumps(value, ensure_ascii=False)


def _written(attribute: Attribute, interval: Interval) -> str:
    """One interval that is more than a point."""
    name = attribute.name
    extra: list[str] = []
    if attribute.type != "string":
        lower, upper = _bounds(attribute, interval)
    elif _is_prefix(interval):
        return f"{name} prefix {_literal(attribute, interval[0])}"
    else:
        lower, upper, extra = _string_bounds(attribute, interval)
    if lower and upper and lower[0] == upper[0] == "<=":
        found = f"{name} between {lower[1]} and {upper[1]}"
    elif lower and upper:
        found = f"{lower[1]} {lower[0]} {name} {upper[0]} {upper[1]}"
    elif lower:
        found = f"{name} {lower[0].replace('<', '>')} {lower[1]}"
    else:
        found = f"{name} {upper[0]} {upper[1]}" if upper else ""
    return " and ".join(filter(None, (found, *extra)))


_Bound = tuple[Literal["<", "<="], str] | None


def _bounds(attribute: Attribute, interval: Interval) -> tuple[_Bound, _Bound]:
    low: Any
    high: Any
    low, high = interval
    has_lower, has_upper = low != attribute.domain[0], high != attribute.domain[1]
    inclusive = attribute.type == "enum" or (attribute.type == "int" and has_lower and has_upper)

    def before(key: Any) -> Key:
        return math.nextafter(key, -math.inf) + 0.0 if attribute.type == "float" else key - 1

    def bound(included: Key, excluded: Key) -> _Bound:
        """The shorter one of two equivalent bounds: < 100, not <= 99."""
        first, second = (_literal(attribute, key) for key in (included, excluded))
        if inclusive or len(first.rstrip("0")) <= len(second.rstrip("0")):
            return "<=", first
        return "<", second

    lower = bound(low, before(low)) if has_lower else None
    upper = bound(before(high), high) if has_upper else None
    return lower, upper


def _string_bounds(attribute: Attribute, interval: Interval) -> tuple[_Bound, _Bound, list[str]]:
    low, high = cast(tuple[bytes, bytes | None], interval)
    name = attribute.name
    lower: _Bound = None
    upper: _Bound = None
    extra: list[str] = []

    def literal(key: bytes) -> str:
        return _literal(attribute, key)

    # A bound that is not valid text comes from a prefix: it follows all texts with that prefix.
    if low.endswith(b"\0"):
        lower = "<", literal(low[:-1])
    elif low and (prefix := _precursor(low)) is not None:
        lower = "<", literal(prefix)
        extra.append(f"{name} not prefix {literal(prefix)}")
    elif low:
        lower = "<=", literal(low)
    if high is None:
        pass
    elif high.endswith(b"\0"):
        upper = "<=", literal(high[:-1])
    elif (prefix := _precursor(high)) is not None:
        inside = f"{name} prefix {literal(prefix)}"
        extra.append(inside if low >= prefix else f"({name} < {literal(prefix)} or {inside})")
    else:
        upper = "<", literal(high)
    return lower, upper, extra


def _precursor(key: bytes) -> bytes | None:
    """The text whose prefix interval ends at a key that is not itself a text."""
    prefix = key[:-1] + bytes([key[-1] - 1])
    return prefix if _is_text(prefix) and not _is_text(key) else None


def _is_prefix(interval: Interval) -> bool:
    low = interval[0]
    return isinstance(low, bytes) and prefixed(low) == interval and _is_text(low)


def _is_text(key: bytes) -> bool:
    try:
        key.decode()
    except UnicodeDecodeError:
        return False
    return True
