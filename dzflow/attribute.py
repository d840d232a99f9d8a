"""Attributes of a space, and how their values become ordered keys.

Filters, index and matching work on keys only. This module converts values to keys and back.
"""

import difflib
import math
import re
import reprlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Literal, Self, cast, get_args

from dzflow.errors import BadInput
from dzflow.intervals import Interval, Key

Kind = Literal["int", "float", "enum", "string", "bool", "time"]
Scale = Literal["linear", "log"]

KEYWORDS = frozenset({"and", "or", "not", "in", "between", "prefix", "true", "false"})
"""Words of the expression language, in upper or lower case: no attribute may have such a name."""

MAX_NAME = 64
MAX_STRING = 256  # bytes of UTF-8: an event has to fit into a datagram
MAX_ENUM = 65_536

_MOST_NEAR = 100  # names among which a similar one is looked for

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MEMBERS = ("name", "type", "min", "max", "values", "scale", "bits")
_NUMERIC = frozenset({"int", "float", "time"})
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_LIMITS: Mapping[str, tuple[float, float]] = {
    "int": (-(2**63), 2**64 - 1),  # the range of MessagePack
    "float": (-1e300, 1e300),  # so that the width of a domain is a float, too
    "time": (-62_135_596_800_000_000, 253_402_300_799_999_999),  # years 1 to 9999
}


class FieldError(BadInput):
    """One field of the input is wrong: `attribute` names it, `index` is its place in a list.

    In an expression, `position` says where its condition begins, counted from 0.
    """

    def __init__(self, message: str | Callable[[], str], attribute: str | None = None) -> None:
        super().__init__(message)
        # A function is called when somebody asks for the text. Receivers refuse events without
        # reading why, and looking for a similar name would cost them milliseconds.
        self._message = message
        self.attribute = attribute
        self.index: int | None = None
        self.position: int | None = None

    def __str__(self) -> str:
        text = self._message if isinstance(self._message, str) else self._message()
        return text if self.index is None else f"at index {self.index}: {text}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


class BadSchema(FieldError):
    """The schema of a space is invalid; `member` names the wrong part."""

    def __init__(
        self, message: str, attribute: str | None = None, member: str | None = None
    ) -> None:
        super().__init__(message, attribute)
        self.member = member


class WrongType(FieldError):
    """A value is not of its attribute's type."""


class OutsideDomain(FieldError):
    """A value is of the right type, but its attribute does not admit it."""


class NotFinite(FieldError):
    """A number is infinite or not a number."""


class MissingAttribute(FieldError):
    """An event does not name every attribute of its space."""


class UnknownAttribute(FieldError):
    """The space has no such attribute."""


def shown(value: object) -> str:
    """A short and printable form of any value, for messages."""
    short = reprlib.Repr()
    short.maxstring = short.maxother = short.maxlong = 60
    try:
        return short.repr(value)
    except ValueError:  # an int with more digits than Python prints
        return f"a huge {type(value).__name__}"


def near(name: object, known: Collection[str]) -> str:
    """'; did you mean …?' if one of the known names is similar, else ''."""
    # The search takes some 10 us per name: callers must not be able to ask for much of it.
    if not isinstance(name, str) or len(name) > MAX_NAME or len(known) > _MOST_NEAR:
        return ""
    found = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {found[0]!r}?" if found else ""


