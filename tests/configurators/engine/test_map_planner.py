"""Maps planned from weighted regions, and maps that are adapted: where the weight goes."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple, replace

from configurators.engine.map_draft import MOST_TESTS, Placement, Weighted
from configurators.engine.map_planner import (
    BadPartitionCount,
    adapt_map,
    place,
    plan_map,
    plan_placement,
)
from configurators.engine.partition_map import Node, PartitionMap
from dzflow.region import Region
from sdn.tables.pipeline import PlanName

counts = st.integers(1, 9)
weights = st.integers(0, 50).map(float)
regions = st.text("01*", max_size=5).map(Region.parse)
dzs = st.text("01", max_size=5).map(Region.parse)
plans: st.SearchStrategy[PlanName] = st.sampled_from(["legs", "lpm"])


@st.composite
def loads(draw: st.DrawFn, plan: PlanName) -> list[Weighted]:
    of = regions if plan == "legs" else dzs
    parts = st.tuples(of, weights, st.booleans())
    return [Weighted(*each) for each in draw(st.lists(parts, max_size=25))]


@st.composite
def cases(draw: st.DrawFn) -> tuple[PartitionMap, list[Weighted], int]:
    """A map that was planned for another load, the load, and a number of partitions."""
    plan = draw(plans)
    sample = draw(st.lists(regions if plan == "legs" else dzs, max_size=10))
    return plan_map(sample, plan, draw(counts)), draw(loads(plan)), draw(counts)


def weight(placement: Placement) -> dict[str, float]:
    return {leaf: sum(item.weight for item in items) for leaf, items in placement.parts.items()}


def check(placement: Placement, items: list[Weighted]) -> None:
    """Each item lies in the partitions to which the map routes it, and nowhere else."""
    expected: dict[str, list[Weighted]] = {leaf: [] for leaf in placement.map.leaves()}
    for item in items:
        for leaf, part in placement.map.parts(item.region, advertised=item.advertised):
            expected[leaf].append(replace(item, region=part))
    for leaf, parts in placement.parts.items():
        assert sorted(map(astuple, parts)) == sorted(map(astuple, expected[leaf]))
    assert list(placement.parts) == placement.map.leaves()


@given(cases())
def test_regions_lie_where_the_map_routes_them(
    case: tuple[PartitionMap, list[Weighted], int],
) -> None:
    current, items, _ = case
    check(place(current, items), items)


@given(cases())
def test_each_step_has_few_enough_partitions_and_the_heaviest_gets_no_heavier(
    case: tuple[PartitionMap, list[Weighted], int],
) -> None:
    current, items, count = case
    here = place(current, items)
    steps = list(adapt_map(current, items, count))
    for step in steps:
        assert len(step.parts) <= count
        check(step, items)
    if len(here.parts) <= count:
        steps.insert(0, here)
    for before, after in pairwise(steps):
        assert before.map != after.map
        assert max(weight(after).values()) <= max(weight(before).values()) * (1 + 1e-9)
    again = [step.map for step in adapt_map(current, items, count)]
    assert again == [step.map for step in steps][-len(again) :] or not again


@given(plans.flatmap(lambda plan: st.tuples(st.just(plan), loads(plan), counts)))
def test_a_map_that_is_planned_anew_has_few_enough_partitions(
    case: tuple[PlanName, list[Weighted], int],
) -> None:
    plan, items, count = case
    made = plan_placement(items, plan, count)
    assert len(made.parts) <= count
    check(made, items)
    assert plan_placement(items, plan, count) == made


def owned(**by_region: float) -> list[Weighted]:
    return [Weighted(Region.parse(text[1:]), value) for text, value in by_region.items()]


def test_only_the_heavy_part_of_a_map_is_cut() -> None:
    current = PartitionMap("legs", Node(0, zero=Node(1), one=Node(1)))
    items = owned(r000=10, r01=10, r10=10, r1100=50, r1101=50, r1110=50)
    first, *_ = adapt_map(current, items, 9)
    # The heavy quarter is cut, and nothing need go.
    assert first.map.root == Node(0, zero=Node(1), one=Node(1, one=Node(2)))
    assert weight(first)["0-1.1-1.2-0"] == 100


def test_light_parts_are_merged_to_make_room() -> None:
    current = PartitionMap("legs", Node(0, zero=Node(1), one=Node(1)))
    items = owned(r000=10, r01=10, r10=10, r1100=50, r1101=50, r1110=50)
    first, *_ = adapt_map(current, items, 7)
    assert first.map.root == Node(0, one=Node(1, one=Node(2)))
    assert weight(first)["0-0"] == 20


def test_under_lpm_a_chain_of_cuts_leads_to_what_can_be_divided() -> None:
    items = owned(r000000=5, r000001=5)
    (first,) = adapt_map(PartitionMap("lpm"), items, 7)
    assert first.map.leaves() == ["000000", "000001", "00001", "0001", "001", "01", "1"]
    assert list(adapt_map(PartitionMap("lpm"), items, 6)) == []  # no room for so many


def test_what_cannot_be_divided_is_left_alone() -> None:
    for plan in ("legs", "lpm"):
        current = PartitionMap(plan)
        assert list(adapt_map(current, owned(r0101=100), 9)) == []
        assert list(adapt_map(current, [], 9)) == []


def test_too_many_partitions_are_merged() -> None:
    current = PartitionMap("legs", Node(0, zero=Node(1), one=Node(1)))
    items = owned(r00=30, r01=30, r10=1, r11=2)
    first, *_ = adapt_map(current, items, 5)
    assert first.map.root == Node(0, zero=Node(1))
    with pytest.raises(BadPartitionCount):
        next(adapt_map(current, items, 0))


def test_a_path_has_a_bounded_number_of_tests() -> None:
    near = [Weighted(Region.parse("0" * 40 + end)) for end in ("0", "1")]
    assert list(adapt_map(PartitionMap("lpm"), near, 60)) == []
    near = [Weighted(Region.parse("0" * (MOST_TESTS - 1) + end)) for end in ("0", "1")]
    names = plan_placement(near, "lpm", 60).map.leaves()
    assert max(map(len, names)) == MOST_TESTS


def test_under_lpm_what_is_coarse_is_not_cut_in_vain() -> None:
    # Both halves of a coarse dz have all of its work: the finer ones are cut, then all evenly.
    items = owned(r0=90, r100=10, r101=10, r110=10, r111=10)
    assert plan_placement(items, "lpm", 5).map.leaves() == ["0", "100", "101", "110", "111"]
    names = plan_map([item.region for item in items], "lpm", 32).leaves()
    assert len(names) == 32
    assert {len(name) for name in names} == {5}


def test_coverers_stay_with_what_they_cover() -> None:
    # Bit 0 and bit 4 divide equally well, but only bit 4 parts regions from their coverer.
    items = [
        *(Weighted(Region.parse(text)) for text in ("0", "00000", "00001", "0***0", "0***1")),
        *(Weighted(Region.parse(text)) for text in ("1", "10000", "10001", "1***0", "1***1")),
    ]
    assert plan_placement(items, "legs", 3).map.root == Node(0)
