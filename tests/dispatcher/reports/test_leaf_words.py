"""Leaves of partition maps in words."""

import pytest

from dispatcher.reports.leaf_words import leaf_words
from dzflow.index import build_index
from dzflow.space import Space

SCHEMA = {
    "attributes": [
        {"name": "price", "type": "float", "min": 0, "max": 1000},
        {"name": "symbol", "type": "enum", "values": ["A", "B", "C", "D"]},
    ]
}


@pytest.mark.parametrize(
    ("leaf", "words"),
    [
        ("all", "everything"),
        ("0-0", "price < 500"),
        ("0-1.1-0", "500 <= price < 750"),
        ("0-x", "price not narrowed"),
        ("0-0.2-1", "parts of 125 <= price < 500"),
        ("0-0.1-x", "price < 500; price not narrowed further"),
    ],
)
def test_a_leaf_of_plan_legs_says_what_its_bits_mean(leaf: str, words: str) -> None:
    assert leaf_words(build_index(Space.from_json("stocks", SCHEMA)), leaf) == words


def test_a_leaf_of_plan_lpm_is_a_dz() -> None:
    space = Space.from_json("stocks", {**SCHEMA, "index": {"kind": "zorder"}})
    assert leaf_words(build_index(space), "0") == "price < 500"


def test_long_words_are_cut() -> None:
    values = [f"{'v' * 200}{number}" for number in range(2)]
    names = [f"{letter}name" for letter in "abcd"]
    attributes = [{"name": name, "type": "enum", "values": values} for name in names]
    index = build_index(Space.from_json("many", {"attributes": attributes}))
    assert len(leaf_words(index, "0-0.1-0.2-0.3-0")) == 300
