"""Filters: all three forms, their normal form, matching, covering and their words."""

import json
import math
import pickle
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import combinations, product
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from dzflow.attribute import (
    Attribute,
    FieldError,
    NotFinite,
    OutsideDomain,
    UnknownAttribute,
    WrongType,
)
from dzflow.errors import BadInput
from dzflow.filters import (
    EVERYTHING,
    MAX_CONJUNCTIONS,
    MAX_LIST,
    MAX_VALUES,
    BadFilter,
    BadOperator,
    Conjunction,
    EmptyFilter,
    EmptyRange,
    Filter,
    TooManyConjunctions,
    conjunction_text,
    parse_filter,
)
from dzflow.intervals import covers, normal
from dzflow.space import Space


def filter_text(space: Space, wanted: Filter) -> str:
    """All conjunctions of a filter as one expression."""
    return " or ".join(conjunction_text(space, conjunction) for conjunction in wanted.any)


STOCKS = Space.from_json(
    "stocks",
    {
        "attributes": [
            {"name": "price", "type": "float", "min": 0, "max": 1000},
            {"name": "volume", "type": "int", "min": 0, "max": 10_000},
            {"name": "symbol", "type": "string"},
            {"name": "level", "type": "enum", "values": ["low", "mid", "high", "top"]},
            {"name": "open", "type": "bool"},
            {"name": "at", "type": "time", "min": 0, "max": 2_000_000_000},
        ]
    },
)
EVENT = {
    "price": 420.0,
    "volume": 100,
    "symbol": "ACME",
    "level": "mid",
    "open": True,
    "at": "2024-01-01T00:00:00Z",
}


def matches(source: object, **changes: object) -> bool:
    return parse_filter(STOCKS, source).matches(STOCKS.keys({**EVENT, **changes}))


# What the operators mean, one example each side of every edge.


@pytest.mark.parametrize(
    ("source", "inside", "outside"),
    [
        ({"volume": {"eq": 5}}, [5, 5.0], [4, 6]),
        ({"volume": 5}, [5], [4, 6]),
        ({"volume": {"ne": 5}}, [4, 6], [5]),
        ({"volume": {"lt": 5}}, [0, 4], [5, 10_000]),
        ({"volume": {"lte": 5}}, [0, 5], [6]),
        ({"volume": {"gt": 5}}, [6, 10_000], [5]),
        ({"volume": {"gte": 5}}, [5, 10_000], [4]),
        ({"volume": {"lt": 5.5}}, [5], [6]),
        ({"volume": {"lte": 5.5}}, [5], [6]),
        ({"volume": {"gt": 5.5}}, [6], [5]),
        ({"volume": {"gte": 5.5}}, [6], [5]),
        ({"volume": {"between": [4.5, 6.5]}}, [5, 6], [4, 7]),
        ({"volume": {"between": [5, 5]}}, [5], [4, 6]),
        ({"volume": {"in": [1, 3, 2, 9]}}, [1, 2, 3, 9], [0, 4, 8]),
        ({"volume": {"gte": 3, "lt": 6, "ne": 4}}, [3, 5], [2, 4, 6]),
        ({"price": {"lt": 5}}, [0, math.nextafter(5, 0)], [5]),
        ({"price": {"lte": 5}}, [5], [math.nextafter(5, 6)]),
        ({"price": {"gt": 5}}, [math.nextafter(5, 6), 1000], [5]),
        ({"price": {"eq": 0.1}}, [0.1], [math.nextafter(0.1, 1), math.nextafter(0.1, 0)]),
        ({"price": {"between": [0, 0.5]}}, [0, 0.5, -0.0], [math.nextafter(0.5, 1)]),
        ({"symbol": {"eq": "A"}}, ["A"], ["", "A\0", "AB", "B"]),
        ({"symbol": {"ne": "A"}}, ["", "A\0", "B"], ["A"]),
        ({"symbol": {"gt": "A"}}, ["A\0", "AB", "é"], ["A", ""]),
        ({"symbol": {"lte": "é"}}, ["A", "z", "é"], ["é\0", "€"]),
        ({"symbol": {"prefix": "AC"}}, ["AC", "ACME", "AC\U0010ffff"], ["A", "AD", "aC"]),
        ({"symbol": {"prefix": "\x7f"}}, ["\x7f", "\x7fz"], ["\x7e", "\x80"]),
        ({"symbol": {"between": ["A", "B"]}}, ["A", "AZ", "B"], ["", "B\0"]),
        ({"symbol": {"in": ["A", "C"]}}, ["A", "C"], ["B"]),
        ({"level": {"gte": "high"}}, ["high", "top"], ["low", "mid"]),
        ({"level": {"between": ["mid", "high"]}}, ["mid", "high"], ["low", "top"]),
        ({"level": {"in": ["low", "top"]}}, ["low", "top"], ["mid", "high"]),
        ({"open": {"eq": False}}, [False], [True]),
        ({"open": {"ne": False}}, [True], [False]),
        ({"open": {"in": [True]}}, [True], [False]),
        ({"open": True}, [True], [False]),
        ({"at": {"gt": 5}}, [5.000001, "1970-01-01T00:00:06Z"], [5, "1970-01-01T01:00:05+01:00"]),
        ({"at": {"lt": "1970-01-01T00:00:05Z"}}, [0, 4.999999], [5]),
    ],
)
def test_a_condition_holds_for_the_right_values(
    source: dict[str, object], inside: list[object], outside: list[object]
) -> None:
    (name,) = source
    for value in inside:
        assert matches(source, **{name: value})
    for value in outside:
        assert not matches(source, **{name: value})


