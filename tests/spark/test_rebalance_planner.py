"""The planner of `rebalance`: what it proposes, what it leaves alone, and what it predicts."""

from collections.abc import Sequence
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from configurators.engine.map_planner import adapt_map, plan_map, plan_placement
from configurators.engine.partition_map import Node, PartitionMap
from dzflow.index import build_index
from dzflow.region import Region
from dzflow.space import Space
from sdn.tables.pipeline import PlanName
from spark.rebalance.assignment import Fleet, assign, busiest, imbalance_of, keep
from spark.rebalance.planner import MIN_GAIN, Proposal, by_partial, propose
from spark.rebalance.prediction import RegionLoad, Timing, leaf_load, waiting_ms
from spark.rebalance.reasons import find_reasons, hot_cell

NAMES = ("c1", "c2", "c3")
works = st.integers(0, 1_000).map(float)
speeds = st.dictionaries(st.sampled_from(NAMES), st.sampled_from([0.5, 1.0, 2.0]), min_size=1)
leaves = st.dictionaries(st.text("01", min_size=1, max_size=3), works, min_size=1, max_size=10)


@st.composite
def fleets(draw: st.DrawFn, names: list[str]) -> Fleet:
    known = draw(st.sets(st.sampled_from(names)))
    return Fleet(
        draw(speeds),
        draw(st.dictionaries(st.sampled_from(NAMES), works)),
        {leaf: draw(st.sampled_from(NAMES)) for leaf in sorted(known)},
        draw(st.booleans()),
    )


@given(leaves, st.data())
def test_each_partition_gets_a_configurator_that_there_is(
    work: dict[str, float], data: st.DataObject
) -> None:
    fleet = data.draw(fleets(sorted(work)))
    found = assign(work, fleet)
    assert found.owners.keys() == work.keys()
    assert set(found.owners.values()) <= fleet.speeds.keys()
    assert found == assign(work, fleet)
    for name, load in found.loads.items():
        own = sum(work[leaf] for leaf, owner in found.owners.items() if owner == name)
        assert load == pytest.approx(own + fleet.others.get(name, 0.0))
    assert found.imbalance == imbalance_of(found.loads, fleet.speeds)
    assert (
        found.imbalance <= keep(work, fleet).imbalance + 1e-9
        or found.moved < keep(work, fleet).moved
    )


def test_owners_are_kept_if_their_load_is_near_the_mean() -> None:
    work = {"a": 50.0, "b": 52.0, "c": 49.0, "d": 49.0}
    fleet = Fleet({"c1": 1.0, "c2": 1.0}, owners={"a": "c1", "b": "c1", "c": "c2", "d": "c2"})
    assert assign(work, fleet).owners == fleet.owners
    assert assign(work, fleet).moved == 0


def test_a_configurator_that_is_twice_as_fast_gets_twice_as_much() -> None:
    work = {f"p{n}": 10.0 for n in range(9)}
    found = assign(work, Fleet({"c1": 2.0, "c2": 1.0}))
    assert found.loads == {"c1": 60.0, "c2": 30.0}
    assert found.imbalance == pytest.approx(1.0)


def test_partitions_of_a_configurator_that_is_gone_are_given_to_others() -> None:
    fleet = Fleet({"c1": 1.0, "c2": 1.0}, owners={"a": "c9", "b": "c9", "c": "c1"})
    found = assign({"a": 10.0, "b": 0.0, "c": 10.0}, fleet)
    assert found.owners["a"] == "c2"
    assert found.owners["b"] in fleet.speeds


regions = {
    "legs": st.text("01*", max_size=5).map(Region.parse),
    "lpm": st.text("01", max_size=5).map(Region.parse),
}


@st.composite
def cases(draw: st.DrawFn) -> tuple[PartitionMap, list[RegionLoad], Fleet]:
    plan: PlanName = draw(st.sampled_from(["legs", "lpm"]))
    some = regions[plan]
    current = plan_map(draw(st.lists(some, max_size=8)), plan, draw(st.integers(1, 9)))
    items = [
        RegionLoad(region, work, advertised, partials)
        for region, work, advertised, partials in draw(
            st.lists(st.tuples(some, works, st.booleans(), works), max_size=20)
        )
    ]
    return current, items, draw(fleets(current.leaves()))


@given(cases())
def test_a_proposal_is_never_worse_than_what_is_there(
    case: tuple[PartitionMap, list[RegionLoad], Fleet],
) -> None:
    current, items, fleet = case
    found = propose(current, items, fleet)
    before, after = found.present, found.best
    assert busiest(after.assignment, fleet) <= busiest(before.assignment, fleet) * (1 + 1e-9)
    assert len(after.load.work) <= len(before.load.work)
    assert after.assignment.owners.keys() == set(after.placement.map.leaves())
    assert sum(before.load.work.values()) == pytest.approx(sum(item.weight for item in items))
    assert propose(current, items, fleet) == found
    if found.why:
        assert after == before
    else:
        assert before.cost - after.cost >= 0.1


