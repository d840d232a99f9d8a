"""Both kinds of index: nothing wanted is lost, budgets are kept, words say what a region is."""

import math
import warnings
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dzflow.attribute import Attribute
from dzflow.errors import LossWarning
from dzflow.filters import Conjunction, parse_filter
from dzflow.index import FieldsIndex, Index, Sampled, build_index, learn_shapes
from dzflow.index.axes import NumberAxis, OrderAxis
from dzflow.index.fields import BadShape
from dzflow.region import Region
from dzflow.space import Space

ATTRIBUTES: list[dict[str, Any]] = [
    {"name": "price", "type": "float", "min": 0, "max": 1000},
    {"name": "volume", "type": "int", "min": 0, "max": 10**9, "scale": "log"},
    {"name": "symbol", "type": "string"},
    {"name": "side", "type": "enum", "values": ["buy", "sell", "short"]},
    {"name": "open", "type": "bool"},
    {"name": "at", "type": "time", "min": "2020-01-01T00:00:00Z", "max": "2030-01-01T00:00:00Z"},
]


def space(kind: str, attributes: Sequence[dict[str, Any]] = ATTRIBUTES, **index: Any) -> Space:
    settings: dict[str, Any] = {"kind": kind, **index}
    return Space.from_json("quotes", {"attributes": attributes, "index": settings})


def quiet_index(of: Space) -> Index:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LossWarning)
        return build_index(of)


INDEXES = {kind: quiet_index(space(kind, budget=6)) for kind in ("fields", "zorder")}
kinds = pytest.mark.parametrize("kind", ["fields", "zorder"])

times = st.integers(0, 10 * 365 * 86400).map(lambda s: 1577836800 + s)
words = st.text("abAZ09é", max_size=5)
values: dict[str, st.SearchStrategy[Any]] = {
    "price": st.one_of(st.floats(0, 1000), st.sampled_from([0, 250, 500, 1000])),
    "volume": st.one_of(st.integers(0, 10**9), st.integers(0, 100)),
    "symbol": words,
    "side": st.sampled_from(["buy", "sell", "short"]),
    "open": st.booleans(),
    "at": times,
}
events = st.fixed_dictionaries(values)


def conditions(name: str) -> st.SearchStrategy[dict[str, Any]]:
    value = values[name]
    forms = [value.map(lambda v: {"eq": v}), st.lists(value, min_size=1, max_size=3).map(_in)]
    if name not in ("open", "side"):
        forms += [value.map(lambda v: {"gte": v}), value.map(lambda v: {"lte": v})]
        pairs = st.tuples(value, value)
        forms.append(pairs.map(lambda p: {"between": sorted(p, key=_byte_order)}))
    if name == "symbol":
        forms.append(words.map(lambda v: {"prefix": v}))
    return st.one_of(forms)


def _in(found: list[Any]) -> dict[str, Any]:
    return {"in": found}