def test_an_empty_object_means_everything() -> None:
    everything = parse_filter(STOCKS, {})
    assert everything.any == (EVERYTHING,)
    assert everything.matches(STOCKS.keys(EVENT))
    assert everything == parse_filter(STOCKS, "true") == parse_filter(STOCKS, [{"price": 1}, {}])


def test_the_three_forms_are_equivalent() -> None:
    as_list = [{"price": {"gte": 420}, "symbol": {"eq": "ACME"}}, {"volume": {"lt": 100}}]
    text = 'price >= 420 and symbol == "ACME" or volume < 100'
    assert parse_filter(STOCKS, as_list) == parse_filter(STOCKS, text)


def test_a_filter_matches_if_any_conjunction_does() -> None:
    source = [{"price": {"lt": 5}, "open": False}, {"volume": {"in": [1, 5, 100]}, "level": "mid"}]
    assert matches(source)
    assert not matches(source, level="low")
    assert matches(source, level="low", price=4, open=False)


def test_long_lists_of_values_match_exactly() -> None:
    source = {"volume": {"in": list(range(0, 8_000, 2))}}
    assert matches(source, volume=7_998)
    assert not matches(source, volume=7_999)
    assert not matches(source, volume=9_000)


# Normal form.


def test_only_constrained_attributes_are_present() -> None:
    found = parse_filter(STOCKS, {"price": {"gte": 0}, "symbol": {"prefix": ""}, "volume": 5})
    assert dict(found.any[0].ranges) == {"volume": ((5, 6),)}


def test_contradictions_are_dropped() -> None:
    found = parse_filter(STOCKS, [{"volume": {"lt": 5, "gt": 7}}, {"volume": 9}])
    assert found == parse_filter(STOCKS, {"volume": 9})


def test_covered_conjunctions_are_dropped() -> None:
    wide = {"volume": {"lt": 5}}
    assert parse_filter(STOCKS, [{"volume": 3, "open": True}, wide]) == parse_filter(STOCKS, wide)


def test_conjunctions_that_differ_in_one_attribute_become_one() -> None:
    found = parse_filter(STOCKS, [{"volume": 3, "open": True}, {"volume": 4, "open": True}])
    assert found == parse_filter(STOCKS, {"volume": {"between": [3, 4]}, "open": True})


def test_what_was_merged_may_merge_again() -> None:
    cells = [{"volume": v, "level": level} for v in range(3) for level in ("low", "mid", "high")]
    found = parse_filter(STOCKS, cells)
    assert found == parse_filter(STOCKS, {"volume": {"lt": 3}, "level": {"ne": "top"}})


def test_an_attribute_that_is_merged_to_its_whole_domain_is_gone() -> None:
    found = parse_filter(STOCKS, 'symbol == "A" and open == true or symbol == "A" and open = false')
    assert found == parse_filter(STOCKS, {"symbol": "A"})


def test_a_grid_of_cells_in_any_order_is_one_conjunction() -> None:
    cells = [{"volume": 7 * i % 32, "price": 11 * j % 32} for i in range(32) for j in range(32)]
    assert len(cells) == MAX_LIST
    found = parse_filter(STOCKS, cells)
    assert found == parse_filter(STOCKS, {"volume": {"lt": 32}, "price": {"in": list(range(32))}})


