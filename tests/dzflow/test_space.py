"""Spaces: schemas, and values to keys and back."""

import json
import math
import pickle
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dzflow.attribute import (
    KEYWORDS,
    Attribute,
    BadSchema,
    FieldError,
    MissingAttribute,
    NotFinite,
    OutsideDomain,
    UnknownAttribute,
    WrongType,
)
from dzflow.errors import BadInput
from dzflow.space import IndexSettings, Space

HUGE = 10**5000  # more digits than Python prints

SCHEMA: dict[str, Any] = {
    "attributes": [
        {"name": "price", "type": "float", "min": 0.0, "max": 1000.0, "scale": "log", "bits": 20},
        {"name": "volume", "type": "int", "min": -5, "max": 10_000},
        {"name": "symbol", "type": "string"},
        {"name": "level", "type": "enum", "values": ["low", "mid", "high"]},
        {"name": "open", "type": "bool"},
        {
            "name": "at",
            "type": "time",
            "min": "2020-01-01T00:00:00Z",
            "max": "2030-01-01T00:00:00Z",
        },
    ],
    "index": {"kind": "zorder", "budget": 16, "shapes": 32},
}
STOCKS = Space.from_json("stocks", SCHEMA)
EVENT = {
    "price": 420,
    "volume": 7,
    "symbol": "ACME",
    "level": "mid",
    "open": True,
    "at": "2024-02-29T12:00:00+01:00",
}


def attribute(name: str) -> Attribute:
    return STOCKS.attribute(name)


def with_attribute(**members: object) -> object:
    return {"attributes": [{"name": "x", **members}]}


def test_a_schema_survives_the_way_through_json() -> None:
    assert STOCKS.to_json() == SCHEMA
    assert Space.from_json("stocks", json.loads(json.dumps(STOCKS.to_json()))) == STOCKS


def test_a_schema_has_one_form_however_it_was_written() -> None:
    loose = {
        "attributes": [
            {"name": "n", "type": "int", "min": 1.0, "max": 5, "scale": "linear", "bits": None},
            {"name": "t", "type": "time", "min": 0, "max": "1970-01-01T02:00:00+01:00"},
        ],
        "index": None,
    }
    assert Space.from_json("s", loose).to_json() == {
        "attributes": [
            {"name": "n", "type": "int", "min": 1, "max": 5},
            {
                "name": "t",
                "type": "time",
                "min": "1970-01-01T00:00:00Z",
                "max": "1970-01-01T01:00:00Z",
            },
        ],
        "index": {"kind": "fields", "budget": 8, "shapes": 64},
    }


def test_spaces_can_be_compared_hashed_and_pickled() -> None:
    again = pickle.loads(pickle.dumps(STOCKS))  # noqa: S301
    assert again == STOCKS
    assert hash(again) == hash(STOCKS)
    assert again.keys(EVENT) == STOCKS.keys(EVENT)
    assert Space.from_json("bonds", SCHEMA) != STOCKS


def test_domains_are_half_open_in_keys() -> None:
    assert attribute("price").domain == (0.0, math.nextafter(1000.0, math.inf))
    assert attribute("volume").domain == (-5, 10_001)
    assert attribute("symbol").domain == (b"", None)
    assert attribute("level").domain == (0, 3)
    assert attribute("open").domain == (0, 2)
    low, high = attribute("at").domain
    assert low == 1_577_836_800_000_000
    assert high == 1_893_456_000_000_001


def test_an_event_becomes_keys_in_the_order_of_the_attributes() -> None:
    noon = int(datetime(2024, 2, 29, 11, tzinfo=UTC).timestamp()) * 1_000_000
    assert STOCKS.keys(EVENT) == (420.0, 7, b"ACME", 1, 1, noon)