def _byte_order(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


conjunctions = st.fixed_dictionaries({}, optional={name: conditions(name) for name in values})
sources = st.lists(conjunctions, min_size=1, max_size=3)


@kinds
@given(source=sources, event=events)
def test_an_event_that_matches_lies_in_a_region(
    kind: str, source: list[dict[str, Any]], event: dict[str, Any]
) -> None:
    index = INDEXES[kind]
    wanted = parse_filter(index.space, source)
    keys = index.space.keys(event)
    regions = index.regions(wanted)
    if wanted.matches(keys):
        assert any(region.holds(index.point(keys)) for region in regions)


@kinds
@given(source=sources)
def test_a_filter_gets_no_more_regions_than_its_budget(
    kind: str, source: list[dict[str, Any]]
) -> None:
    index = INDEXES[kind]
    wanted = parse_filter(index.space, source)
    regions = index.regions(wanted)
    assert 1 <= len(regions) <= max(6, len(wanted.any))
    assert not any(a != b and a.covers(b) for a in regions for b in regions)
    assert 0 <= index.unwanted(wanted) <= 1


@given(source=sources)
def test_regions_of_fields_have_shapes_of_the_dictionary(source: list[dict[str, Any]]) -> None:
    index = INDEXES["fields"]
    assert isinstance(index, FieldsIndex)
    masks = {index.mask(shape) for shape in index.shapes}
    assert len(index.shapes) <= index.space.index.shapes
    assert {r.mask for r in index.regions(parse_filter(index.space, source))} <= masks


@given(box=conjunctions, budget=st.integers(1, 20))
def test_a_cover_uses_the_shape_that_lets_the_least_through(
    box: dict[str, Any], budget: int
) -> None:
    index = INDEXES["fields"]
    assert isinstance(index, FieldsIndex)
    (part,) = parse_filter(index.space, box).any
    wanted = index.box(part)

    def rank(shape: Sequence[int]) -> tuple[float, int]:
        """What cells of a shape let through, and how many there are; all shapes are tried."""
        fixed = [(number, length) for number, length in enumerate(shape) if length]
        if any(number not in wanted for number, _ in fixed):
            return 2.0, 0
        sizes = [index.side(number, length, wanted[number]).size for number, length in fixed]
        count = math.prod(sizes)
        return (count * 0.5 ** sum(shape), count) if count <= budget else (2.0, 0)

    cover = index.cover(wanted, budget)
    assert (sum(0.5 ** r.mask.bit_count() for r in cover), len(cover)) == min(
        map(rank, index.shapes)
    )


@given(source=sources)
def test_regions_of_zorder_are_dzs(source: list[dict[str, Any]]) -> None:
    index = INDEXES["zorder"]
    assert all(r.is_dz for r in index.regions(parse_filter(index.space, source)))


@kinds
@given(event=events, size=st.integers(0, 30))
def test_an_event_lies_within_the_words_for_its_region(
    kind: str, event: dict[str, Any], size: int
) -> None:
    index = INDEXES[kind]
    keys = index.space.keys(event)
    point = index.point(keys)
    shapes = index.shapes if isinstance(index, FieldsIndex) else ()
    masks = [index.mask(s) for s in shapes] if isinstance(index, FieldsIndex) else []
    mask = masks[size % len(masks)] if masks else Region.parse("1" * size).mask
    said = index.conjunction(Region(point & mask, mask))
    positions = index.space.positions
    for name, ranges in said.ranges.items():
        assert any(
            low <= keys[positions[name]] and (high is None or keys[positions[name]] < high)  # type: ignore[operator]
            for low, high in ranges
        )


def test_words_of_a_region_are_ranges_of_values() -> None:
    small = space("fields", [{"name": "x", "type": "int", "min": 0, "max": 15}])
    index = build_index(small, shapes=[(2,)])
    assert index.conjunction(Region.parse("01")) == Conjunction({"x": ((4, 8),)})


@kinds
def test_the_whole_space_is_one_region(kind: str) -> None:
    index = INDEXES[kind]
    everything = parse_filter(index.space, {})
    assert index.regions(everything) == (Region(0, 0),)
    assert index.unwanted(everything) == 0


@kinds
def test_a_filter_on_whole_cells_lets_nothing_unwanted_through(kind: str) -> None:
    small = space(kind, [{"name": "x", "type": "int", "min": 0, "max": 15}])
    index = build_index(small)
    assert index.unwanted(parse_filter(small, "x >= 8")) == 0


def test_equality_distinguishes_strings_with_the_same_beginning() -> None:
    index = INDEXES["fields"]
    wanted = index.regions(parse_filter(index.space, 'symbol == "ACMEA"'))
    base = {"price": 1, "volume": 1, "side": "buy", "open": True, "at": 1600000000}
    others = [index.point(index.space.keys({**base, "symbol": f"ACME{c}"})) for c in "BCDEFGH"]
    assert sum(any(r.holds(p) for r in wanted) for p in others) <= 1


def test_a_prefix_of_a_string_keeps_other_beginnings_out() -> None:
    index = INDEXES["fields"]
    wanted = index.regions(parse_filter(index.space, 'symbol prefix "AC"'))
    base = {"price": 1, "volume": 1, "side": "buy", "open": True, "at": 1600000000}
    points = {s: index.point(index.space.keys({**base, "symbol": s})) for s in ("ACME", "ZORK")}
    assert any(r.holds(points["ACME"]) for r in wanted)
    assert not any(r.holds(points["ZORK"]) for r in wanted)


# Codes


@given(
    st.integers(-(10**6), 10**6),
    st.integers(1, 10**6),
    st.integers(1, 24),
    st.sampled_from(["linear", "log"]),
    st.sampled_from(["int", "float"]),
    st.lists(st.floats(0, 1), min_size=2, max_size=6),
)
def test_codes_never_fall_and_spans_hold_their_values(
    low: int, size: int, width: int, scale: str, kind: str, shares: list[float]
) -> None:
    attribute = Attribute(name="x", type=kind, min=low, max=low + size, scale=scale)  # type: ignore[arg-type]
    axis = NumberAxis(attribute, width)
    found = sorted(low + share * size for share in shares)
    keys = [attribute.key(int(v) if kind == "int" else min(v, low + size)) for v in found]
    codes = [axis.code(key) for key in keys]
    assert codes == sorted(codes)
    assert 0 <= codes[0] <= codes[-1] < 1 << width
    assert axis.code(attribute.key(low)) == 0
    upper = keys[-1] + 1 if kind == "int" else math.nextafter(keys[-1], math.inf)  # type: ignore[operator,arg-type]
    ((first, last),) = axis.spans(((keys[0], upper),))
    assert (first, last) == (codes[0], codes[-1])
    for key, code in zip(keys, codes, strict=True):
        ranges = axis.ranges((code, code))
        assert ranges
        assert ranges[0][0] <= key < ranges[0][1]  # type: ignore[operator]


odd_strings = st.text("09AZaz:[{-./~|é\0", max_size=5)


@given(odd_strings, odd_strings, st.integers(1, 30))
def test_codes_of_strings_never_fall(one: str, other: str, width: int) -> None:
    axis = OrderAxis(Attribute(name="x", type="string"), width)
    low, high = sorted((one.encode(), other.encode()))
    assert 0 <= axis.code(low) <= axis.code(high) < 1 << width
    for bound in (high, high + b"\0", None):
        if bound is None or low < bound:
            ((first, last),) = axis.spans(((low, bound),))
            assert first <= axis.code(low) <= last
            if bound != high:
                assert first <= axis.code(high) <= last


@given(odd_strings, st.integers(1, 30))
def test_a_string_lies_in_the_words_for_its_code(text: str, width: int) -> None:
    axis = OrderAxis(Attribute(name="x", type="string"), width)
    key = text.encode()
    ranges = axis.ranges((axis.code(key), axis.code(key)))
    assert ranges
    ((low, high),) = ranges
    assert low <= key  # type: ignore[operator]
    assert high is None or key < high  # type: ignore[operator]


@kinds
@given(data=st.data())
def test_events_at_the_edges_of_a_filter_on_odd_strings_are_not_lost(
    kind: str, data: st.DataObject
) -> None:
    index = INDEXES[kind]
    one, other = sorted((data.draw(odd_strings), data.draw(odd_strings)), key=_byte_order)
    form = data.draw(
        st.sampled_from([{"between": [one, other]}, {"prefix": one}, {"gte": one}, {"eq": one}])
    )
    wanted = parse_filter(index.space, {"symbol": form})
    regions = index.regions(wanted)
    base = {"price": 1, "volume": 1, "side": "buy", "open": True, "at": 1600000000}
    for symbol in (one, other, one + "Z", one + "~", one + "\0", other[:-1]):
        keys = index.space.keys({**base, "symbol": symbol})
        if wanted.matches(keys):
            assert any(region.holds(index.point(keys)) for region in regions)


@pytest.mark.parametrize(
    ("low", "high", "kind"),
    [(0, 1e-17, "float"), (10**15, 10**15 + 1, "int"), (-5, 5, "float"), (0, 1, "int")],
)
def test_a_log_scale_on_any_domain_has_codes(low: float, high: float, kind: str) -> None:
    attribute = Attribute(name="x", type=kind, min=low, max=high, scale="log")  # type: ignore[arg-type]
    axis = NumberAxis(attribute, 8)
    codes = [axis.code(attribute.key(value)) for value in (low, high)]
    assert codes[0] == 0
    assert codes[1] > 0


def test_a_log_scale_is_finer_for_small_values() -> None:
    axis = NumberAxis(Attribute(name="x", type="float", min=0, max=1, scale="log"), 8)
    assert axis.code(0.01) - axis.code(0.0) > axis.code(1.0) - axis.code(0.9)


def test_an_axis_with_enough_bits_distinguishes_all_whole_numbers() -> None:
    attribute = Attribute(name="x", type="int", min=5, max=1004)
    axis = NumberAxis(attribute, 10)
    assert len({axis.code(v) for v in range(5, 1005)}) == 1000


# What is lost


def test_a_schema_too_large_for_an_address_is_accepted_with_a_warning() -> None:
    ten = [{"name": f"a{n}", "type": "int", "min": 0, "max": 1023} for n in range(10)]
    with pytest.warns(LossWarning, match=r"does not fit into 96 bits.*a9 \(9 of 10 bits\)"):
        index = build_index(space("fields", ten), shapes=())
    assert sum(axis.width for axis in index.axes) == 96


def test_bits_that_the_user_chose_are_cut_last() -> None:
    three = [
        {"name": "a", "type": "int", "min": 0, "max": 2**40, "bits": 40},
        {"name": "b", "type": "int", "min": 0, "max": 2**40},
        {"name": "c", "type": "int", "min": 0, "max": 2**40},
    ]
    with pytest.warns(LossWarning):
        index = build_index(space("fields", three), shapes=())
    assert [axis.width for axis in index.axes] == [40, 28, 28]


# Shapes


def test_a_shape_that_does_not_fit_is_refused() -> None:
    small = space("fields", [{"name": "x", "type": "int", "min": 0, "max": 15}])
    for shape in [(5,), (1, 1), (-1,)]:
        with pytest.raises(BadShape, match="x 4"):
            build_index(small, shapes=[shape])


def test_a_dictionary_learned_from_filters_lets_less_through_for_them() -> None:
    many = [{"name": f"a{n}", "type": "int", "min": 0, "max": 255} for n in range(8)]
    of = space("fields", many, shapes=8)
    wanted = [
        parse_filter(of, f"a6 between {n} and {n + 9} and a7 == {n}") for n in range(0, 240, 8)
    ]
    general = build_index(of)
    learned = build_index(of, shapes=learn_shapes(of, map(Sampled, wanted)))
    assert isinstance(learned, FieldsIndex)
    assert len(learned.shapes) <= 8
    share = [sum(index.unwanted(f) for f in wanted) for index in (general, learned)]
    assert share[1] < share[0] / 2


def test_events_decide_which_shapes_are_worth_it() -> None:
    two = [{"name": n, "type": "int", "min": 0, "max": 255} for n in "xy"]
    of = space("fields", two, shapes=2)
    wanted = [parse_filter(of, "x < 64"), parse_filter(of, "y < 64")]
    # All traffic has a small x, so fixing bits of x would spare nobody anything.
    events = [of.keys({"x": 0, "y": n}) for n in range(256)]
    chosen = learn_shapes(of, map(Sampled, wanted), map(Sampled, events))
    assert [shape[0] for shape in chosen] == [0]
    assert chosen[0][1] > 0


def test_the_shape_that_most_subscriptions_need_is_chosen() -> None:
    two = [{"name": n, "type": "int", "min": 0, "max": 255} for n in "xy"]
    of = space("fields", two, shapes=2)
    on_x, on_y = parse_filter(of, "x < 64"), parse_filter(of, "y < 64")
    assert learn_shapes(of, [Sampled(on_x, 3.0), Sampled(on_y, 2.0)]) == ((2, 0),)
    assert learn_shapes(of, [Sampled(on_x, 3.0), Sampled(on_y, 4.0)]) == ((0, 2),)


def test_an_event_counts_as_many_times_as_it_was_published() -> None:
    two = [{"name": n, "type": "int", "min": 0, "max": 255} for n in "xy"]
    of = space("fields", two, shapes=2)
    wanted = [Sampled(parse_filter(of, text)) for text in ("x < 64", "y < 64")]
    outside_x, outside_y = of.keys({"x": 200, "y": 0}), of.keys({"x": 0, "y": 200})
    # Fixing bits of an attribute spares a subscriber the events that lie outside there.
    for often, rare, shape in ((outside_x, outside_y, (2, 0)), (outside_y, outside_x, (0, 2))):
        assert learn_shapes(of, wanted, [Sampled(often, 9.0), Sampled(rare, 1.0)]) == (shape,)


def test_typical_filters_keep_shapes_for_what_nobody_has_asked_for_yet() -> None:
    of = space("fields", [{"name": n, "type": "int", "min": 0, "max": 255} for n in "xy"])
    wanted = [Sampled(parse_filter(of, "x < 64"), 1000.0)]
    assert learn_shapes(of, wanted) == ((2, 0),)
    chosen = learn_shapes(of, wanted, typical=0.05, entry=1e-5)
    assert (2, 0) in chosen
    assert any(shape[0] == 0 and shape[1] for shape in chosen)


def test_a_known_shape_can_be_chosen_again() -> None:
    of = space("fields", [{"name": n, "type": "int", "min": 0, "max": 255} for n in "xy"])
    wanted = [Sampled(parse_filter(of, "x == 7 or x == 200"))]
    # Each part of the filter has half of the budget, so one cell of eight bits.
    assert (8, 0) in learn_shapes(of, wanted, known=[(8, 0), (0, 8)])
    assert (0, 8) not in learn_shapes(of, wanted, known=[(8, 0), (0, 8)])


def test_the_dictionary_does_not_touch_events() -> None:
    of = space("fields")
    keys = of.keys(
        {"price": 1, "volume": 2, "symbol": "A", "side": "buy", "open": True, "at": 1600000000}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LossWarning)
        assert build_index(of, shapes=()).point(keys) == INDEXES["fields"].point(keys)