def test_conjunctions_and_filters_are_values() -> None:
    one, other = (parse_filter(STOCKS, {"volume": 5, "open": True}) for _ in range(2))
    assert one == other
    assert len({one, other}) == 1
    assert len({*one.any, *other.any}) == 1
    again = pickle.loads(pickle.dumps(one))  # noqa: S301
    assert again == one
    assert again.matches(STOCKS.keys({**EVENT, "volume": 5}))
    with pytest.raises(TypeError):
        one.any[0].ranges["volume"] = ()  # type: ignore[index]


def test_a_filter_can_be_made_of_conjunctions() -> None:
    parts = [Conjunction({"volume": ((5, 6),)}), Conjunction({"volume": ((6, 7),)})]
    assert Filter.of(STOCKS, parts) == parse_filter(STOCKS, {"volume": {"in": [5, 6]}})
    rough = Conjunction({"volume": ((4, 6), (5, 9)), "open": ((0, 2),), "price": ((-9.0, 1.0),)})
    wanted = {"volume": {"between": [4, 8]}, "price": {"lt": 1}}
    assert Filter.of(STOCKS, [rough]) == parse_filter(STOCKS, wanted)
    for nothing in ([], [Conjunction({"volume": ()})], [Conjunction({"volume": ((-5, 0),)})]):
        with pytest.raises(EmptyFilter):
            Filter.of(STOCKS, nothing)
    with pytest.raises(UnknownAttribute):
        Filter.of(STOCKS, [Conjunction({"prise": ((5, 6),)})])


# Covering.


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        ({}, {"volume": 5}),
        ({"volume": {"lt": 5}}, {"volume": {"lt": 5}}),
        ({"volume": {"lt": 5}}, {"volume": 3, "open": True}),
        (
            [{"volume": {"lt": 5}}, {"price": {"lt": 5}}],
            [{"price": 3}, {"volume": 3, "open": True}],
        ),
        ({"symbol": {"prefix": "A"}}, {"symbol": {"prefix": "AC"}}),
    ],
)
def test_a_filter_covers_a_narrower_one(outer: object, inner: object) -> None:
    assert parse_filter(STOCKS, outer).covers(parse_filter(STOCKS, inner))


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        ({"volume": 5}, {}),
        ({"volume": {"lt": 5}}, {"volume": {"lte": 5}}),
        ({"volume": {"lt": 5}, "open": True}, {"volume": {"lt": 5}}),
        ({"volume": {"lt": 5}}, [{"volume": 3}, {"open": True}]),
    ],
)
def test_a_filter_does_not_cover_a_wider_one(outer: object, inner: object) -> None:
    assert not parse_filter(STOCKS, outer).covers(parse_filter(STOCKS, inner))


# Words.


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ({}, "true"),
        ({"price": {"gte": 420}, "symbol": "ACME"}, 'price >= 420 and symbol == "ACME"'),
        ({"volume": {"lt": 100}}, "volume < 100"),
        ({"volume": {"lte": 100}}, "volume <= 100"),
        ({"volume": {"gt": 420}}, "volume > 420"),
        ({"volume": {"between": [1, 5]}}, "volume between 1 and 5"),
        ({"volume": {"in": [1, 3]}}, "volume in (1, 3)"),
        ({"volume": {"ne": 7}}, "volume != 7"),
        ("volume not in (3, 7)", "volume not in (3, 7)"),
        ("volume < 20 or volume > 100", "volume < 20 or volume > 100"),
        (
            "(volume < 20 or volume == 77 or volume > 100) and open == true",
            "(volume == 77 or volume < 20 or volume > 100) and open == true",
        ),
        ({"price": {"gt": 0.1, "lt": 0.3}}, "0.1 < price < 0.3"),
        ({"price": {"between": [0.1, 0.3]}}, "price between 0.1 and 0.3"),
        ({"price": {"ne": 7}}, "price != 7"),
        ({"price": {"lte": 1e-7}}, "price <= 1e-07"),
        ({"symbol": {"prefix": 'A"C'}}, 'symbol prefix "A\\"C"'),
        ("not symbol prefix 'AC'", 'symbol not prefix "AC"'),
        ({"symbol": {"gt": "A", "lte": "B"}}, '"A" < symbol <= "B"'),
        ({"symbol": {"between": ["A", "B"]}}, 'symbol between "A" and "B"'),
        ({"symbol": {"gte": "A", "lt": "B"}}, 'symbol prefix "A"'),
        ({"symbol": {"gte": "é"}}, 'symbol >= "é"'),
        ({"level": {"gte": "high"}}, 'level in ("high", "top")'),
        ({"level": {"ne": "low"}}, 'level != "low"'),
        ({"level": {"eq": "low"}}, 'level == "low"'),
        ({"open": {"ne": False}}, "open == true"),
        ({"at": {"gt": 86_400}}, 'at > "1970-01-02T00:00:00Z"'),
        (
            [{"price": {"gte": 420}, "symbol": "ACME"}, {"volume": {"lt": 100}}],
            'price >= 420 and symbol == "ACME" or volume < 100',
        ),
    ],
)
def test_a_filter_in_words_is_pleasant_to_read(source: object, text: str) -> None:
    found = parse_filter(STOCKS, source)
    assert filter_text(STOCKS, found) == text
    assert parse_filter(STOCKS, text) == found


