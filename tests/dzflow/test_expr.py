"""The expression language: what its texts mean, and what its errors say."""

import json
import pickle
from contextlib import suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dzflow.attribute import KEYWORDS, BadSchema, NotFinite, UnknownAttribute, WrongType
from dzflow.errors import BadInput
from dzflow.expr import (
    MAX_DEPTH,
    MAX_TEXT,
    Condition,
    ExprSyntaxError,
    Junction,
    NestingTooDeep,
    Node,
    Not,
    TextTooLong,
    parse,
)
from dzflow.filters import EmptyRange, parse_filter
from dzflow.space import Space

SPACE = Space.from_json(
    "stocks",
    {
        "attributes": [
            {"name": "price", "type": "float", "min": -1000, "max": 1000},
            {"name": "volume", "type": "int", "min": 0, "max": 10_000},
            {"name": "symbol", "type": "string"},
            {"name": "open", "type": "bool"},
            {"name": "android", "type": "bool"},
        ]
    },
)


def same(one: str, other: object) -> bool:
    return parse_filter(SPACE, one) == parse_filter(SPACE, other)


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("volume == 5", {"volume": 5}),
        ("volume = 5", {"volume": 5}),
        ("volume=5", {"volume": 5}),
        ("volume != 5", {"volume": {"ne": 5}}),
        ("volume < 5", {"volume": {"lt": 5}}),
        ("volume <= 5", {"volume": {"lte": 5}}),
        ("volume > 5", {"volume": {"gt": 5}}),
        ("volume>=5", {"volume": {"gte": 5}}),
        ("5 == volume", {"volume": 5}),
        ("5 != volume", {"volume": {"ne": 5}}),
        ("5 < volume", {"volume": {"gt": 5}}),
        ("5 <= volume", {"volume": {"gte": 5}}),
        ("5 > volume", {"volume": {"lt": 5}}),
        ("5 >= volume", {"volume": {"lte": 5}}),
        ("1 < volume <= 5", {"volume": {"gt": 1, "lte": 5}}),
        ("9 > volume >= 5", {"volume": {"lt": 9, "gte": 5}}),
        ("1 < volume != 4", {"volume": {"gt": 1, "ne": 4}}),
        ("volume < 5 < price", {"volume": {"lt": 5}, "price": {"gt": 5}}),
        ("volume in (1, 2, 9)", {"volume": {"in": [1, 2, 9]}}),
        ("volume in [1,2,9]", {"volume": {"in": [1, 2, 9]}}),
        ("volume in (1)", {"volume": 1}),
        ("volume not in (1, 2)", [{"volume": {"lt": 1}}, {"volume": {"gt": 2}}]),
        ("not volume in (1, 2)", [{"volume": {"lt": 1}}, {"volume": {"gt": 2}}]),
        ("volume between 1 and 5", {"volume": {"between": [1, 5]}}),
        ("volume not between 1 and 5", [{"volume": {"lt": 1}}, {"volume": {"gt": 5}}]),
        (
            "volume between 1 and 5 and price < 3",
            {"volume": {"between": [1, 5]}, "price": {"lt": 3}},
        ),
        ('symbol prefix "AC"', {"symbol": {"prefix": "AC"}}),
        ('symbol not prefix "AC"', [{"symbol": {"lt": "AC"}}, {"symbol": {"gte": "AD"}}]),
        ("open == true", {"open": True}),
        ("open = FALSE", {"open": False}),
        ("true == open", {"open": True}),
        ("open in (true)", {"open": True}),
        ("true", {}),
        ("TRUE", {}),
        ("not false", {}),
        ("true and volume == 5", {"volume": 5}),
        ("false or volume == 5", {"volume": 5}),
        ("android == true", {"android": True}),
        ("price == -4.5", {"price": -4.5}),
        ("price == +4.5e1", {"price": 45.0}),
        ("price == .5", {"price": 0.5}),
        ("price == 5.", {"price": 5}),
        ("price == 1E-3", {"price": 0.001}),
        ("volume == 1e3", {"volume": 1000}),
        ("volume < 5.5", {"volume": {"lte": 5}}),
        ("price>-5and price<5", {"price": {"gt": -5, "lt": 5}}),
        ("\n\tvolume\n==\r\n5 ", {"volume": 5}),
    ],
)
def test_a_text_means_the_same_as_an_object(text: str, source: object) -> None:
    assert same(text, source)


