"""Which dictionary is proposed, and what is predicted: pure, without Spark."""

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from configurators.state.indexes import quiet_index
from dzflow.filters import EmptyFilter, Filter, parse_filter
from dzflow.index import FieldsIndex, Sampled, Shape
from dzflow.intervals import Key
from dzflow.space import Space
from spark.shapes.learning import (
    ENTRIES_PRICE,
    MIN_GAIN,
    MIN_GAIN_OF_ALL,
    Learned,
    find_reasons,
    learn,
    why_not,
)
from spark.shapes.model import Change, Prediction
from spark.shapes.prediction import EventIndex, cover, find_traffic

SPACE = Space.from_json(
    "test",
    {
        "attributes": [
            {"name": "x", "type": "int", "min": 0, "max": 63},
            {"name": "y", "type": "int", "min": 0, "max": 63},
            {"name": "colour", "type": "enum", "values": ["red", "green", "blue"]},
        ],
        "index": {"budget": 4, "shapes": 6},
    },
)


def index(*shapes: Shape) -> FieldsIndex:
    found = quiet_index(SPACE, 0, shapes)
    assert isinstance(found, FieldsIndex)
    return found


def keys(x: int, y: int, colour: str) -> tuple[Key, ...]:
    return SPACE.keys({"x": x, "y": y, "colour": colour})


def on(text: str, weight: float = 1.0) -> Sampled[Filter]:
    return Sampled(parse_filter(SPACE, text), weight)


VALUES = st.integers(0, 63)
COLOURS = st.sampled_from(["red", "green", "blue"])
WEIGHTS = st.floats(0.5, 100)
RANGES = st.tuples(st.sampled_from("xy"), VALUES, VALUES).map(
    lambda drawn: f"{drawn[0]} between {min(drawn[1:])} and {max(drawn[1:])}"
)
PARTS = st.lists(RANGES | COLOURS.map(lambda name: f'colour == "{name}"'), min_size=1, max_size=3)
TEXTS = st.lists(PARTS.map(lambda parts: f"({' and '.join(parts)})"), min_size=1, max_size=2).map(
    " or ".join
)


def _parses(text: str) -> bool:
    """Whether some event can match; ranges may exclude each other."""
    try:
        parse_filter(SPACE, text)
    except EmptyFilter:
        return False
    return True


FILTERS = st.lists(st.builds(on, TEXTS.filter(_parses), WEIGHTS), min_size=1, max_size=8)
EVENTS = st.lists(
    st.builds(Sampled, st.builds(keys, VALUES, VALUES, COLOURS), WEIGHTS), max_size=12
)


def directly(
    found: FieldsIndex,
    filters: Sequence[Sampled[Filter]],
    events: Sequence[Sampled[tuple[Key, ...]]],
) -> tuple[float, float]:
    """What reaches the regions of the filters, and what of it they match: each with each."""
    delivered = wanted = 0.0
    for each, weight in filters:
        regions = found.regions(each)
        for event, count in events:
            point = found.point(event)
            if any(point & region.mask == region.bits for region in regions):
                delivered += weight * count
            if each.matches(event):
                wanted += weight * count
    return delivered, wanted


@settings(max_examples=20)  # each learns a dictionary twice
@given(FILTERS, EVENTS)
def test_predictions_are_what_counting_gives_and_no_event_is_lost(
    filters: list[Sampled[Filter]], events: list[Sampled[tuple[Key, ...]]]
) -> None:
    present = index((1, 0, 0))
    learned = learn(present, filters, events)
    assert learned == learn(present, filters, events)
    assert len(learned.shapes) <= SPACE.index.shapes
    new = index(*learned.shapes)
    for each, _ in filters:
        regions = new.regions(each)
        assert 1 <= len(regions) <= SPACE.index.budget
        for event, _ in events:
            if each.matches(event):
                point = new.point(event)
                assert any(point & region.mask == region.bits for region in regions)
    before, after = directly(present, filters, events), directly(new, filters, events)
    assert before[1] == pytest.approx(after[1])  # all that is wanted comes, before and after
    assert (learned.basis == "events") == (before[0] > 0)
    if before[0]:
        assert learned.before.unwanted == pytest.approx(1 - before[1] / before[0], abs=1e-9)
        assert learned.after.unwanted == pytest.approx(
            1 - after[1] / after[0] if after[0] else 0.0, abs=1e-9
        )
        assert learned.change.gain == pytest.approx(1 - after[0] / before[0], abs=1e-9)
    total = sum(weight for _, weight in filters)
    entries = sum(weight * len(new.regions(each)) for each, weight in filters)
    assert learned.after.entries == pytest.approx(entries / total)