def test_values_of_a_large_enum_are_compared_rather_than_listed() -> None:
    large = Space("s", (Attribute("n", "enum", values=tuple(f"v{i:03}" for i in range(300))),))
    found = parse_filter(large, 'n >= "v100" and n != "v200"')
    assert filter_text(large, found) == 'n between "v100" and "v199" or n >= "v201"'
    assert parse_filter(large, filter_text(large, found)) == found


def test_bounds_that_no_text_has_are_shown_somehow() -> None:
    for ranges in (((b"a\xff", b"b\xfe"),), ((b"\xff", None),), ((b"\xc3", b"\xc3\x00"),)):
        assert "symbol" in conjunction_text(STOCKS, Conjunction({"symbol": ranges}))
    assert conjunction_text(STOCKS, Conjunction({"symbol": ()})) == "false"
    assert conjunction_text(STOCKS, Conjunction({"volume": ((0, 5), (5, 10_001))})) == "true"


# Refusals.


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        (5, BadFilter, "an object, a list of objects or a text"),
        (None, BadFilter, "got None"),
        ([5], BadFilter, "at index 0: expected an object, got 5"),
        ([{}, "price > 5"], BadFilter, "at index 1: expected an object"),
        ([[{}]], BadFilter, "at index 0"),
        ({"prise": 5}, UnknownAttribute, "did you mean 'price'"),
        ({5: 5}, UnknownAttribute, "no attribute 5"),
        ({"price": {}}, BadOperator, "price: needs an operator"),
        ({"price": {"equals": 5}}, BadOperator, "price: no operator 'equals'; there are eq, ne"),
        ({"price": {"lt ": 5}}, BadOperator, "did you mean 'lt'"),
        ({"price": {5: 5}}, BadOperator, "no operator 5"),
        ({"price": {"prefix": "4"}}, BadOperator, "price: prefix is not for type float"),
        ({"level": {"prefix": "l"}}, BadOperator, "level: prefix is not for type enum"),
        ({"open": {"lt": True}}, BadOperator, "open: lt is not for type bool"),
        ({"open": {"between": [False, True]}}, BadOperator, "open: between is not for type bool"),
        ({"price": None}, WrongType, "price: expected a number, got None"),
        ({"price": [1, 2]}, WrongType, "price: expected a number, got"),
        ({"price": {"in": 5}}, WrongType, "price: in takes a list, got 5"),
        ({"price": {"between": [1]}}, WrongType, "price: between takes two values"),
        ({"price": {"between": [1, 2, 3]}}, WrongType, "price: between takes two values"),
        ({"price": {"between": {"low": 1}}}, WrongType, "price: between takes a list"),
        ({"symbol": {"prefix": 5}}, WrongType, "symbol: expected text, got 5"),
        ({"symbol": {"prefix": "\ud800"}}, WrongType, "symbol: expected text without"),
        ({"volume": 5.5}, WrongType, "volume: expected a whole number, got 5.5"),
        ({"volume": {"ne": 5.5}}, WrongType, "volume: expected a whole number"),
        ({"volume": {"in": [5.5]}}, WrongType, "volume: expected a whole number"),
        ({"volume": {"lt": "5"}}, WrongType, "volume: expected a whole number"),
        ({"volume": {"lt": True}}, WrongType, "volume: expected a whole number"),
        ({"volume": {"lt": 10_001}}, OutsideDomain, "volume: expected a value from 0 to 10000"),
        ({"volume": {"lt": 10_000.5}}, OutsideDomain, "volume: .* got 10000.5"),
        ({"level": {"gt": "best"}}, OutsideDomain, "level: expected one of low, mid, high, top"),
        ({"price": {"gt": math.nan}}, NotFinite, "price: nan"),
        ({"volume": {"gt": math.inf}}, NotFinite, "volume: inf"),
        ({"volume": {"between": [5, 3]}}, EmptyRange, "volume: nothing is between 5 and 3"),
        ({"volume": {"between": [1.2, 1.8]}}, EmptyRange, "volume: nothing is between 1.2 and"),
        ({"level": {"between": ["top", "low"]}}, EmptyRange, "level: nothing is between"),
        ({"volume": {"in": []}}, EmptyRange, "volume: in needs values"),
        ({"volume": {"in": [1] * (MAX_VALUES + 1)}}, BadFilter, "volume: in takes at most 4096"),
        ([{"price": 5}, {"price": {"lt": "x"}}], WrongType, "at index 1: price: expected a number"),
    ],
)
def test_an_error_names_the_bad_filter_and_the_mistake(
    source: object, error: type[FieldError], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        parse_filter(STOCKS, source)
    assert type(caught.value) is error
    if caught.value.attribute in STOCKS.positions:
        assert f"{caught.value.attribute}: " in str(caught.value)


def test_errors_in_a_list_know_their_place() -> None:
    with pytest.raises(OutsideDomain) as caught:
        parse_filter(STOCKS, [{}, {}, {"price": -1}])
    assert (caught.value.index, caught.value.attribute) == (2, "price")
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301
    assert (again.index, again.attribute, str(again)) == (2, "price", str(caught.value))


@pytest.mark.parametrize(
    "source",
    [
        [],
        {"volume": {"lt": 5, "gt": 7}},
        {"volume": {"lt": 0}},
        {"symbol": {"prefix": "A", "eq": "B"}},
        [{"volume": {"lt": 0}}, {"price": {"lt": 0}}],
        "false",
        "not true",
        "price < 5 and price > 5",
    ],
)
def test_a_filter_that_matches_nothing_is_refused(source: object) -> None:
    with pytest.raises(EmptyFilter, match="no event can match"):
        parse_filter(STOCKS, source)


def diagonal(count: int) -> list[object]:
    return [{"at": i, "volume": i} for i in range(count)]


def test_as_many_conjunctions_as_allowed_pass() -> None:
    found = parse_filter(STOCKS, diagonal(MAX_CONJUNCTIONS))
    assert len(found.any) == MAX_CONJUNCTIONS
    assert parse_filter(STOCKS, filter_text(STOCKS, found)) == found


@pytest.mark.parametrize("count", [MAX_CONJUNCTIONS + 1, 300, MAX_LIST])
def test_too_many_conjunctions_in_a_list_are_refused(count: int) -> None:
    with pytest.raises(TooManyConjunctions, match="more than 64"):
        parse_filter(STOCKS, diagonal(count))


def test_a_list_may_be_long_if_it_simplifies() -> None:
    found = parse_filter(STOCKS, [{"volume": i} for i in range(MAX_LIST)])
    assert found == parse_filter(STOCKS, {"volume": {"lt": MAX_LIST}})
    with pytest.raises(TooManyConjunctions, match="at most 1024 objects, got 1025"):
        parse_filter(STOCKS, [{}] * (MAX_LIST + 1))


FLAGS = Space("flags", tuple(Attribute(f"x{i}", "int", min=0, max=99) for i in range(90)))


def test_an_exponential_expansion_is_refused_while_it_grows() -> None:
    ors = " and ".join(f"(x{2 * i} < 5 or x{2 * i + 1} < 5)" for i in range(45))
    ands = " or ".join(f"x{2 * i} < 5 and x{2 * i + 1} < 5" for i in range(45))
    for text in (ors, f"not ({ands})", f"not not ({ors})", f"({ors}) and ({ors})"):
        with pytest.raises(TooManyConjunctions):
            parse_filter(FLAGS, text)


def test_what_a_later_condition_rules_out_does_not_count() -> None:
    many = " or ".join(f"x0 == {i} and x1 == {i}" for i in range(90))
    found = parse_filter(FLAGS, f"({many}) and x0 == 7")
    assert found == parse_filter(FLAGS, {"x0": 7, "x1": 7})


def test_repetition_is_harmless() -> None:
    part = "(x0 < 5 or x1 < 5) and (x2 < 5 or x3 < 5) and (x4 < 5 or x5 < 5)"
    found = parse_filter(FLAGS, " and ".join([f"({part})"] * 50))
    assert found == parse_filter(FLAGS, part)
    assert len(found.any) == 8


# The same, for any space, any filter and any event.

LETTERS = "ab\0\x7f\x80éß\uffff\U0010ffff"
FLOATS = [-1.5, -0.0, 0, 1, 0.1, 0.3, math.nextafter(0.1, 1), math.nextafter(0.3, 0), 5e-324, 2.5]
MOMENTS = [0, 1, 1.5, 3, "1970-01-01T00:00:02Z", "1970-01-01T01:00:01.000001+01:00"]
SIGNS = {"eq": "==", "ne": "!=", "lt": "<", "lte": "<=", "gt": ">", "gte": ">="}
FLIPPED = {"eq": "=", "ne": "!=", "lt": ">", "lte": ">=", "gt": "<", "gte": "<="}
ATTRIBUTES: dict[str, Callable[[str], st.SearchStrategy[Attribute]]] = {
    "int": lambda name: st.builds(
        lambda low, size: Attribute(name, "int", min=low, max=low + size),
        st.integers(-3, 3),
        st.integers(1, 8),
    ),
    "float": lambda name: st.just(Attribute(name, "float", min=-1.5, max=2.5)),
    "enum": lambda name: st.integers(1, 5).map(
        lambda count: Attribute(name, "enum", values=tuple('zayé"'[:count]))
    ),
    "string": lambda name: st.just(Attribute(name, "string")),
    "bool": lambda name: st.just(Attribute(name, "bool")),
    "time": lambda name: st.just(Attribute(name, "time", min=0, max=3)),
}
spaces = (
    st.lists(st.sampled_from(list(ATTRIBUTES)), min_size=1, max_size=4)
    .flatmap(
        lambda kinds: st.tuples(
            *(ATTRIBUTES[kind](name) for name, kind in zip("abcd", kinds, strict=False))
        )
    )
    .map(lambda attributes: Space("s", attributes))
)


def values(attribute: Attribute) -> st.SearchStrategy[Any]:
    match attribute.type:
        case "int":
            low: Any = attribute.min
            high: Any = attribute.max
            return st.integers(low, high)
        case "float":
            return st.sampled_from(FLOATS)
        case "enum":
            return st.sampled_from(attribute.values or ())
        case "string":
            return st.text(LETTERS, max_size=3)
        case "bool":
            return st.booleans()
        case "time":
            return st.sampled_from(MOMENTS)


def events(space: Space) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({a.name: values(a) for a in space.attributes})


def ordered(attribute: Attribute, value: Any) -> Any:
    """The value in a form that Python compares as the filter language should."""
    match attribute.type:
        case "enum":
            assert attribute.values is not None
            return attribute.values.index(value)
        case "string":
            return value.encode()
        case "time" if isinstance(value, str):
            return (
                datetime.fromisoformat(value) - datetime(1970, 1, 1, tzinfo=UTC)
            ).total_seconds()
    return value


@dataclass(frozen=True)
class Claim:
    """One condition; `flipped` has the value on the left where the expression allows it."""

    attribute: Attribute
    operator: str
    operand: Any
    flipped: bool

    def holds(self, event: dict[str, Any]) -> bool:
        found = ordered(self.attribute, event[self.attribute.name])
        if self.operator in ("in", "between"):
            wanted = [ordered(self.attribute, value) for value in self.operand]
            return found in wanted if self.operator == "in" else wanted[0] <= found <= wanted[1]
        wanted = ordered(self.attribute, self.operand)
        match self.operator:
            case "eq":
                return bool(found == wanted)
            case "ne":
                return bool(found != wanted)
            case "lt":
                return bool(found < wanted)
            case "lte":
                return bool(found <= wanted)
            case "gt":
                return bool(found > wanted)
            case "gte":
                return bool(found >= wanted)
        return bool(found.startswith(wanted))

    def text(self) -> str:
        name = self.attribute.name
        if self.operator == "in":
            return f"{name} in {json.dumps(self.operand)}"
        if self.operator == "between":
            return f"{name} BETWEEN {json.dumps(self.operand[0])} and {json.dumps(self.operand[1])}"
        literal = json.dumps(self.operand)
        if self.operator == "prefix":
            return f"{name} prefix {literal}"
        if self.flipped:
            return f"{literal} {FLIPPED[self.operator]} {name}"
        return f"{name} {SIGNS[self.operator]} {literal}"


@dataclass(frozen=True)
class Tree:
    """`and`, `or` or `not` of some parts."""

    word: str
    parts: "Sequence[Claim | Tree]"

    def holds(self, event: dict[str, Any]) -> bool:
        found = [part.holds(event) for part in self.parts]
        return {"and": all(found), "or": any(found), "not": not found[0]}[self.word]

    def text(self) -> str:
        texts = [f"({part.text()})" for part in self.parts]
        return f"not {texts[0]}" if self.word == "not" else f" {self.word} ".join(texts)


@st.composite
def claims(draw: st.DrawFn, space: Space) -> Claim:
    attribute = draw(st.sampled_from(space.attributes))
    allowed = ["eq", "ne", "in"]
    if attribute.type != "bool":
        allowed += ["lt", "lte", "gt", "gte", "between"]
    if attribute.type == "string":
        allowed.append("prefix")
    operator = draw(st.sampled_from(allowed))
    exact = values(attribute)
    if attribute.type == "int" and operator not in ("eq", "ne", "in"):
        low: Any = attribute.min
        high: Any = attribute.max
        exact |= st.integers(2 * low, 2 * high).map(lambda twice: twice / 2)
    operand = draw(exact)
    if operator == "in":
        operand = [operand, *draw(st.lists(exact, max_size=3))]
    elif operator == "between":
        operand = sorted([operand, draw(exact)], key=lambda value: ordered(attribute, value))
        assume(attribute.type != "int" or math.ceil(operand[0]) <= operand[1])
    return Claim(attribute, operator, operand, draw(st.booleans()))


def trees(space: Space) -> st.SearchStrategy[Claim | Tree]:
    return st.recursive(
        claims(space),
        lambda inner: (
            st.builds(Tree, st.just("not"), st.tuples(inner))
            | st.builds(
                Tree, st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3)
            )
        ),
        max_leaves=6,
    )