@pytest.mark.parametrize(
    ("text", "grouped"),
    [
        (
            "volume < 5 or volume > 9 and open == true",
            "volume < 5 or (volume > 9 and open == true)",
        ),
        ("not open == true and volume < 5", "(not open == true) and volume < 5"),
        ("not open == true or volume < 5", "(not open == true) or volume < 5"),
        ("volume < 5 AND open = true Or price > 3", "(volume < 5 and open = true) or price > 3"),
        ("not (open == true or volume < 5)", "open == false and volume >= 5"),
        ("not (open == true and volume < 5)", "open == false or volume >= 5"),
        ("not not open == true", "open == true"),
        ("((volume < 5))", "volume < 5"),
        ("price < 1 or price < 2 or price < 3", "price < 3"),
        ("not 1 < volume < 5", "volume <= 1 or volume >= 5"),
    ],
)
def test_words_bind_as_one_expects(text: str, grouped: str) -> None:
    assert same(text, grouped)


@pytest.mark.parametrize(
    ("literal", "text"),
    [
        ('"AC ME"', "AC ME"),
        ("'AC ME'", "AC ME"),
        ("''", ""),
        ('"it\'s"', "it's"),
        (r"'it\'s'", "it's"),
        (r'"a\"b"', 'a"b'),
        (r'"a\\"', "a\\"),
        (r'"\n\t\r\b\f\/"', "\n\t\r\b\f/"),
        (r'"\u00e9\u20AC"', "é€"),
        (r'"\ud83d\ude00"', "😀"),
        ('"two\nlines"', "two\nlines"),
        ('"and or not"', "and or not"),
        ('"é€😀"', "é€😀"),
    ],
)
def test_texts_stand_in_quotes_with_escapes(literal: str, text: str) -> None:
    assert parse(f"symbol == {literal}") == Condition("symbol", "eq", text)
    assert same(f"symbol == {literal}", {"symbol": text})


@given(st.text(max_size=20))
def test_any_text_can_be_written_as_in_json(text: str) -> None:
    for literal in (json.dumps(text), json.dumps(text, ensure_ascii=False)):
        assert parse(f"symbol == {literal}") == Condition("symbol", "eq", text)


@given(st.integers() | st.floats(allow_nan=False, allow_infinity=False))
def test_any_number_can_be_written(number: float) -> None:
    found = parse(f"price == {number!r}")
    assert isinstance(found, Condition)
    assert found.operand == number
    assert type(found.operand) is type(number)


def test_a_tree_is_as_flat_as_its_text() -> None:
    one, other = Condition("a", "lt", 1), Condition("b", "in", [2])
    assert parse("a < 1 and b in (2) and a < 1") == Junction("and", (one, other, one), 2)
    assert parse("not a < 1") == Not(one, 2)