@pytest.mark.parametrize(
    ("name", "value", "key"),
    [
        ("volume", 5.0, 5),
        ("volume", -5, -5),
        ("volume", 10_000, 10_000),
        ("price", 1, 1.0),
        ("price", -0.0, 0.0),
        ("price", 1000, 1000.0),
        ("symbol", "", b""),
        ("symbol", "é" * 128, ("é" * 128).encode()),
        ("open", False, 0),
        ("at", 1.6e9, 1_600_000_000_000_000),
        ("at", 1_600_000_000.000001, 1_600_000_000_000_001),
        ("at", "2020-09-13T12:26:40Z", 1_600_000_000_000_000),
        ("at", datetime.fromtimestamp(1.6e9, timezone(timedelta(hours=9))), 1_600_000_000_000_000),
    ],
)
def test_values_have_keys(name: str, value: object, key: object) -> None:
    found = attribute(name).key(value)
    assert found == key
    assert type(found) is type(key)
    assert math.copysign(1, found) == 1 or found < 0 if isinstance(found, float) else True


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("price", "5", WrongType),
        ("price", True, WrongType),
        ("price", None, WrongType),
        ("price", math.nan, NotFinite),
        ("price", math.inf, NotFinite),
        ("price", 10**400, OutsideDomain),
        pytest.param("price", -HUGE, OutsideDomain, id="price-huge"),
        ("price", math.nextafter(1000.0, math.inf), OutsideDomain),
        ("price", -5e-324, OutsideDomain),
        ("volume", True, WrongType),
        ("volume", 5.5, WrongType),
        ("volume", "5", WrongType),
        ("volume", math.nan, NotFinite),
        ("volume", -math.inf, NotFinite),
        ("volume", 10_001, OutsideDomain),
        pytest.param("volume", HUGE, OutsideDomain, id="volume-huge"),
        ("volume", 1e300, OutsideDomain),
        ("symbol", 5, WrongType),
        ("symbol", b"ACME", WrongType),
        ("symbol", "\ud800", WrongType),
        ("symbol", "x" * 257, OutsideDomain),
        ("symbol", "é" * 129, OutsideDomain),
        ("level", 1, WrongType),
        ("level", "Mid", OutsideDomain),
        ("level", "\ud800", OutsideDomain),
        ("open", 1, WrongType),
        ("open", "true", WrongType),
        ("at", "yesterday", WrongType),
        ("at", "\ud800", WrongType),
        ("at", "2024-02-29", WrongType),
        ("at", "2024-02-29T12:00:00", WrongType),
        ("at", datetime(2024, 2, 29), WrongType),
        ("at", True, WrongType),
        ("at", [], WrongType),
        ("at", math.inf, NotFinite),
        ("at", 1.7e308, OutsideDomain),
        ("at", 10**400, OutsideDomain),
        ("at", "0001-01-01T00:00:00+14:00", OutsideDomain),
        ("at", "2019-12-31T23:59:59.999999Z", OutsideDomain),
    ],
)
def test_a_value_without_a_key_has_a_named_error(
    name: str, value: object, error: type[FieldError]
) -> None:
    with pytest.raises(error) as caught:
        attribute(name).key(value)
    assert type(caught.value) is error
    assert caught.value.attribute == name
    assert str(caught.value).startswith(f"{name}: ")
    assert len(str(caught.value).encode()) < 400


def test_an_unknown_enum_value_gets_a_suggestion() -> None:
    with pytest.raises(OutsideDomain, match=r"one of low, mid, high, got 'hihg'; .* 'high'\?"):
        attribute("level").key("hihg")


def test_a_long_enum_is_not_recited() -> None:
    many = Attribute("x", "enum", values=tuple(f"value{i}" for i in range(2_000)))
    with pytest.raises(OutsideDomain, match="one of the declared values"):
        many.key("other")


@given(st.floats(-1e300, 1e300), st.floats(-1e300, 1e300))
def test_keys_of_floats_keep_their_order(one: float, other: float) -> None:
    wide = Attribute("x", "float", min=-1e300, max=1e300)
    low: Any = wide.key(one)
    high: Any = wide.key(other)
    assert (low < high) == (one < other)
    assert wide.value(low) == one
    after: Any = wide.after(low)
    assert after > low
    assert not low < (low + after) / 2 < after


@given(st.text(), st.text())
def test_keys_of_strings_keep_the_order_of_code_points(one: str, other: str) -> None:
    symbol = attribute("symbol")
    low: Any = symbol.key(one[:50])
    high: Any = symbol.key(other[:50])
    assert (low < high) == (one[:50] < other[:50])
    assert symbol.value(low) == one[:50]


