"""Regions against brute force on a few bits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dzflow.region import (
    EVERYTHING,
    WIDTH,
    BadRegion,
    Region,
    is_prefix,
    maximal,
    normal,
    prefix_mask,
)

BITS = 5
texts = st.text("01*", max_size=BITS)
regions = texts.map(Region.parse)
dzs = st.text("01", max_size=BITS).map(Region.parse)


def points(*some: Region) -> set[int]:
    """The events of regions, if there were only five bits."""
    return {
        n for n in range(1 << BITS) if any(region.holds(n << (WIDTH - BITS)) for region in some)
    }


@given(texts)
def test_text_is_read_and_written(text: str) -> None:
    assert str(Region.parse(text)) == (text.rstrip("*") or "*")


@pytest.mark.parametrize("text", ["2", "0 1", "0" * 97, "01-"])
def test_text_that_is_no_region_is_refused(text: str) -> None:
    with pytest.raises(BadRegion, match="0, 1 and"):
        Region.parse(text)


@given(regions, regions)
def test_covering_overlap_and_intersection_are_those_of_sets(a: Region, b: Region) -> None:
    assert a.covers(b) == (points(b) <= points(a))
    assert a.overlaps(b) == bool(points(a) & points(b))
    both = a.intersection(b)
    assert points(*[both] if both else []) == points(a) & points(b)


@given(regions, regions)
def test_cells_are_the_region_on_a_finer_grid(region: Region, grid: Region) -> None:
    cells = list(region.cells(grid.mask))
    assert {cell.mask for cell in cells} == {region.mask | grid.mask}
    assert points(*cells) == points(region)
    assert len(set(cells)) == len(cells)


@given(st.lists(regions, max_size=6))
def test_maximal_keeps_the_events_and_drops_covered_regions(some: list[Region]) -> None:
    kept = maximal(some)
    assert points(*kept) == points(*some)
    assert not any(a != b and a.covers(b) for a in kept for b in kept)


@given(st.lists(regions, max_size=8))
def test_a_normal_set_has_the_same_events_no_covered_member_and_no_buddies(
    some: list[Region],
) -> None:
    kept = normal(some)
    assert points(*kept) == points(*some)
    assert not any(a != b and a.covers(b) for a in kept for b in kept)
    last_bits = {(r.mask, r.bits ^ (r.mask & -r.mask)) for r in kept if r.mask}
    assert not any((r.mask, r.bits) in last_bits for r in kept)
    assert normal(kept) == kept


@given(st.lists(dzs, max_size=8))
def test_the_normal_form_of_dzs_is_the_only_one(some: list[Region]) -> None:
    kept = normal(some)
    assert all(region.is_dz for region in kept)
    split = [cell for region in kept for cell in region.cells(prefix_mask(BITS))]
    assert normal(split) == kept


@given(st.integers(0, WIDTH))
def test_prefix_masks_are_prefixes(length: int) -> None:
    assert is_prefix(prefix_mask(length))
    assert prefix_mask(length).bit_count() == length


def test_a_mask_with_a_gap_is_no_prefix() -> None:
    assert not Region.parse("1*1").is_dz
    assert EVERYTHING.is_dz