@st.composite
def cases(
    draw: st.DrawFn, count: int = 1
) -> tuple[Space, list[Claim | Tree], list[dict[str, Any]]]:
    space = draw(spaces)
    drawn = [draw(trees(space)) for _ in range(count)]
    return space, drawn, draw(st.lists(events(space), min_size=1, max_size=6))


def parsed(space: Space, source: object) -> Filter | None:
    """The filter, or None where nothing can match; a random one may have too many alternatives."""
    try:
        return parse_filter(space, source)
    except EmptyFilter:
        return None
    except TooManyConjunctions:
        assume(False)
        raise


def assert_normal_form(space: Space, found: Filter) -> None:
    assert 1 <= len(found.any) <= MAX_CONJUNCTIONS
    for conjunction in found.any:
        for name, ranges in conjunction.ranges.items():
            domain = space.attribute(name).domain
            assert ranges
            assert ranges == normal(ranges)
            assert ranges != (domain,)
            assert covers((domain,), ranges)
    for one, other in combinations(found.any, 2):
        assert not one.covers(other)
        assert not other.covers(one)
        if one.ranges.keys() == other.ranges.keys():
            assert sum(one.ranges[name] != other.ranges[name] for name in one.ranges) > 1


@settings(max_examples=60, deadline=None)
@given(cases())
def test_an_expression_matches_the_right_events(
    case: tuple[Space, list[Claim | Tree], list[dict[str, Any]]],
) -> None:
    space, (tree,), drawn = case
    for wanted in (tree, Tree("not", (tree,))):
        found = parsed(space, wanted.text())
        for event in drawn:
            matched = found is not None and found.matches(space.keys(event))
            assert matched == wanted.holds(event)


