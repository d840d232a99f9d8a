"""The expression language of filters: parses a text into a tree."""

import re
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Literal, cast

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import UnexpectedInput, UnexpectedToken

from dzflow.attribute import shown
from dzflow.errors import BadInput

MAX_TEXT = 16_000  # characters
MAX_DEPTH = 64  # parentheses and `not` around a condition

_COMPARE = {"==": "eq", "=": "eq", "!=": "ne", "<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}
_MIRRORED = {"lt": "gt", "lte": "gte", "gt": "lt", "gte": "lte"}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"} | {c: c for c in "\"'\\/"}
_WINDOW = 72  # characters of the text that a message shows
_TERMINALS = {  # names of what the parser may expect
    "NAME": "an attribute",
    "NUMBER": "a value",
    "COMPARE": "a comparison such as >=",
    **{f"_{word.upper()}": repr(word) for word in ("in", "between", "prefix", "not", "and", "or")},
    "_COMMA": "a comma",
    "_LPAR": "'('",
    "_RPAR": "')'",
    "_LSQB": "'['",
    "_RSQB": "']'",
    "$END": "the end",
}
_UNCLOSED = " (this text has no closing quote)"
_HINTS = {"&": " (write 'and')", "|": " (write 'or')", "!": " (write 'not' or !=)"}
_HINTS |= {'"': _UNCLOSED, "'": _UNCLOSED}


class ExprSyntaxError(BadInput):
    """The text is not an expression; `position` counts from 0, `line` and `column` from 1."""

    def __init__(self, message: str, position: int = 0, line: int = 1, column: int = 1) -> None:
        super().__init__(message)
        self.position = position
        self.line = line
        self.column = column


class TextTooLong(BadInput):
    """The text exceeds the limit for expressions."""


class NestingTooDeep(BadInput):
    """The expression has too many parentheses or `not` around one condition."""


@dataclass(frozen=True, slots=True)
class Constant:
    """`true`, which every event matches, or `false`."""

    value: bool
    depth: int = 1


@dataclass(frozen=True, slots=True)
class Condition:
    """One attribute, an operator of the object form, and its operand.

    `position` says where the name of the attribute stands in the text, counted from 0.
    """

    name: str
    operator: str
    operand: object
    depth: int = 1
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Not:
    """The negation of its part."""

    part: "Node"
    depth: int


@dataclass(frozen=True, slots=True)
class Junction:
    """All of its parts (`and`) or any of them (`or`)."""

    word: Literal["and", "or"]
    parts: tuple["Node", ...]
    depth: int


Node = Constant | Condition | Not | Junction


def parse(text: str) -> Node:
    """The tree of an expression, at most MAX_DEPTH deep."""
    if len(text) > MAX_TEXT:
        raise TextTooLong(f"a filter has at most {MAX_TEXT} characters, got {len(text)}")
    if not text.strip():
        problem = "the filter is empty; write a condition such as price > 420, or true for all"
        raise _syntax_error(text, 0, problem)
    try:
        # The transformer runs while the parser reduces, so lark builds no tree of its own.
        return cast(Node, _parser().parse(text))
    except _Misplaced as error:
        raise _syntax_error(text, error.position, error.problem) from None
    except UnexpectedInput as error:
        raise _syntax_error(text, *_explained(text, error)) from None


@cache
def _parser() -> Lark:
    # The package may be in an archive: workers of Spark import it from one.
    return Lark.open_from_package("dzflow", "expr.lark", parser="lalr", transformer=_Builder())


class _Misplaced(Exception):
    """The text is grammatical, but has no meaning."""

    def __init__(self, position: int, problem: str) -> None:
        super().__init__(problem)
        self.position = position
        self.problem = problem


@dataclass(frozen=True, slots=True)
class _Value:
    """A literal and where it stands."""

    value: object
    position: int


def _nested(*parts: Node) -> int:
    depth = 1 + max(part.depth for part in parts)
    if depth > MAX_DEPTH:
        raise NestingTooDeep(f"the filter is nested more than {MAX_DEPTH} deep; write it flatter")
    return depth


