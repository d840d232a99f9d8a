"""Regions as text; what filters cost, and which refusals are remembered."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from configurators.state.spaces import LoadedSpace, new_space
from configurators.streams.packing import pack_regions
from dispatcher.errors import TooLarge
from dispatcher.requests.intake.routing import Routing, region_texts
from dzflow.filters import TooManyConjunctions
from dzflow.region import FULL, Region
from tests.dispatcher.support import SCHEMA

SPACE = LoadedSpace.of(new_space("stocks", 1, SCHEMA, "legs", 1))
TOO_MANY = [{"price": i, "volume": i} for i in range(65)]
LARGE = {"volume": {"in": list(range(0, 3000, 2))}}


def ticking(step: float) -> Callable[[], float]:
    """A clock of processor time that goes on by a step each time that it is read."""
    now = 0.0

    def read() -> float:
        nonlocal now
        now += step
        return now

    return read


@given(st.integers(0, FULL), st.integers(0, FULL))
def test_regions_are_written_as_they_are_read(bits: int, mask: int) -> None:
    region = Region(bits & mask, mask)
    assert region_texts(pack_regions([region, Region(0, 0)])) == [str(region), "*"]
    assert region_texts(pack_regions([region] * 40)) == [str(region)] * 40


@pytest.mark.parametrize("given", [{"price": {"lt": 5}}, LARGE])
def test_a_filter_that_is_known_costs_nothing(given: object) -> None:
    routing = Routing(ticking(1.0))
    first = routing.index(SPACE, False, given)
    cost = routing.spent
    assert cost > 0
    assert routing.index(SPACE, False, given) is first
    assert routing.spent == cost


def test_what_took_long_to_be_refused_is_refused_at_once_the_next_time() -> None:
    routing = Routing(ticking(1.0))
    for _ in range(3):
        with pytest.raises(TooManyConjunctions, match="more than 64"):
            routing.index(SPACE, False, TOO_MANY)
    cost = routing.spent
    with pytest.raises(TooManyConjunctions):
        routing.index(SPACE, False, TOO_MANY)
    assert routing.spent == cost
    changed = LoadedSpace.of(new_space("stocks", 1, SCHEMA, "legs", 1))
    with pytest.raises(TooManyConjunctions):
        routing.index(changed, False, TOO_MANY)
    assert routing.spent > cost  # the space may be another one now


def test_refusals_cost_as_much_as_they_take() -> None:
    routing = Routing(ticking(0.0001))
    for _ in range(3):
        before = routing.spent
        with pytest.raises(TooManyConjunctions):
            routing.index(SPACE, False, TOO_MANY)
        assert routing.spent > before


def test_a_filter_has_a_limit_of_bytes() -> None:
    routing = Routing()
    routing.index(SPACE, False, LARGE, most=8_000)
    with pytest.raises(TooLarge, match=r"at most 2000 \(limits.filter\)"):
        routing.index(SPACE, False, LARGE, most=2_000)
    routing.index(SPACE, False, LARGE)
