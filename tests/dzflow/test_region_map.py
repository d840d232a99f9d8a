"""Finding coverers, covered and overlapping regions, against scanning."""

from hypothesis import given
from hypothesis import strategies as st

from dzflow.region import Region
from dzflow.region_map import OverlapMap, RegionMap
from tests.support import state_size

regions = st.text("01*", max_size=5).map(Region.parse)
# True puts a region in, False takes it out.
changes = st.lists(st.tuples(st.booleans(), regions), max_size=40)


def apply(
    done: list[tuple[bool, Region]], known: "RegionMap[str] | OverlapMap[str]"
) -> set[Region]:
    there: set[Region] = set()
    for put, region in done:
        if put and region not in there:
            known.add(region, str(region))
            there.add(region)
        elif not put and region in there:
            known.remove(region)
            there.remove(region)
    return there


@given(changes, regions)
def test_coverers_and_covered_are_those_that_a_scan_finds(
    done: list[tuple[bool, Region]], asked: Region
) -> None:
    known: RegionMap[str] = RegionMap()
    there = apply(done, known)
    others = there - {asked}
    assert sorted(known.coverers(asked)) == sorted(str(r) for r in others if r.covers(asked))
    assert sorted(known.covered(asked)) == sorted(str(r) for r in others if asked.covers(r))
    assert sorted(known.overlapping(asked)) == sorted(str(r) for r in there if r.overlaps(asked))
    assert known.get(asked) == (str(asked) if asked in there else None)
    assert sorted(known) == sorted(map(str, there))
    assert len(known) == len(there)


@given(changes, regions, changes, regions)
def test_overlapping_regions_are_found_also_after_changes(
    first: list[tuple[bool, Region]],
    asked: Region,
    then: list[tuple[bool, Region]],
    again: Region,
) -> None:
    known: OverlapMap[str] = OverlapMap()
    there = apply(first, known)
    assert sorted(known.overlapping(asked)) == sorted(str(r) for r in there if r.overlaps(asked))
    for region in list(there):
        known.remove(region)
    there = apply(then, known)
    for one in (asked, again):
        assert sorted(known.overlapping(one)) == sorted(str(r) for r in there if r.overlaps(one))
    assert {region for region, _ in known} == there
    assert known.get(asked) == (str(asked) if asked in there else None)


def test_shapes_that_are_no_longer_used_are_forgotten() -> None:
    known: RegionMap[int] = RegionMap()
    shapes = [Region.parse("*" * n + "1") for n in range(20)]
    for n, region in enumerate(shapes):
        known.add(region, n)
    full = state_size(known)
    for region in shapes[:-1]:
        known.remove(region)
    assert state_size(known) < full / 2
    assert list(known) == [19]