@v_args(inline=True)
class _Builder(Transformer[Token, Node]):
    """Turns each rule of the grammar into a node of our tree."""

    def disjunction(self, *parts: Node) -> Node:
        return Junction("or", parts, _nested(*parts))

    def conjunction(self, *parts: Node) -> Node:
        return Junction("and", parts, _nested(*parts))

    def negation(self, part: Node) -> Node:
        return Not(part, _nested(part))

    def group(self, part: Node) -> Node:
        return replace(part, depth=_nested(part))

    def constant(self, token: Token) -> Node:
        return Constant(token.lower() == "true")

    def comparison(self, *parts: Token | _Value) -> Node:
        pairs = zip(parts[:-2:2], parts[1:-1:2], parts[2::2], strict=True)
        found = tuple(_compared(left, _COMPARE[str(sign)], right) for left, sign, right in pairs)
        return found[0] if len(found) == 1 else Junction("and", found, _nested(*found))

    def test(self, name: Token, relation: tuple[str, object]) -> Node:
        return Condition(str(name), *relation, position=name.start_pos or 0)

    def excluding_test(self, name: Token, relation: tuple[str, object]) -> Node:
        return Not(self.test(name, relation), 2)

    def one_of(self, *values: _Value) -> tuple[str, object]:
        return "in", [value.value for value in values]

    def between(self, low: _Value, high: _Value) -> tuple[str, object]:
        return "between", [low.value, high.value]

    def prefix(self, value: _Value) -> tuple[str, object]:
        return "prefix", value.value

    def value(self, token: Token) -> _Value:
        position = token.start_pos or 0
        if token.type in ("TRUE", "FALSE"):
            return _Value(token.type == "TRUE", position)
        return _Value((_text if token.type == "STRING" else _number)(token, position), position)


def _compared(left: Token | _Value, operator: str, right: Token | _Value) -> Condition:
    if isinstance(left, _Value) and isinstance(right, Token):
        found, sign, value = right, _MIRRORED.get(operator, operator), left.value
    elif isinstance(left, Token) and isinstance(right, _Value):
        found, sign, value = left, operator, right.value
    elif isinstance(right, Token):
        problem = f'attributes are compared with values; a text stands in quotes: "{right}"'
        raise _Misplaced(right.start_pos or 0, problem)
    else:
        problem = "neither side of the comparison is an attribute"
        raise _Misplaced(cast(_Value, left).position, problem)
    return Condition(str(found), sign, value, position=found.start_pos or 0)


def _number(token: Token, position: int) -> int | float:
    try:
        return int(token) if token.lstrip("+-").isdigit() else float(token)
    except ValueError:  # Python's limit on the digits of an int
        raise _Misplaced(position, "the number has too many digits") from None


def _text(token: Token, position: int) -> str:
    def character(match: re.Match[str]) -> str:
        code = match[1]
        if len(code) == 5:
            return chr(int(code[1:], 16))
        if code not in _ESCAPED:
            problem = f"no such escape; write \\\\ for a backslash or one of {' '.join(_ESCAPED)}"
            raise _Misplaced(position + 1 + match.start(), problem)
        return _ESCAPED[code]

    text = _ESCAPE.sub(character, token[1:-1])
    # As in JSON, two escapes that are a surrogate pair are one character.
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _explained(text: str, error: UnexpectedInput) -> tuple[int, str]:
    """Where a parser's error is and what is wrong there."""
    position = error.pos_in_stream or 0
    token = error.token if isinstance(error, UnexpectedToken) else Token("", text[position])
    if token.type == "$END":
        position = len(text)
    # The error's own list is too long: it includes tokens that are impossible after this text.
    before = _parser().parse_interactive(text[:position])
    before.exhaust_lexer()
    expected = before.accepts()  # type: ignore[no-untyped-call]
    words = [word for terminal, word in _TERMINALS.items() if terminal in expected]
    wanted = " or ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))
    hint = "" if token.type else _HINTS.get(token, "")
    if token.type == "NAME" and "STRING" in expected:
        hint = f' (a text stands in quotes: "{token}")'
    return position, f"expected {wanted}, got {shown(str(token)) if token else 'the end'}{hint}"


def _syntax_error(text: str, position: int, problem: str) -> ExprSyntaxError:
    start = text.rfind("\n", 0, position) + 1
    line, column = text.count("\n", 0, position) + 1, position - start + 1
    shift = max(0, column - 1 - _WINDOW // 2)
    excerpt = text[start:].split("\n", 1)[0][shift : shift + _WINDOW]
    # One printable character for each, so that the caret points to the right one.
    excerpt = "".join(c if c.isprintable() else " " if c.isspace() else "\ufffd" for c in excerpt)
    caret = " " * (column - 1 - shift) + "^"
    message = f"{problem} (line {line}, column {column})\n  {excerpt}\n  {caret}"
    return ExprSyntaxError(message, position, line, column)