@given(cases(), st.integers(1, 9))
def test_as_many_partitions_as_are_asked_for_are_the_limit(
    case: tuple[PartitionMap, list[RegionLoad], Fleet], count: int
) -> None:
    current, items, fleet = case
    found = propose(current, items, fleet, count)
    if not found.why and count != len(current.leaves()):
        assert len(found.best.load.work) <= count
        assert found.best.placement.map != current
        # A map with fewer partitions is not proposed, even if it costs less.
        counted = [by_partial(item, current) for item in items]
        planned = plan_placement(counted, current.plan, count)
        adapted = [each.map for each in adapt_map(current, counted, count)]
        reached = [len(each.leaves()) for each in (planned.map, *adapted) if each != current]
        assert len(found.best.load.work) >= max(reached)


def region(text: str, work: float, advertised: bool = False) -> RegionLoad:
    return RegionLoad(Region.parse(text), work, advertised, 1.0)


TWO = Fleet({"c1": 1.0, "c2": 1.0})


def test_a_cut_that_separates_many_from_their_coverer_must_pay_for_it() -> None:
    # Work can only be divided by parting 64 regions from the one that covers them.
    fine = [region(f"0{n:07b}", 1.0) for n in range(64)]
    owners = {"40-0": "c1", "40-1": "c1", "40-x": "c1"}
    fleet = Fleet(TWO.speeds, {"c2": 40.0}, owners)
    current = PartitionMap("legs", Node(40))
    found = propose(current, [region("0", 1.0), *fine], fleet)
    assert found.present.load.entries == 1
    assert found.why.startswith("the best plan would take the busiest configurator from 1.24 to 1.")
    assert "of the requests would newly need flow operations" in found.why
    # Where more can be gained, it pays.
    found = propose(current, [region("0", 1.0), *fine], Fleet(TWO.speeds, owners=owners))
    assert found.why == ""
    assert found.best.uncovered > 0.5
    assert found.best.assignment.imbalance < 1.1


def test_without_work_there_is_nothing_to_plan() -> None:
    found = propose(PartitionMap("legs"), [region("0", 0.0)], TWO)
    assert found.why == "the traces have no work in this space"


def test_entries_are_regions_that_no_other_one_covers() -> None:
    found = leaf_load(
        [region("0", 5.0), region("01", 5.0), region("10", 5.0), region("*", 2, True)]
    )
    assert found.work == 17.0
    assert found.entries == {Region.parse("0"), Region.parse("10")}
    assert (found.partials, found.asking) == (3.0, 2.0)


def test_waiting_grows_with_the_load_of_each_configurator() -> None:
    timing = Timing(seconds=1.0, work_ms=5.0, decided_ms=20.0, pushed_ms=1.0)
    equal = {"c1": 1.0, "c2": 1.0}
    assert waiting_ms({"c1": 0.0, "c2": 0.0}, equal, timing) == 0.0
    assert waiting_ms({"c1": 250_000.0, "c2": 250_000.0}, equal, timing) == pytest.approx(5 / 3)
    assert waiting_ms({"c1": 500_000.0, "c2": 0.0}, equal, timing) == pytest.approx(5.0)
    assert waiting_ms({"c1": 1_000_000.0, "c2": 0.0}, equal, timing) is None
    # Twice as fast: half as busy, and half as long for each.
    assert waiting_ms({"c1": 1_000_000.0}, {"c1": 2.0}, timing) == pytest.approx(2.5)


SCHEMA = {
    "attributes": [
        {"name": "price", "type": "int", "min": 0, "max": 1023, "bits": 10},
        {"name": "symbol", "type": "enum", "values": ["A", "B", "C", "D"]},
    ]
}
FIELDS = build_index(Space.from_json("stocks", SCHEMA))
ZORDER = build_index(Space.from_json("stocks", {**SCHEMA, "index": {"kind": "zorder"}}))


def test_the_hot_part_of_a_space_is_put_into_words() -> None:
    items = [region("11100000", 40.0), region("11110000", 40.0), region("000", 20.0)]
    found = hot_cell(items, FIELDS)
    assert found is not None
    assert (found.text, found.share) == ("price >= 896", 0.8)
    dz = hot_cell([region("1111", 60.0), region("0", 40.0)], ZORDER)
    assert dz is not None
    assert (dz.text, dz.share) == ('price >= 768 and symbol == "D"', 0.6)
    assert hot_cell([region("0", 50.0), region("1", 49.0), region("*", 10.0)], FIELDS) is None
    assert hot_cell([], FIELDS) is None


