"""Whether a filter lies within others is decided exactly, also if several cover it together."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dzflow.attribute import Attribute
from dzflow.containment import TooHardToCompare, lies_within
from dzflow.errors import BadInput
from dzflow.filters import parse_filter
from dzflow.space import Space

SMALL = Space(
    "small",
    (
        Attribute("x", "int", min=0, max=5),
        Attribute("y", "int", min=0, max=5),
        Attribute("on", "bool"),
    ),
)
EVENTS = [
    SMALL.keys({"x": x, "y": y, "on": on})
    for x, y, on in product(range(6), range(6), (False, True))
]
STOCKS = Space(
    "stocks",
    (Attribute("price", "float", min=0, max=1000), Attribute("symbol", "string")),
)


def within(space: Space, inner: object, *outer: object) -> bool:
    parts = [part for source in outer for part in parse_filter(space, source).any]
    return lies_within(space, parse_filter(space, inner).any, parts)


@pytest.mark.parametrize(
    ("inner", "outer"),
    [
        ("price < 100", ["price < 500"]),
        ("price < 100", [{}]),
        ({}, ["price < 500", "price >= 500"]),
        ("price between 100 and 300", ["price < 200", "price >= 150"]),
        ('symbol == "ABC"', ['symbol prefix "AB"']),
        ('price < 10 or symbol == "X"', ['price < 20 or symbol prefix "X"']),
        ('symbol != "X"', ['symbol < "X"', 'symbol > "X"']),
    ],
)
def test_a_filter_lies_within(inner: object, outer: list[object]) -> None:
    assert within(STOCKS, inner, *outer)


@pytest.mark.parametrize(
    ("inner", "outer"),
    [
        ("price < 100", []),
        ("price < 501", ["price < 500"]),
        ({}, ["price < 500", "price > 500"]),
        ('symbol prefix "A"', ['symbol prefix "AB"']),
        ("price < 100", ['symbol == "X"']),
        ('price < 10 or symbol == "X"', ["price < 20"]),
    ],
)
def test_a_filter_does_not_lie_within(inner: object, outer: list[object]) -> None:
    assert not within(STOCKS, inner, *outer)


conditions = st.one_of(
    st.builds(
        lambda name, sign, value: f"{name} {sign} {value}",
        st.sampled_from(["x", "y"]),
        st.sampled_from(["<", ">=", "==", "!="]),
        st.integers(0, 5),
    ),
    st.sampled_from(["on == true", "on == false", "true"]),
)
texts = st.recursive(
    conditions,
    lambda parts: st.builds(
        lambda a, word, b: f"({a} {word} {b})", parts, st.sampled_from(["and", "or"]), parts
    ),
    max_leaves=6,
)


@given(texts, st.lists(texts, max_size=4))
def test_it_is_exact(inner: str, outer: list[str]) -> None:
    try:
        mine = parse_filter(SMALL, inner)
        others = [parse_filter(SMALL, text) for text in outer]
    except BadInput:
        return  # it matches nothing
    expected = all(
        any(other.matches(event) for other in others) for event in EVENTS if mine.matches(event)
    )
    parts = [part for other in others for part in other.any]
    assert lies_within(SMALL, mine.any, parts) == expected


def test_it_gives_up_rather_than_take_forever() -> None:
    flags = Space("flags", tuple(Attribute(f"x{i}", "int", min=0, max=9) for i in range(60)))
    halves = ({"lt": 5}, {"gte": 5})
    outer: list[object] = [{f"x{i}": 1, f"x{i + 1}": 1} for i in range(0, 56, 2)]
    outer += [{"x58": one, "x59": other} for one in halves for other in halves]
    assert within(flags, {}, *outer[-4:])
    with pytest.raises(TooHardToCompare):
        within(flags, {}, *outer)
