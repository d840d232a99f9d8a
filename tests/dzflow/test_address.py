"""Regions and events as IPv6 addresses."""

from ipaddress import IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dzflow.address import (
    DELIVERY,
    MAX_SPACE,
    MAX_TREE,
    MAX_VERSION,
    BadAddress,
    Match,
    Scope,
    read,
    read_match,
)
from dzflow.region import FULL, Region

scopes = st.tuples(st.integers(1, MAX_SPACE), st.integers(0, MAX_VERSION)).map(lambda t: Scope(*t))
trees = st.integers(0, MAX_TREE)
regions = st.text("01*", max_size=96).map(Region.parse)


def test_the_parts_of_an_address_stand_where_they_should() -> None:
    match = Scope(1, 2).match(Region.parse("110"), tree=3)
    # ff1e | 0000000001 10 0011 | 110…
    assert str(match) == "ff1e:63:c000::/35"


def test_a_mask_with_gaps_is_written_out() -> None:
    match = Scope(1).match(Region.parse("1*1"), tree=0)
    assert str(match) == "ff1e:40:a000::/ffff:ffff:a000::"


@given(scopes, trees, regions)
def test_a_match_reads_back_as_its_region(scope: Scope, tree: int, region: Region) -> None:
    assert read_match(scope.match(region, tree)) == (scope, tree, region)
    assert read_match(scope.match(region)) == (scope, None, region)


@given(scopes, trees, regions, st.integers(0, FULL))
def test_an_event_matches_where_it_lies(
    scope: Scope, tree: int, region: Region, point: int
) -> None:
    address = scope.event(point, tree)
    assert read(address) == (scope, tree, point)
    assert scope.match(region, tree).holds(address) == region.holds(point)
    assert scope.match(region).holds(address) == region.holds(point)
    other = (tree + 1) % (MAX_TREE + 1)
    assert not scope.match(region, other).holds(address)


def test_no_space_ever_has_the_address_of_delivery() -> None:
    assert read(DELIVERY).scope.space == 0


@pytest.mark.parametrize(
    ("scope", "words"),
    [
        (Scope(0), "space number 0"),
        (Scope(MAX_SPACE + 1), "space number 1024"),
        (Scope(1, 4), "index version 4"),
        (Scope(1, 0, 0x2001), "multicast"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(scope: Scope, words: str) -> None:
    with pytest.raises(BadAddress, match=words):
        scope.check()


def test_a_tree_number_that_does_not_fit_is_refused() -> None:
    with pytest.raises(BadAddress, match="tree number 16"):
        Scope(1).event(0, 16)


def test_addresses_of_others_are_refused() -> None:
    with pytest.raises(BadAddress, match="does not start with ff1e"):
        read(int(IPv6Address("ff02::1")))
    with pytest.raises(BadAddress, match="does not fix"):
        read_match(Match(0xFF1E << 112, 0xFFFF << 112))