def test_reasons_name_what_is_cut_merged_and_moved() -> None:
    current = PartitionMap("legs", Node(0, zero=Node(1), one=Node(1)))
    items = [
        *(region(text, 10.0) for text in ("000", "01", "10")),
        *(region(f"11{n:08b}", 25.0) for n in range(0, 256, 32)),
    ]
    owners = {leaf: "c1" if leaf.startswith("0-0") else "c2" for leaf in current.leaves()}
    found = propose(current, items, Fleet(TWO.speeds, owners=owners))
    reasons = find_reasons(found, FIELDS, is_shared=False)
    assert reasons[0] == "87% of the work was where price >= 768"
    assert any(why.startswith("0-1.1-1 had 87% of the work: cut into 3") for why in reasons)
    assert reasons[-1].startswith("prediction: the busiest configurator goes from 1.83 to ")
    assert all(len(why) <= 1_000 for why in reasons)


QUARTERS = PartitionMap("legs", Node(0, zero=Node(1), one=Node(1)))


def quarters(
    *work: float, speeds: Sequence[float] = (1.0, 1.0), min_gain: float = MIN_GAIN
) -> tuple[Proposal, Fleet]:
    """One region in each quarter; c1 has the lower half, c2 the upper one."""
    names = ("0-0.1-0", "0-0.1-1", "0-1.1-0", "0-1.1-1")
    owners = {leaf: "c1" if leaf.startswith("0-0") else "c2" for leaf in names}
    fleet = Fleet(dict(zip(("c1", "c2"), speeds, strict=True)), owners=owners)
    texts = ("00110010", "01110010", "10110010", "11110010")
    items = [region(text, us) for text, us in zip(texts, work, strict=True)]
    return propose(QUARTERS, items, fleet, min_gain=min_gain), fleet


def test_a_single_hot_region_cannot_be_cut_and_gets_a_configurator_of_its_own() -> None:
    found, fleet = quarters(900, 100, 100, 100)
    assert found.why == ""
    assert found.best.placement.map == QUARTERS
    assert found.best.assignment.owners["0-0.1-0"] == "c1"
    assert found.best.assignment.loads == {"c1": 900, "c2": 300}  # no map can change that
    # When it is alone there, nothing is left to be done.
    alone = replace(fleet, owners={**fleet.owners, "0-0.1-1": "c2"})
    items = [item for part in found.present.placement.parts.values() for item in part]
    again = propose(QUARTERS, [cast(RegionLoad, item) for item in items], alone)
    assert again.why == (
        "no map and no move would be better: 0-0.1-0 has 75% of the work, and what lies there"
        " cannot be divided"
    )


@pytest.mark.parametrize("plan", ["legs", "lpm"])
def test_one_region_stays_where_it_is(plan: PlanName) -> None:
    found = propose(PartitionMap(plan), [region("0011", 300.0)], Fleet(TWO.speeds), 9)
    assert found.best.load.work == found.present.load.work or plan == "lpm"
    kept = propose(PartitionMap(plan), [region("0011", 300.0)], Fleet(TWO.speeds))
    assert "cannot be divided" in kept.why
    alone = propose(PartitionMap(plan), [region("0011", 300.0)], Fleet({"c1": 1.0}))
    assert alone.why == "there is one configurator only: work cannot be spread"


def test_balanced_work_stays_where_it_is() -> None:
    found, _ = quarters(110, 100, 100, 100)
    assert found.why.endswith("times the mean load: that is good enough")
    assert found.best == found.present


def test_a_plan_must_gain_what_is_asked_for() -> None:
    found, _ = quarters(200, 150, 100, 100)
    assert found.why == ""
    found, _ = quarters(200, 150, 100, 100, min_gain=0.25)
    assert found.why.endswith("and 0.25 is asked for")


def test_faster_configurators_get_more() -> None:
    found, _ = quarters(100, 100, 100, 100, speeds=(3.0, 1.0))
    assert found.present.assignment.imbalance == pytest.approx(2.0)
    assert found.best.assignment.loads == {"c1": 300, "c2": 100}


def test_fewer_regions_than_partitions_leave_partitions_idle() -> None:
    items = [region("0", 100.0), region("1", 100.0)]
    found = propose(PartitionMap("legs"), items, TWO, 12)
    assert found.best.placement.map.leaves() == ["0-0", "0-1", "0-x"]
    assert found.best.assignment.imbalance == pytest.approx(1.0)
    # With as many as there are, nothing is left to be cut.
    found = propose(found.best.placement.map, items, TWO, 12)
    assert found.why == "the map cannot be cut further"


def test_work_in_one_partition_is_cut_where_it_is() -> None:
    hot = [region(f"111{n:03b}", 300.0) for n in range(4)]
    owners = {"0-0.1-0": "c1", "0-0.1-1": "c1", "0-0.1-x": "c1", "0-1": "c2", "0-x": "c1"}
    current = PartitionMap("legs", Node(0, zero=Node(1)))
    fleet = Fleet(TWO.speeds, owners=owners)
    found = propose(current, [*hot, region("0001", 100.0)], fleet)
    # 1,200 of 1,300 were in one partition; as many partitions as before are enough.
    assert found.present.assignment.imbalance == pytest.approx(1200 / 650)
    assert found.best.assignment.imbalance == pytest.approx(700 / 650)
    assert len(found.best.load.work) <= 5