def test_without_events_all_are_equally_likely() -> None:
    covered = cover(index((2, 0, 0)), [on("x < 8"), on("y < 32", 3.0)])
    traffic = find_traffic(covered, [on("x < 8"), on("y < 32", 3.0)], None)
    # An eighth of x out of a quarter, and three times a half of all.
    assert (traffic.delivered, traffic.wanted) == (0.25 + 3.0, 0.125 + 1.5)


def test_an_event_in_several_regions_of_a_filter_counts_once() -> None:
    either = on("x < 16 or y < 16", 2.0)
    covered = cover(index((2, 0, 0), (0, 2, 0)), [either])
    events = EventIndex(covered.index, [Sampled(keys(0, 0, "red"), 5.0)])
    assert find_traffic(covered, [either], events).delivered == 10.0


def test_fewer_filters_than_shapes_leave_room_for_others() -> None:
    learned = learn(index((1, 0, 0)), [on("y < 16")], [])
    assert learned.after.unwanted == 0.0
    assert any(shape[0] for shape in learned.shapes)
    assert any(shape[2] for shape in learned.shapes)
    assert learned.why == ""
    assert len(find_reasons(learned)) == 3


def test_shapes_that_were_learned_are_kept_when_they_are_learned_again() -> None:
    random = Random(7)
    filters = [on(f"y between {low} and {low + 7}") for low in random.sample(range(56), 20)]
    learned = learn(index((1, 0, 0)), filters, [])
    assert learned.why == ""
    again = learn(index(*learned.shapes), filters, [])
    assert again.why != ""
    assert again.before == learned.after


def figures(entries: float) -> Prediction:
    return Prediction(shapes=6, masks=3, entries=entries, unwanted=0.1)


def test_a_change_of_more_filters_must_gain_more() -> None:
    few = Change(gain=2 * MIN_GAIN, filters=1, added=1, removed=1)
    assert why_not(figures(2), figures(2), few, 100) == ""
    text = why_not(figures(2), figures(2), Change(2 * MIN_GAIN, 100, 100, 100), 100)
    assert text == (
        "2.0% of the events that reach subscribers would not come any more; 5.0% are needed"
        " if the regions of 100% of the filters change"
    )
    assert why_not(figures(2), figures(2), Change(MIN_GAIN_OF_ALL, 100, 100, 100), 100) == ""
    assert "0.0% of the events" in why_not(figures(2), figures(2), Change(-0.5, 1, 1, 1), 100)


def test_more_entries_must_gain_more() -> None:
    enough = Change(MIN_GAIN_OF_ALL + ENTRIES_PRICE, 100, 200, 100)
    assert why_not(figures(2), figures(4), enough, 100) == ""
    assert why_not(figures(2), figures(4), Change(0.12, 100, 200, 100), 100) == (
        "12.0% of the events that reach subscribers would not come any more; 15.0% are needed"
        " if the regions of 100% of the filters change, and there are 100% more entries"
    )


def test_reasons_say_with_what_events_the_figures_were_made() -> None:
    change = Change(gain=0.5, filters=1_000, added=2_000, removed=1_500)
    learned = Learned((), "events", figures(2), figures(1.5), change, "")
    assert find_reasons(learned) == (
        "unwanted events fall from 10.0% to 10.0% of those that reach a filter, with sampled"
        " events",
        "a filter has 1.50 entries instead of 2.00",
        "1,000 subscriptions change: 2,000 regions are added, and 1,500 removed",
    )