@given(st.datetimes(datetime(2020, 1, 1), datetime(2029, 12, 31)))
def test_times_come_back_as_text_of_the_same_moment(moment: datetime) -> None:
    moment = moment.replace(tzinfo=UTC)
    text = attribute("at").value(attribute("at").key(moment))
    assert isinstance(text, str)
    assert text.endswith("Z")
    assert datetime.fromisoformat(text) == moment
    assert attribute("at").key(text) == attribute("at").key(moment)


def test_values_come_back_in_the_form_of_json() -> None:
    values = [a.value(key) for a, key in zip(STOCKS.attributes, STOCKS.keys(EVENT), strict=True)]
    assert values == [420.0, 7, "ACME", "mid", True, "2024-02-29T11:00:00Z"]
    assert values[4] is True
    assert attribute("symbol").value(b"A\xff") == "A\ufffd"


def test_a_cut_lies_before_and_behind_a_value() -> None:
    assert attribute("volume").cut(5) == (5, 6)
    assert attribute("volume").cut(5.5) == (6, 6)
    assert attribute("volume").cut(-4.5) == (-4, -4)
    assert attribute("price").cut(1) == (1.0, math.nextafter(1.0, 2))
    assert attribute("symbol").cut("A") == (b"A", b"A\0")
    for value in (-5.5, 10_000.5):
        with pytest.raises(OutsideDomain):
            attribute("volume").cut(value)
    with pytest.raises(NotFinite):
        attribute("volume").cut(math.inf)


def test_an_event_must_name_every_attribute() -> None:
    with pytest.raises(MissingAttribute, match="lacks volume, at") as caught:
        STOCKS.keys({name: EVENT[name] for name in ("price", "symbol", "level", "open")})
    assert caught.value.attribute == "volume"


def test_an_event_may_name_nothing_else() -> None:
    with pytest.raises(UnknownAttribute, match="colour") as caught:
        STOCKS.keys({**EVENT, "colour": "red"})
    assert caught.value.attribute == "colour"


def test_a_misspelt_attribute_is_called_unknown_rather_than_missing() -> None:
    event = {("prise" if name == "price" else name): value for name, value in EVENT.items()}
    with pytest.raises(UnknownAttribute, match=r"it has price, .*did you mean 'price'\?"):
        STOCKS.keys(event)


@pytest.mark.parametrize("event", [None, [], "price", 5, [("price", 5)]])
def test_an_event_is_an_object(event: Any) -> None:
    with pytest.raises(WrongType, match="an event is an object"):
        STOCKS.keys(event)


@pytest.mark.parametrize("name", ["prise", "", "\ud800", "x" * 10_000, 5, None, ("price",)])
def test_an_unknown_name_is_reported_in_a_form_that_can_be_sent(name: object) -> None:
    with pytest.raises(UnknownAttribute) as caught:
        STOCKS.attribute(name)
    assert len(str(caught.value).encode()) < 400
    assert (caught.value.attribute or "").encode() is not None


NUMBER = {"type": "int", "min": 0, "max": 9}