@pytest.mark.parametrize(
    ("text", "position", "expected"),
    [
        ("price >", 7, "expected an attribute or a value, got the end"),
        ("price > > 5", 8, "expected an attribute or a value, got '>'"),
        ("price 5", 6, "expected a comparison such as >=, 'in', 'between', 'prefix' or 'not'"),
        ("price", 5, "got the end"),
        ("price > 5 volume < 3", 10, "'and', 'or' or the end, got 'volume'"),
        ("price > 5 and", 13, "expected an attribute, a value, 'not' or '(', got the end"),
        ("and price > 5", 0, "expected an attribute, a value, 'not' or '(', got 'and'"),
        ("price > 5 or or", 13, "got 'or'"),
        ("(price > 5", 10, "'and', 'or' or ')', got the end"),
        ("price > 5)", 9, "'and', 'or' or the end, got ')'"),
        ("()", 1, "got ')'"),
        ("volume in 5", 10, "expected '(' or '[', got '5'"),
        ("volume in (1 2)", 13, "expected a comma or ')', got '2'"),
        ("volume in (1,)", 13, "expected a value, got ')'"),
        ("volume in (1]", 12, "expected a comma or ')', got ']'"),
        ("volume between 1", 16, "expected 'and', got the end"),
        ("volume between 1, 5", 16, "expected 'and', got ','"),
        ("5 in (1)", 2, "expected a comparison such as >=, got 'in'"),
        ("true false", 5, "got 'false'"),
        ("price > 5 && open = true", 10, "got '&' (write 'and')"),
        ("price > 5 || open = true", 10, "got '|' (write 'or')"),
        ("!(price > 5)", 0, "got '!' (write 'not' or !=)"),
        ("price > $5", 8, "got '$'"),
        ("andé", 0, "got 'and'"),
        ("price > 5 andé", 13, "got 'é'"),
        ('symbol == "ACME', 10, "got '\"' (this text has no closing quote)"),
        ("symbol == 'ACME\\'", 10, "no closing quote"),
        ("symbol == ACME", 10, 'a text stands in quotes: "ACME"'),
        ("symbol in (ACME, B)", 11, "got 'ACME' (a text stands in quotes: \"ACME\")"),
        ("price < volume", 8, "attributes are compared with values"),
        ("price > 1 and 1 < 2", 14, "neither side of the comparison is an attribute"),
        (r'symbol == "a\q"', 12, "no such escape"),
        (r'symbol == "\u12"', 11, "no such escape"),
        ("price > " + "9" * 5000, 8, "too many digits"),
        ("", 0, "the filter is empty; write a condition such as price > 420, or true"),
        (" \n ", 0, "the filter is empty"),
        ("price > \ud800", 8, "expected an attribute or a value"),
        ("price > 5\0", 9, "got"),
    ],
)
def test_a_syntax_error_says_where_it_is_and_what_was_expected(
    text: str, position: int, expected: str
) -> None:
    with pytest.raises(ExprSyntaxError) as caught:
        parse_filter(SPACE, text)
    assert expected in str(caught.value)
    assert caught.value.position == position
    assert len(str(caught.value).encode()) < 500


def pointed_at(error: ExprSyntaxError) -> str:
    _, excerpt, caret = str(error).split("\n")
    assert set(caret) <= {" ", "^"}
    return excerpt[caret.index("^") :]


def test_a_caret_stands_under_the_place() -> None:
    with pytest.raises(ExprSyntaxError) as caught:
        parse("price >= 420 und volume < 5")
    assert str(caught.value) == (
        "expected a comparison such as >=, 'and', 'or' or the end, got 'und' (line 1, column 14)\n"
        "  price >= 420 und volume < 5\n"
        "               ^"
    )


def test_the_caret_is_right_in_long_and_in_several_lines() -> None:
    long = " or ".join(f"price == {i}" for i in range(100))
    with pytest.raises(ExprSyntaxError) as caught:
        parse(f"{long} oder price == 5\tor {long}")
    assert pointed_at(caught.value).startswith("oder price == 5 or price")
    assert len(str(caught.value)) < 300
    with pytest.raises(ExprSyntaxError) as caught:
        parse("price > 5\n  and\n\tvolume >= < 5\nor open = true")
    assert pointed_at(caught.value) == "< 5"
    assert (caught.value.line, caught.value.column, caught.value.position) == (3, 12, 27)


def test_a_syntax_error_survives_the_way_to_another_process() -> None:
    with pytest.raises(ExprSyntaxError) as caught:
        parse("price >\n>")
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301
    assert str(again) == str(caught.value)
    assert (again.position, again.line, again.column) == (8, 2, 1)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5_000 + "price > 1" + ")" * 5_000,
        "not " * 3_900 + "price > 1",
        "not (" * 2_000 + "price > 1" + ")" * 2_000,
        "(price > 1 and " * 600 + "price > 1" + ")" * 600,
        "(" * MAX_DEPTH + "price > 1" + ")" * MAX_DEPTH,
    ],
)
def test_deep_nesting_is_refused(text: str) -> None:
    assert len(text) <= MAX_TEXT
    with pytest.raises(NestingTooDeep, match="more than 64 deep"):
        parse_filter(SPACE, text)


