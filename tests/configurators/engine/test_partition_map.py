"""The partition map: each region has exactly one place, and the first map spreads well."""

from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from configurators.engine.map_planner import BadPartitionCount, first_map, plan_map
from configurators.engine.partials import Kind, Request
from configurators.engine.partition_map import (
    Node,
    PartitionMap,
    route,
    route_removal,
)
from dzflow.index.prior import typical_boxes
from dzflow.region import Region, normal
from sdn.tables.pipeline import PlanName
from tests.strategies import INDEXES

regions = st.text("01*", max_size=6).map(Region.parse)
dzs = st.text("01", max_size=6).map(Region.parse)
counts = st.integers(1, 12)


@given(st.lists(regions, min_size=1, max_size=20), counts, regions)
def test_under_legs_a_region_has_exactly_one_partition(
    sample: list[Region], count: int, region: Region
) -> None:
    made = plan_map(sample, "legs", count)
    assert len(made.leaves()) <= count
    ((owner, part),) = made.parts(region)
    assert part == region
    assert owner in made.leaves()


@given(st.lists(dzs, min_size=1, max_size=20), counts, dzs)
def test_under_lpm_a_dz_is_split_among_the_leaves_below_it(
    sample: list[Region], count: int, dz: Region
) -> None:
    made = plan_map(sample, "lpm", count)
    assert len(made.leaves()) == count
    parts = made.parts(dz)
    assert normal(part for _, part in parts) == (dz,)
    for leaf, part in parts:
        assert part.is_dz
        assert Region.parse("" if leaf == "all" else leaf).covers(part)


@given(st.lists(regions, min_size=1, max_size=20), counts, regions, regions)
def test_an_advertisement_is_told_wherever_an_overlapping_region_lives(
    sample: list[Region], count: int, offered: Region, wanted: Region
) -> None:
    made = plan_map(sample, "legs", count)
    told = {leaf for leaf, _ in made.parts(offered, advertised=True)}
    ((owner, _),) = made.parts(wanted)
    if offered.overlaps(wanted):
        assert owner in told


@given(st.lists(dzs, min_size=1, max_size=20), counts, dzs, dzs)
def test_under_lpm_overlapping_parts_are_in_the_same_partition(
    sample: list[Region], count: int, offered: Region, wanted: Region
) -> None:
    made = plan_map(sample, "lpm", count)
    told = dict(made.parts(offered, advertised=True))
    for leaf, part in made.parts(wanted):
        if offered.overlaps(part):
            assert told[leaf].overlaps(part)


def test_thesis_6_3_2_a_request_for_00_is_split_into_three() -> None:
    made = PartitionMap("lpm", Node(0, zero=Node(1, zero=Node(2, one=Node(3)))))
    parts = made.parts(Region.parse("00"))
    assert [(leaf, str(part)) for leaf, part in parts] == [
        ("000", "000"),
        ("0010", "0010"),
        ("0011", "0011"),
    ]


def test_leaves_are_named_by_their_path() -> None:
    assert PartitionMap("legs").leaves() == ["all"]
    made = PartitionMap("legs", Node(3, open=Node(7)))
    assert made.leaves() == ["3-0", "3-1", "3-x.7-0", "3-x.7-1", "3-x.7-x"]


@pytest.mark.parametrize("plan", ["legs", "lpm"])
def test_the_first_map_spreads_typical_filters(plan: str) -> None:
    index = INDEXES["fields" if plan == "legs" else "zorder"]
    made = first_map(index, plan, 8)  # type: ignore[arg-type]
    load: Counter[str] = Counter()
    for box in typical_boxes(index.space, index.axes, 500):
        for region in index.cover(box, 4):
            load.update(leaf for leaf, _ in made.parts(region))
    assert len(made.leaves()) >= 7
    assert max(load.values()) < 0.5 * load.total()


def test_fewer_than_one_partition_is_refused() -> None:
    with pytest.raises(BadPartitionCount):
        plan_map([Region(0, 0)], "legs", 0)


def test_a_sample_that_cannot_be_divided_gives_one_partition() -> None:
    assert plan_map([Region(0, 0)] * 5, "legs", 9).leaves() == ["all"]
    assert plan_map([], "legs", 9).leaves() == ["all"]


MAP = PartitionMap("legs", Node(0))


def asked(*texts: str, advertised: bool = False) -> Request:
    return Request(advertised, "r1", "h1", tuple(map(Region.parse, texts)))


def test_a_subscription_becomes_one_partial_for_each_partition() -> None:
    partials = route(MAP, asked("00", "01", "11", "*1"))
    assert {n: [str(r) for r in p.regions] for n, p in partials.items()} == {
        "0-0": ["00", "01"],
        "0-1": ["11"],
        "0-x": ["*1"],
    }
    assert {p.kind for p in partials.values()} == {Kind.SUBSCRIBE}


def test_an_advertisement_has_its_edge_entry_in_one_partition_only() -> None:
    partials = route(MAP, asked("01", advertised=True))
    assert {n: len(p.edge) for n, p in partials.items()} == {"0-0": 1, "0-x": 0}


def test_a_removal_goes_where_the_request_was() -> None:
    partials = route_removal(MAP, asked("00", "11"))
    assert {n: p.kind for n, p in partials.items()} == {
        "0-0": Kind.UNSUBSCRIBE,
        "0-1": Kind.UNSUBSCRIBE,
    }


@given(st.data(), counts, st.sampled_from(["legs", "lpm"]))
def test_the_compiled_map_agrees_with_the_definition(
    data: st.DataObject, count: int, plan: PlanName
) -> None:
    some = regions if plan == "legs" else dzs
    made = plan_map(data.draw(st.lists(some, min_size=1, max_size=20)), plan, count)
    for region in data.draw(st.lists(some, max_size=6)):
        for advertised in (False, True, True):  # the last one out of memory
            assert made.parts(region, advertised) == made.find(region, advertised)
        owners = made.find(region, advertised=False)
        assert made.owner(region) == (owners[0][0] if owners == [(owners[0][0], region)] else None)


def test_the_cache_of_a_map_is_not_part_of_its_value() -> None:
    used, fresh = (PartitionMap("legs", Node(3)) for _ in range(2))
    used.parts(Region.parse("0001"), advertised=True)
    assert used == fresh
    assert msgspec.msgpack.encode(used) == msgspec.msgpack.encode(fresh)