@pytest.mark.parametrize(
    ("members", "member", "message"),
    [
        ({"type": "decimal"}, "type", "must be one of int, float"),
        ({"type": ["int"]}, "type", "must be one of int, float"),
        ({"type": "int", "max": 5}, "min", "type int needs min"),
        ({"type": "float", "min": 5}, "max", "type float needs max"),
        ({"type": "time"}, "min", "type time needs min"),
        ({"type": "string", "min": 5}, "min", "type string has no min"),
        ({"type": "bool", "max": True}, "max", "type bool has no max"),
        ({"type": "enum", "values": ["a"], "max": 1}, "max", "type enum has no max"),
        ({"type": "int", "min": 5, "max": 5}, "min", "less than max"),
        ({"type": "float", "min": 5, "max": 4.5}, "min", "less than max"),
        ({"type": "int", "min": 0.5, "max": 5}, "min", "whole number"),
        ({"type": "int", "min": "0", "max": 5}, "min", "whole number"),
        ({"type": "int", "min": False, "max": 5}, "min", "whole number"),
        ({"type": "int", "min": 0, "max": 2**64}, "max", "too far out"),
        ({"type": "int", "min": -HUGE, "max": 0}, "min", "too far out"),
        ({"type": "float", "min": math.nan, "max": 5}, "min", "not a finite number"),
        ({"type": "float", "min": 0, "max": math.inf}, "max", "not a finite number"),
        ({"type": "float", "min": 0, "max": 10**400}, "max", "too far out"),
        ({"type": "time", "min": "soon", "max": 5}, "min", "ISO 8601"),
        ({"type": "time", "min": 0, "max": 1e300}, "max", "too far out"),
        ({"type": "float", "min": 0, "max": 1e301}, "max", "too far out"),
        ({"type": "time", "min": 0, "max": 1.7e308}, "max", "too far out"),
        ({"type": "time", "min": "0001-01-01T00:00:00+01:00", "max": 0}, "min", "too far out"),
        ({"type": "enum"}, "values", "needs values"),
        ({"type": "enum", "values": []}, "values", "list of 1 to"),
        ({"type": "enum", "values": "abc"}, "values", "list of 1 to"),
        ({"type": "enum", "values": {"a": 1}}, "values", "list of 1 to"),
        ({"type": "enum", "values": ["a", 1]}, "values", "must be texts"),
        ({"type": "enum", "values": ["a", "\ud800"]}, "values", "must be texts"),
        ({"type": "enum", "values": ["a" * 257]}, "values", "must be texts"),
        ({"type": "enum", "values": ["a", "b", "a"]}, "values", "'a' more than once"),
        ({"type": "string", "values": ["a"]}, "values", "has no values"),
        ({**NUMBER, "scale": "cubic"}, "scale", "linear or log"),
        ({"type": "string", "scale": "log"}, "scale", "no log scale"),
        ({"type": "time", "min": 0, "max": 5, "scale": "log"}, "scale", "no log scale"),
        ({**NUMBER, "bits": 0}, "bits", "from 1 to 96"),
        ({**NUMBER, "bits": 97}, "bits", "from 1 to 96"),
        ({**NUMBER, "bits": True}, "bits", "from 1 to 96"),
        ({**NUMBER, "bits": 8.0}, "bits", "from 1 to 96"),
        ({**NUMBER, "maximum": 9}, "maximum", "no member 'maximum'.*did you mean 'max'"),
        ({"type": None}, "type", "needs a type"),
    ],
)
def test_an_error_names_the_bad_attribute_and_the_mistake(
    members: dict[str, object], member: str, message: str
) -> None:
    with pytest.raises(BadSchema, match=message) as caught:
        Space.from_json("s", with_attribute(**members))
    assert caught.value.attribute == "x"
    assert caught.value.member == member
    assert caught.value.index == 0
    assert len(str(caught.value).encode()) < 400


@pytest.mark.parametrize(
    "name",
    [
        "",
        "9x",
        "a b",
        "naïve",
        "x\n",
        "x" * 65,
        "\ud800",
        5,
        ["x"],
        *sorted(KEYWORDS),
        "AND",
        "Between",
    ],
)
def test_an_attributes_name_is_an_identifier_and_no_keyword(name: Any) -> None:
    with pytest.raises(BadSchema) as caught:
        Space.from_json("s", {"attributes": [{"name": name, "type": "bool"}]})
    assert caught.value.member == "name"
    assert len(str(caught.value).encode()) < 400


def test_an_attribute_needs_a_name() -> None:
    with pytest.raises(BadSchema, match="at index 1: an attribute needs a name"):
        Space.from_json("s", {"attributes": [{"name": "x", "type": "bool"}, {"type": "bool"}]})


def test_duplicate_names_are_rejected() -> None:
    twice = [{"name": "x", "type": "bool"}, {"name": "x", "type": "string"}]
    with pytest.raises(BadSchema, match="x: two attributes have this name"):
        Space.from_json("s", {"attributes": twice})


@pytest.mark.parametrize("count", [0, 97, 10_000])
def test_a_space_has_1_to_96_attributes(count: int) -> None:
    many = [{"name": f"x{i}", "type": "bool"} for i in range(count)]
    with pytest.raises(BadSchema, match="1 to 96"):
        Space.from_json("s", {"attributes": many})


@pytest.mark.parametrize("name", ["", "a/b", "a b", ".", "-", "x" * 65, None, 5, "\ud800"])
def test_a_spaces_name_can_stand_in_a_path(name: Any) -> None:
    with pytest.raises(BadSchema, match="a space's name"):
        Space.from_json(name, SCHEMA)