@pytest.mark.parametrize("opening", ["(" * 5_000, "not (" * 2_000, "price in (" * 1_000])
def test_nesting_that_is_never_closed_is_refused(opening: str) -> None:
    with pytest.raises(BadInput):
        parse_filter(SPACE, opening)


def test_reasonable_nesting_passes() -> None:
    assert same("(" * 50 + "price > 1" + ")" * 50, "price > 1")
    assert same("not " * 50 + "price > 1", "price > 1")


def test_a_text_that_is_too_long_is_refused() -> None:
    assert same("price > 1".ljust(MAX_TEXT), "price > 1")
    with pytest.raises(TextTooLong, match=f"at most {MAX_TEXT} characters, got {MAX_TEXT + 1}"):
        parse_filter(SPACE, "price > 1".ljust(MAX_TEXT + 1))


def test_many_conditions_in_a_row_are_not_deep() -> None:
    assert same(" or ".join(f"volume == {i}" for i in range(800)), "volume < 800")
    assert same(" and ".join(f"volume != {i}" for i in range(800)), "volume >= 800")


@pytest.mark.parametrize(
    ("text", "error", "attribute"),
    [
        ("prise > 5", UnknownAttribute, "prise"),
        ("price > '5'", WrongType, "price"),
        ("price > true", WrongType, "price"),
        ("volume == 5.5", WrongType, "volume"),
        ("price < 1e999", NotFinite, "price"),
        ("volume between 5 and 3", EmptyRange, "volume"),
        ("volume in ()", EmptyRange, "volume"),
        ("volume in []", EmptyRange, "volume"),
        (r'symbol == "\ud800"', WrongType, "symbol"),
    ],
)
def test_errors_of_meaning_are_those_of_the_object_form(
    text: str, error: type[UnknownAttribute], attribute: str
) -> None:
    with pytest.raises(error) as caught:
        parse_filter(SPACE, text)
    assert caught.value.attribute == attribute


@pytest.mark.parametrize("word", sorted(KEYWORDS))
def test_a_keyword_is_neither_an_attribute_in_a_text_nor_in_a_schema(word: str) -> None:
    with pytest.raises(ExprSyntaxError):
        parse(f"{word} {word} 5")
    with pytest.raises(BadSchema):
        Space.from_json("s", {"attributes": [{"name": word, "type": "bool"}]})
    assert parse(f"{word}_ == 5") == Condition(f"{word}_", "eq", 5)


pieces = st.sampled_from(
    ["price", "volume", "symbol", "open", "prise", "and", "or", "not", "in", "between", "prefix",
     "true", "false", "(", ")", "[", "]", ",", "==", "=", "!=", "<", "<=", ">", ">=", "5", "-5",
     "1e3", "5.5", "1e999", '"A"', "'A'", '"', "'", "\\", "é", "\n", "&", "\ud800"]
)  # fmt: skip
conditions = st.sampled_from(
    ["price < 5", "volume in (1, 2)", "1 <= volume < 9", 'symbol prefix "A"', "not open == true"]
)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(pieces, max_size=12).map(" ".join)
    | st.lists(pieces | conditions, max_size=8).map("".join)
    | st.lists(conditions | st.sampled_from(["and", "or", "not", "(", ")"])).map(" ".join)
    | st.text(st.characters(codec=None), max_size=30)
)
@example("andé")
@example("price > 5 falſe")
def test_any_other_text_is_refused_as_bad_input(text: str) -> None:
    with suppress(BadInput):
        parse_filter(SPACE, text)
        return
    with pytest.raises(BadInput) as caught:
        parse_filter(SPACE, text)
    error = caught.value
    assert len(str(error).encode()) < 800
    if isinstance(error, ExprSyntaxError):
        assert 0 <= error.position <= len(text)
        if error.position < len(text) and text[error.position].isprintable():
            assert pointed_at(error).startswith(text[error.position])


def test_a_tree_has_a_type_for_each_kind_of_node() -> None:
    found: Node = parse("not (a < 1 or b == true)")
    assert isinstance(found, Not)
    assert isinstance(found.part, Junction)
    assert found.part.word == "or"
