"""Finds the series in PromQL, for tests of the dashboard and the alerts: a tokenizer, no parser."""

import re
from collections.abc import Iterator

from msgspec import Struct

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<text>"(?:[^"\\]|\\.)*")
  | (?P<range>\[[^\]]*\])
  | (?P<number>\d+(?:\.\d+)?)
  | (?P<name>[A-Za-z_:][\w:]*)
  | (?P<sign>==|!=|=~|!~|>=|<=|[-+*/%^(){},=<>])
    )""",
    re.VERBOSE,
)
AGGREGATIONS = {"sum", "max", "min", "avg", "count"}
FUNCTIONS = {"rate", "increase", "changes", "absent", "histogram_quantile"}
_CLAUSES = {"by", "without", "on", "ignoring"}
COMPARISONS = {"==", "!=", ">", "<", ">=", "<="}


class BadPromQL(ValueError):
    """An expression that these tests cannot read."""


class Matcher(Struct, frozen=True):
    """A condition on a label."""

    label: str
    sign: str
    value: str


class Series(Struct, frozen=True):
    """One mention of a series. `within` are the functions around it, the innermost last."""

    name: str
    matchers: tuple[Matcher, ...]
    within: tuple[str, ...]
    ranged: bool


class Expression(Struct, frozen=True):
    """What an expression mentions; `threshold` is the number that it compares with, if any."""

    series: tuple[Series, ...]
    grouped: frozenset[str]  # labels in clauses such as `by (…)`
    operators: tuple[str, ...]
    threshold: float | None


def read(text: str) -> Expression:
    """What an expression mentions; BadPromQL if it cannot be read."""
    words = _Words(text)
    series: list[Series] = []
    grouped: set[str] = set()
    operators: list[str] = []
    within: list[str] = []
    called = ""  # a function whose parenthesis has not come yet
    threshold: float | None = None
    for kind, word in words:
        if kind == "name" and word in _CLAUSES:
            grouped.update(words.names())
        elif kind == "name" and word in AGGREGATIONS | FUNCTIONS:
            called = word
        elif kind == "name":
            matchers, ranged = words.matchers(), words.take_range()
            series.append(Series(word, matchers, tuple(filter(None, within)), ranged))
        elif word == "(":
            within.append(called)
            called = ""
        elif word == ")":
            if not within:
                raise BadPromQL(f"a parenthesis too many: {text}")
            within.pop()
        elif kind == "number" and operators and operators[-1] in COMPARISONS and not within:
            threshold = float(word)
        elif kind == "sign" and word != ",":
            operators.append(word)
    if within or called:
        raise BadPromQL(f"a parenthesis is missing: {text}")
    return Expression(tuple(series), frozenset(grouped), tuple(operators), threshold)


class _Words:
    """The words of an expression, in order."""

    def __init__(self, text: str) -> None:
        self._found: list[tuple[str, str]] = []
        at = 0
        text = text.strip()
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise BadPromQL(f"{text[at : at + 20]!r} in {text}")
            assert found.lastgroup
            self._found.append((found.lastgroup, found[found.lastgroup]))
            at = found.end()
        self._at = 0

    def __iter__(self) -> Iterator[tuple[str, str]]:
        while self._at < len(self._found):
            self._at += 1
            yield self._found[self._at - 1]

    def names(self) -> list[str]:
        """The labels of a clause: `(a, b)`."""
        self._expect("(")
        found = []
        while (word := self._next()) != ")":
            if word != ",":
                found.append(word)
        return found

    def matchers(self) -> tuple[Matcher, ...]:
        """The matchers of a series, if there are any: `{a="b"}`."""
        if self._peek() != "{":
            return ()
        self._next()
        found = []
        while (word := self._next()) != "}":
            if word != ",":
                found.append(Matcher(word, self._next(), self._next().strip('"')))
        return tuple(found)

    def take_range(self) -> bool:
        """Whether a range such as `[5m]` follows."""
        if self._at < len(self._found) and self._found[self._at][0] == "range":
            self._at += 1
            return True
        return False

    def _peek(self) -> str:
        return self._found[self._at][1] if self._at < len(self._found) else ""

    def _next(self) -> str:
        if self._at >= len(self._found):
            raise BadPromQL("the expression ends too early")
        self._at += 1
        return self._found[self._at - 1][1]

    def _expect(self, word: str) -> None:
        if self._next() != word:
            raise BadPromQL(f"{word!r} is missing")