@settings(max_examples=50, deadline=None)
@given(cases())
def test_any_filter_is_in_normal_form_and_its_words_mean_the_same(
    case: tuple[Space, list[Claim | Tree], list[dict[str, Any]]],
) -> None:
    space, (tree,), _ = case
    found = parsed(space, tree.text())
    assume(found is not None)
    assert found is not None
    assert_normal_form(space, found)
    assert parse_filter(space, filter_text(space, found)) == found
    for conjunction in found.any:
        assert parse_filter(space, conjunction_text(space, conjunction)).any == (conjunction,)


@st.composite
def objects(draw: st.DrawFn, space: Space) -> list[list[Claim]]:
    drawn = draw(st.lists(st.lists(claims(space), max_size=4), min_size=1, max_size=4))
    return [
        list({(claim.attribute.name, claim.operator): claim for claim in part}.values())
        for part in drawn
    ]


@settings(max_examples=50, deadline=None)
@given(spaces.flatmap(lambda s: st.tuples(st.just(s), objects(s), st.lists(events(s), max_size=6))))
def test_a_list_of_objects_matches_the_right_events_in_any_order(
    case: tuple[Space, list[list[Claim]], list[dict[str, Any]]],
) -> None:
    space, parts, drawn = case
    source: list[dict[str, dict[str, Any]]] = []
    for part in parts:
        source.append({})
        for claim in part:
            source[-1].setdefault(claim.attribute.name, {})[claim.operator] = claim.operand
    found = parsed(space, source)
    assert parsed(space, source[::-1]) == found
    if found is not None:
        assert_normal_form(space, found)
    for event in drawn:
        matched = found is not None and found.matches(space.keys(event))
        assert matched == any(all(claim.holds(event) for claim in part) for part in parts)