@pytest.mark.parametrize(
    ("index", "member"),
    [
        ({"kind": "tree"}, "index.kind"),
        ({"kind": ["fields"]}, "index.kind"),
        ({"budget": 0}, "index.budget"),
        ({"budget": 1_025}, "index.budget"),
        ({"budget": 8.0}, "index.budget"),
        ({"shapes": True}, "index.shapes"),
        ({"shapes": 4_097}, "index.shapes"),
        ({"budget": 1_024, "shapes": 65}, "index.shapes"),
        ({"shape": 3}, "shape"),
        ([], "index"),
        ("fields", "index"),
    ],
)
def test_bad_index_settings_are_named(index: object, member: str) -> None:
    with pytest.raises(BadSchema) as caught:
        Space.from_json("s", {**SCHEMA, "index": index})
    assert caught.value.member == member


def test_index_settings_have_defaults() -> None:
    assert Space.from_json("s", with_attribute(type="bool")).index == IndexSettings()
    assert IndexSettings() == IndexSettings("fields", 8, 64)


@pytest.mark.parametrize(
    "schema",
    [
        None,
        [],
        "x",
        {},
        {"attributes": {}},
        {"attributes": "x"},
        {"attributes": [5]},
        {"name": "s"},
    ],
)
def test_a_schema_is_an_object_with_attributes(schema: object) -> None:
    with pytest.raises(BadSchema):
        Space.from_json("s", schema)


def test_errors_survive_the_way_to_another_process() -> None:
    with pytest.raises(BadSchema) as caught:
        Space.from_json("s", with_attribute(type="int"))
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301
    assert str(again) == str(caught.value)
    assert (again.attribute, again.member, again.index) == ("x", "min", 0)
    with pytest.raises(UnknownAttribute) as unknown:
        STOCKS.attribute("prize")
    assert str(pickle.loads(pickle.dumps(unknown.value))) == str(unknown.value)  # noqa: S301


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.just(10**400)
words = st.sampled_from(
    ["name", "type", "min", "max", "values", "scale", "bits", "attributes", "index", "kind", "int",
     "float", "enum", "string", "bool", "time", "log", "x", "y"]
)  # fmt: skip
texts = words | st.text(st.characters(codec=None), max_size=4)
anything = st.recursive(
    scalars | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=8,
)
almost = st.fixed_dictionaries(
    {},
    optional={
        "name": texts,
        "type": st.sampled_from(["int", "float", "enum", "string", "bool", "time"]) | anything,
        "min": anything,
        "max": anything,
        "values": st.lists(texts, max_size=3) | anything,
        "scale": anything,
        "bits": st.integers(1, 96) | anything,
        "more": anything,
    },
)


@settings(max_examples=60)
@given(st.lists(almost, max_size=3), anything)
def test_any_other_schema_is_refused_as_bad_input(
    attributes: list[Mapping[str, object]], index: object
) -> None:
    for schema in ({"attributes": attributes}, {"attributes": attributes, "index": index}, index):
        try:
            space = Space.from_json("s", schema)
        except BadInput as error:
            str(error).encode()
        else:
            assert Space.from_json("s", space.to_json()) == space


@settings(max_examples=60)
@given(st.dictionaries(st.sampled_from(list(EVENT)), anything), anything)
def test_any_other_event_is_refused_as_bad_input(changes: dict[str, object], other: Any) -> None:
    for event in ({**EVENT, **changes}, changes, other):
        try:
            keys = STOCKS.keys(event)
        except BadInput as error:
            str(error).encode()
        else:
            assert len(keys) == len(STOCKS.attributes)


def test_a_refused_event_costs_no_search_for_similar_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Receivers refuse events of anyone; only who reads the message waits for the hint."""
    searches: list[object] = []

    def search(*given: object) -> str:
        searches.append(given)
        return ""

    monkeypatch.setattr("dzflow.attribute.near", search)
    monkeypatch.setattr("dzflow.space.near", search)
    values = [f"value {n}" for n in range(500)]
    schema = {"attributes": [{"name": "kind", "type": "enum", "values": values}]}
    space = Space.from_json("many", schema)
    for event in ({"kind": "value 5000"}, {"kinds": "value 5"}):
        with pytest.raises(BadInput) as caught:
            space.keys(event)
        assert searches == []
        assert str(caught.value)
        assert len(searches) == 1
        searches.clear()