@dataclass(frozen=True)
class Attribute:
    """One attribute of a space: checks values and turns them into keys and back.

    `min` and `max` are inclusive and in the form in which JSON has them; `domain` is in keys.
    """

    name: str
    type: Kind
    min: int | float | str | None = None
    max: int | float | str | None = None
    values: tuple[str, ...] | None = None
    scale: Scale = "linear"
    bits: int | None = None
    domain: Interval = field(init=False, repr=False, compare=False)
    _positions: Mapping[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for member, problem in _faults(self):
            text = problem if member == "name" else f"{self.name}: {problem}"
            raise BadSchema(text, safe_name(self.name), member)
        values = self.values or ()
        domain: Interval = {"bool": (0, 2), "enum": (0, len(values))}.get(self.type, (b"", None))
        if self.type in _NUMERIC:
            low: Any = _limit(self, "min")
            high: Any = _limit(self, "max")
            if low >= high:
                raise BadSchema(f"{self.name}: min must be less than max", self.name, "min")
            domain = (low, self.after(high))
            # Equal schemas compare equal, however they were written.
            object.__setattr__(self, "min", self.value(low))
            object.__setattr__(self, "max", self.value(high))
        object.__setattr__(self, "domain", domain)
        object.__setattr__(self, "_positions", {value: i for i, value in enumerate(values)})

    @classmethod
    def from_json(cls, obj: object) -> Self:
        """The attribute that this part of the schema describes; null members count as missing."""
        members = checked_members(obj, _MEMBERS, "attribute")
        for member in ("name", "type"):
            if member not in members:
                name = safe_name(members.get("name"))
                raise BadSchema(f"{name or 'an attribute'} needs a {member}", name, member)
        if isinstance(members.get("values"), list):
            members["values"] = tuple(members["values"])
        return cls(**members)

    def to_json(self) -> dict[str, object]:
        """The attribute's part of the schema, without defaults."""
        members = {member: getattr(self, member) for member in _MEMBERS}
        members["values"] = None if self.values is None else list(self.values)
        members["scale"] = None if self.scale == "linear" else self.scale
        return {member: value for member, value in members.items() if value is not None}

    def key(self, value: object) -> Key:
        """The key of a value; WrongType, NotFinite or OutsideDomain if it has none."""
        try:
            key: Any = _ENCODE[self.type](self, value)
        except OverflowError:
            raise self._outside(value) from None
        low, high = self.domain
        if key < low or (high is not None and key >= high):
            raise self._outside(value)
        return cast(Key, key)

    def cut(self, value: object) -> tuple[Key, Key]:
        """The first key that is not below the value, and the first one above it.

        They are the same for a value between two keys, such as 5.5 for an int attribute.
        """
        if self.type == "int" and isinstance(value, float) and math.isfinite(value):
            whole = math.ceil(value)
            low, high = cast(tuple[int, int], self.domain)
            if whole != value and not low < whole < high:
                raise self._outside(value)
            if whole != value:
                return whole, whole
        key = self.key(value)
        return key, self.after(key)

    def after(self, key: Key) -> Key:
        """The key that follows: there is none between the two."""
        if isinstance(key, bytes):
            return key + b"\0"
        if isinstance(key, float):
            return math.nextafter(key, math.inf) + 0.0  # never -0.0
        return key + 1

    def value(self, key: Key) -> int | float | str | bool:
        """The value of a key, in its JSON form."""
        if isinstance(key, bytes):
            return key.decode("utf-8", errors="replace")
        if self.type == "time":
            moment = _EPOCH + int(key) * _MICROSECOND
            return moment.isoformat().replace("+00:00", "Z")
        if self.type == "enum" and self.values:
            return self.values[int(key)]
        return bool(key) if self.type == "bool" else key

    def _wrong(self, wanted: str, value: object) -> WrongType:
        return WrongType(f"{self.name}: expected {wanted}, got {shown(value)}", self.name)

    def _outside(self, value: object) -> OutsideDomain:
        return OutsideDomain(partial(self._outside_text, value), self.name)

    def _outside_text(self, value: object) -> str:
        if self.type == "string":
            wanted = f"at most {MAX_STRING} bytes of UTF-8"
        elif self.type == "enum":
            few = len(self._positions) <= _MOST_NEAR
            wanted = f"one of {', '.join(self._positions)}" if few else ""
            wanted = wanted if 0 < len(wanted) <= 300 else "one of the declared values"
        else:
            wanted = f"a value from {self.min} to {self.max}"
        hint = near(value, self._positions)
        return f"{self.name}: expected {wanted}, got {shown(value)}{hint}"


def _number(attribute: Attribute, wanted: str, value: object) -> int | float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise attribute._wrong(wanted, value)
    if isinstance(value, float) and not math.isfinite(value):
        raise NotFinite(f"{attribute.name}: {value} is not a finite number", attribute.name)
    return value


def _encode_int(attribute: Attribute, value: object) -> Key:
    number = _number(attribute, "a whole number", value)
    if isinstance(number, float) and not number.is_integer():
        raise attribute._wrong("a whole number", value)
    return int(number)


def _encode_float(attribute: Attribute, value: object) -> Key:
    return float(_number(attribute, "a number", value)) + 0.0  # never -0.0


def _encode_bool(attribute: Attribute, value: object) -> Key:
    if not isinstance(value, bool):
        raise attribute._wrong("true or false", value)
    return int(value)


def _encode_enum(attribute: Attribute, value: object) -> Key:
    if not isinstance(value, str):
        raise attribute._wrong("one of the declared values", value)
    position = attribute._positions.get(value)
    if position is None:
        raise attribute._outside(value)
    return position


def _encode_string(attribute: Attribute, value: object) -> Key:
    if not isinstance(value, str):
        raise attribute._wrong("text", value)
    try:
        key = value.encode()
    except UnicodeEncodeError:
        raise attribute._wrong("text without lone surrogates", value) from None
    if len(key) > MAX_STRING:
        raise attribute._outside(value)
    return key


def _encode_time(attribute: Attribute, value: object) -> Key:
    wanted = "ISO 8601 text with a zone, such as 2026-01-31T12:00:00Z, or seconds since 1970"
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise attribute._wrong(wanted, value) from None
    elif isinstance(value, datetime):
        moment = value
    else:
        return round(_number(attribute, wanted, value) * 1_000_000)
    if moment.utcoffset() is None:
        raise attribute._wrong(wanted, value)
    return (moment - _EPOCH) // _MICROSECOND


_ENCODE: Mapping[str, Callable[[Attribute, object], Key]] = {
    "int": _encode_int,
    "float": _encode_float,
    "bool": _encode_bool,
    "enum": _encode_enum,
    "string": _encode_string,
    "time": _encode_time,
}


def _limit(attribute: Attribute, member: Literal["min", "max"]) -> Key:
    lowest, highest = _LIMITS[attribute.type]
    problem = f"{shown(getattr(attribute, member))} is too far out for type {attribute.type}"
    try:
        key: Any = _ENCODE[attribute.type](attribute, getattr(attribute, member))
        if lowest <= key <= highest:
            return cast(Key, key)
    except FieldError as error:
        problem = str(error).removeprefix(f"{attribute.name}: ")
    except OverflowError:
        pass
    raise BadSchema(f"{attribute.name}: {member}: {problem}", attribute.name, member)


def _faults(attribute: Attribute) -> Iterator[tuple[str, str]]:
    """The mistakes in the members of an attribute, the most important one first."""
    name, kind, values = attribute.name, attribute.type, attribute.values
    if not (isinstance(name, str) and len(name) <= MAX_NAME and _NAME.fullmatch(name)):
        text = f"an attribute's name has letters, digits and _, at most {MAX_NAME}"
        yield "name", f"{text}, got {shown(name)}"
    elif name.lower() in KEYWORDS:
        yield "name", f"{name} is a word of the filter language; choose another name"
    if kind not in get_args(Kind):
        yield "type", f"type must be one of {', '.join(get_args(Kind))}, got {shown(kind)}"
    for member, has in (("min", _NUMERIC), ("max", _NUMERIC), ("values", {"enum"})):
        if (getattr(attribute, member) is not None) != (kind in has):
            yield member, f"type {kind} {'needs' if kind in has else 'has no'} {member}"
    if attribute.scale not in get_args(Scale):
        yield "scale", f"scale must be linear or log, got {shown(attribute.scale)}"
    if attribute.scale == "log" and kind not in ("int", "float"):
        yield "scale", f"type {kind} has no log scale"
    if attribute.bits is not None and not is_whole(attribute.bits, 96):
        yield "bits", f"bits must be from 1 to 96, got {shown(attribute.bits)}"
    if values is not None:
        if not isinstance(values, tuple) or not 1 <= len(values) <= MAX_ENUM:
            yield "values", f"values must be a list of 1 to {MAX_ENUM} texts"
        for value in values:
            if not _is_text(value):
                text = f"values must be texts of at most {MAX_STRING} bytes"
                yield "values", f"{text}, got {shown(value)}"
        for value, times in Counter(values).items():
            if times > 1:
                yield "values", f"values has {shown(value)} more than once"


def _is_text(value: object) -> bool:
    if not isinstance(value, str):
        return False
    utf8 = value.encode(errors="ignore")  # drops lone surrogates
    return len(utf8) <= MAX_STRING and utf8.decode() == value


def is_whole(value: object, highest: int) -> bool:
    """Whether a value is a whole number from 1 up to the highest one."""
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= highest


def safe_name(name: object) -> str | None:
    """A rejected name, in a form that an answer can contain."""
    return name.encode(errors="backslashreplace").decode() if isinstance(name, str) else None


def checked_members(given: object, known: Collection[str], what: str) -> dict[str, Any]:
    """The members of a JSON object that are not null; an error if one has an unknown name."""
    if not isinstance(given, Mapping):
        raise BadSchema(f"{what} must be an object, got {shown(given)}", member=what)
    for name in given:
        if name not in known:
            text = f"{what} has no member {shown(name)}; it has {', '.join(known)}"
            raise BadSchema(text + near(name, known), safe_name(given.get("name")), safe_name(name))
    return {name: value for name, value in given.items() if value is not None}