@settings(max_examples=50, deadline=None)
@given(cases(count=2))
def test_covering_is_never_claimed_wrongly(
    case: tuple[Space, list[Claim | Tree], list[dict[str, Any]]],
) -> None:
    space, (one, other), drawn = case
    outer, both = parsed(space, one.text()), parsed(space, Tree("and", (one, other)).text())
    inner = parsed(space, other.text())
    if outer is None:
        assert both is None
        return
    assert outer.covers(outer)
    for wanted in (inner, both):
        if wanted is not None and outer.covers(wanted):
            keys = [space.keys(event) for event in drawn]
            assert all(outer.matches(key) for key in keys if wanted.matches(key))
    if both is not None and len(outer.any) == 1:
        assert outer.covers(both)


SQUARE = Space("square", (Attribute("x", "int", min=0, max=4), Attribute("y", "int", min=0, max=4)))
sides = st.sets(st.integers(0, 4), min_size=1)


@given(sides, sides, sides, sides)
def test_covering_is_exact_for_single_conjunctions(
    x: set[int], y: set[int], x2: set[int], y2: set[int]
) -> None:
    outer = parse_filter(SQUARE, {"x": {"in": [*x]}, "y": {"in": [*y]}})
    inner = parse_filter(SQUARE, {"x": {"in": [*x2]}, "y": {"in": [*y2]}})
    points = list(product(range(5), repeat=2))
    wanted = all(outer.matches(point) for point in points if inner.matches(point))
    assert outer.covers(inner) == wanted


