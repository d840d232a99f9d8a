"""Regions as text."""

from hypothesis import given
from hypothesis import strategies as st

from configurators.streams.packing import pack_regions
from dispatcher.requests.intake.routing import region_texts
from dzflow.region import FULL, Region


@given(st.integers(0, FULL), st.integers(0, FULL))
def test_regions_are_written_as_they_are_read(bits: int, mask: int) -> None:
    region = Region(bits & mask, mask)
    assert region_texts(pack_regions([region, Region(0, 0)])) == [str(region), "*"]