names = st.sampled_from([*STOCKS.positions, "prise"])
operators = st.sampled_from(["eq", "ne", "lt", "gte", "in", "between", "prefix", "like"])
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-5, 2_000)
    | st.floats()
    | st.sampled_from([10**400, "ACME", "mid", "2024-01-01T00:00:00Z"])
    | st.text(st.characters(codec=None), max_size=3)
)
operands = scalars | st.lists(scalars, max_size=4)
anything = st.recursive(
    operands,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(names | st.text(max_size=2), inner, max_size=3)
        | st.dictionaries(names, st.dictionaries(operators, operands, max_size=2), max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=100, deadline=None)
@given(anything)
@example([[[[[[]]]]]])
@example({"price": {"in": [[[]]]}})
def test_anything_else_is_refused_as_bad_input(source: object) -> None:
    try:
        found = parse_filter(STOCKS, source)
    except BadInput as error:
        str(error).encode()
    else:
        assert_normal_form(STOCKS, found)


@settings(max_examples=100, deadline=None)
@given(cases())
def test_the_bound_on_work_refuses_filters_but_never_changes_them(
    case: tuple[Space, list[Claim | Tree], list[dict[str, Any]]],
) -> None:
    space, (tree,), _ = case
    for source in (tree.text(), f"not ({tree.text()})"):
        try:
            bounded = parse_filter(space, source, work=50)
        except BadInput:
            continue
        assert parse_filter(space, source, work=10**9) == bounded


def calls_of(action: Callable[[], object]) -> int:
    """How many calls of Python functions an action makes: what it costs, on any machine."""
    count = 0

    def called(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(called)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count


WIDE = " and ".join(f"(x{i % 90} < {i % 50 + 2} or x{(i + 1) % 90} < 5)" for i in range(59))


@pytest.mark.parametrize(
    "source",
    [
        WIDE,
        f"not ({WIDE.replace(' or ', ' xor ').replace(' and ', ' or ').replace(' xor ', ' and ')})",
        [{f"x{i % 90}": i % 100, f"x{i % 89 + 1}": {"in": [i % 100, 7]}} for i in range(MAX_LIST)],
        [{f"x{i}": {"in": list(range(0, 99, 2)) * 80}} for i in range(60)],
    ],
)
def test_a_filter_that_is_refused_has_cost_little(source: object) -> None:
    def refused() -> None:
        with pytest.raises(TooManyConjunctions):
            parse_filter(FLAGS, source)

    refused()  # the parser of expressions is made by the first use
    assert calls_of(refused) < 150_000


def test_very_many_values_in_all_are_refused_before_they_are_worked_on() -> None:
    many = [{"volume": {"in": list(range(i, 4_096 + i))}} for i in range(1_000)]
    with pytest.raises(TooManyConjunctions):
        parse_filter(STOCKS, many)
