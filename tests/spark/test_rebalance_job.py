"""The job `rebalance` on small traces whose answers are worked out by hand."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from configurators.engine.partition_map import Node, PartitionMap
from configurators.state.spaces import new_space
from configurators.state.trace_spaces import TraceVersion, encode_footer
from configurators.store.model import SpaceDoc
from dispatcher.reports.traces import REQUESTS
from dzflow.region import Region
from spark.reading import find_traces
from spark.rebalance.job import make_rebalance, other_loads
from spark.rebalance.loads import sample_regions
from spark.rebalance.model import Rebalance, SpaceResult
from spark.rebalance.options import RebalanceOptions
from spark.shapes.model import Proposal
from spark.spaces import IndexedSpace, UnfitShapes, UnknownTraceSpace, with_shapes
from spark.workers.indexing import pack, unpack
from tests.spark.rows import BEGAN, row, write_rows

C1, C2 = "configurator-1", "configurator-2"
SCHEMA = {"attributes": [{"name": "price", "type": "int", "min": 0, "max": 1023, "bits": 10}]}


def space(root: Node | None = None, name: str = "stocks", number: int = 1) -> SpaceDoc:
    """A space with a map that tests leading bits of the price."""
    doc = new_space(name, number, SCHEMA, "legs", 1)
    stored = replace(doc.versions[0], map=PartitionMap("legs", root), map_number=7)
    stored = replace(stored, shapes=((1,), (2,), (3,), (10,)))
    return replace(doc, versions={0: stored})


def footer(*docs: SpaceDoc) -> Mapping[str, str]:
    return encode_footer(docs).entries


def at(id: str, price: object, work: int, leaf: str = "all", **more: Any) -> dict[str, Any]:
    """A partial of a subscription to one price, or to what a condition says."""
    wanted = price if isinstance(price, dict) else {"eq": price}
    told = {"partition": f"1.0/{leaf}", "decided_us": work, "filter": json.dumps({"price": wanted})}
    return row(id, **told | more)


def job(
    spark: SparkSession, folder: Path, rows: Iterable[Mapping[str, Any]], doc: SpaceDoc, **how: Any
) -> Rebalance:
    write_rows(folder, rows, footer=footer(doc))
    return run(spark, folder, **how)


def run(spark: SparkSession, folder: Path, **how: Any) -> Rebalance:
    traces = find_traces(spark, str(folder))
    return make_rebalance(spark, str(folder), traces, RebalanceOptions(**how))


def only(found: Rebalance) -> SpaceResult:
    (result,) = found.spaces
    return result


QUARTERS = Node(0, zero=Node(1), one=Node(1))  # seven leaves; those without a fixed bit are idle
PRICES = {"0-0.1-0": 100, "0-0.1-1": 300, "0-1.1-0": 600, "0-1.1-1": 900}


def quarters(**work: int) -> list[dict[str, Any]]:
    """One subscription in each quarter of the prices; c1 has the lower half, c2 the upper one."""
    by_leaf = dict(zip(PRICES, work.values(), strict=True))
    return [
        at(f"s1-{n}", PRICES[leaf], us, leaf, configurator=C1 if n < 2 else C2)
        for n, (leaf, us) in enumerate(by_leaf.items())
    ]


def test_work_that_one_configurator_has_too_much_of_moves(
    spark: SparkSession, tmp_path: Path
) -> None:
    found = job(spark, tmp_path, quarters(a=300, b=300, c=100, d=100), space(QUARTERS))
    result = only(found)
    assert (found.mode, found.configurators) == ("sna", {C1: 1.0, C2: 1.0})
    assert (result.work_ms, result.pushed_ms, result.regions) == (0.8, 12.0, 4)
    assert result.before.imbalance == pytest.approx(1.5)  # 600 of 800, and 400 is the mean
    assert result.before.shares == pytest.approx({C1: 0.75, C2: 0.25})
    assert result.before.partition_imbalance == pytest.approx(300 * 7 / 800)
    assert result.after.imbalance == pytest.approx(1.0)
    plan = result.plan
    assert plan is not None
    assert (plan.space, plan.version, plan.number) == ("stocks", 0, 7)
    assert plan.map.root == QUARTERS
    # A heavy quarter goes, and a light one comes back: 300 + 100 on either side.
    moved = set(plan.assignment)
    assert len(moved) == 2
    assert moved & {"0-0.1-0", "0-0.1-1"}
    assert moved & {"0-1.1-0", "0-1.1-1"}
    assert result.moved_share == pytest.approx(0.5)
    assert any("moves from configurator-1 to configurator-2" in why for why in plan.reasons)


@pytest.fixture(scope="module")
def mixed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Rebalance:
    """Several kinds of rows in one space, and rows that cannot be used."""
    middle = {"gte": 256, "lt": 768}
    sliced = {"slice_size": 4, "decided_us": 400}  # 100 us for each partial
    rows = [
        at("s1-1", middle, 0, "0-0.1-1", configurator=C1) | sliced,
        at("s1-1", middle, 0, "0-1.1-0", configurator=C2) | sliced,
        # A removal, whose rows have no regions, and regions of a former map.
        at("s1-1.2", middle, 40, "0-0.1-1", configurator=C1, target_id="s1-1")
        | {"kind": "unsubscribe", "regions": []},
        at("s1-3", 100, 60, "0-0.1-0", configurator=C1) | {"regions": ["1111111111"]},
        # The filter as a text; the clock was set back meanwhile.
        row("s1-4", partition="1.0/3-x", decided_us=100, filter='"price == 100"', configurator=C1)
        | {"done_us": BEGAN - 5_000},
        at("s1-5", 100, -400, "0-0.1-0", configurator=C1),
        at("a1-6", {"lt": 512}, 300, "0-0.1-0", configurator=C1, kind="advertise"),
        row("s1-7", partition="1.0/all", decided_us=50, filter='{"colour": {"eq": "red"}}'),
        row("s1-8", partition="1.0/all", decided_us=50, filter="no JSON"),
        # It failed before it was decided.
        at("s1-9", 999, 0, "0-1.1-1", outcome="failed", slice=0, slice_size=0),
        at("s1-10", 100, 200, configurator=C1) | {"partition": "1.1/0-0.1-0"},
        at("s2-11", 100, 300, configurator=C1) | {"space": "gone", "partition": "2.0/all"},
    ]
    folder = tmp_path_factory.mktemp("mixed")
    return job(spark, folder, rows, space(QUARTERS))


def test_a_request_counts_once_and_its_rows_are_added_up(mixed: Rebalance) -> None:
    assert (mixed.source.requests, mixed.source.rows) == (11, 12)
    # 100 + 100 + 40 for the middle, 60 + 100 + 0 for one price, 300, and 100 that does not fit.
    assert only(mixed).work_ms == pytest.approx(0.8)


def test_filters_are_indexed_and_traced_regions_are_not_looked_at(mixed: Rebalance) -> None:
    result = only(mixed)
    # The middle as two quarters, one price in two forms, an advertisement, and two that do not fit.
    assert (result.filters, result.regions, result.sampled) == (6, 4, 4)
    # The advertisement concerns 0-0.1-0, 0-0.1-1, 0-0.1-x and 0-x: 75 us each.
    assert result.before.partition_imbalance == pytest.approx((60 + 100 + 75) * 7 / 700)
    assert result.before.entries == 3


def test_filters_that_do_not_fit_are_counted_and_left_out(mixed: Rebalance) -> None:
    assert only(mixed).damaged == 2
    assert only(mixed).damaged_share == pytest.approx(0.125)


def test_a_partial_waits_until_its_whole_slice_is_decided(mixed: Rebalance) -> None:
    before = only(mixed).before
    assert before.waiting_ms is not None
    assert before.latency_ms is not None
    # Eleven rows were decided: 2 x 400, 40, 60, 100, 0, 300, 50, 50, 200 and 300 us.
    assert before.latency_ms - before.waiting_ms == pytest.approx(1.9 / 11 + 3.0)
    # A partial has 1,300 / 11 us of work. In this second, configurators are busy with 700 us for
    # filters that fit, and with 300 us for the other space.
    work = 1.3 / 11
    busy = {name: share * 1_000e-6 for name, share in before.shares.items()}
    waiting = sum(before.shares[name] * u / (1 - u) * work for name, u in busy.items())
    assert before.waiting_ms == pytest.approx(waiting)


def test_work_of_configurators_that_are_gone_is_spread_by_speed() -> None:
    others = [{C1: 100.0, "gone": 60.0}, {C2: 50.0, "gone": 30.0}]
    speeds = {C1: 2.0, C2: 1.0}
    assert other_loads(others, speeds, shared=False) == {C1: 160.0, C2: 80.0}
    assert other_loads(others, speeds, shared=True) == {C1: 160.0, C2: 80.0}
    assert other_loads([{C1: 90.0}], speeds, shared=False) == {C1: 90.0, C2: 0.0}
    assert other_loads([{C1: 90.0}], speeds, shared=True) == {C1: 60.0, C2: 30.0}
    assert other_loads([], speeds, shared=False) == {C1: 0.0, C2: 0.0}


def test_rows_of_other_spaces_and_versions_are_left_out_with_a_notice(mixed: Rebalance) -> None:
    assert mixed.source.notices == (
        "gone is left out: no file describes the space.",
        "20.0% of the work in stocks is left out: it was done under other versions of its index"
        " than the one that is described.",
    )
    # What configurators do in other spaces is load, too.
    shares = only(mixed).before.shares
    assert shares[C1] > shares[C2]
    assert sum(shares.values()) == pytest.approx(1.0)
    assert mixed.source.backwards == 1


def test_files_of_other_releases_and_files_that_vanish_do_no_harm(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = quarters(a=300, b=300, c=100, d=100)
    newer = REQUESTS.append(pa.field("colour", pa.string()))
    older = REQUESTS.remove(REQUESTS.get_field_index("slice_size"))
    write_rows(tmp_path, rows[:2], "a.parquet", footer(space(QUARTERS)), older)
    write_rows(tmp_path, rows[2:], "b.parquet", footer(space(QUARTERS)), newer)
    gone = write_rows(tmp_path, rows, "c.parquet", footer(space(QUARTERS)))
    traces = find_traces(spark, str(tmp_path))
    gone.unlink()
    found = make_rebalance(spark, str(tmp_path), traces, RebalanceOptions())
    assert [file.name for file in found.source.skipped] == ["c.parquet"]
    assert "did not record how large slices were" in found.source.notices[0]
    assert only(found).work_ms == pytest.approx(0.8)
    assert only(found).plan is not None


def test_a_plan_can_be_made_for_shapes_that_are_proposed(
    spark: SparkSession, tmp_path: Path
) -> None:
    low = {"lt": 512}  # a region of one bit; with the shapes that are given, two regions of two
    rows = [at("s1-1", low, 100, "0-0.1-x", configurator=C1), at("s1-2", 900, 40, "0-1.1-1")]
    given = Proposal("stocks", 0, ((2,), (10,)), ())
    result = only(job(spark, tmp_path, rows, space(QUARTERS), shapes=(given,)))
    assert (result.filters, result.regions, result.before.entries) == (2, 3, 3)
    assert result.before.partition_imbalance == pytest.approx(50 * 7 / 140)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (Proposal("bonds", 0, (), ()), "for the space 'bonds', which is not planned"),
        (Proposal("stocks", 1, ((2,),), ()), "version 1 of its index, .* describe version 0"),
        (Proposal("stocks", 0, ((2, 2),), ()), "the shapes for stocks cannot be used"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(given: Proposal, why: str) -> None:
    stored = space().versions[0]
    version = TraceVersion(stored.schema, stored.shapes, stored.map, stored.map_number)
    known = IndexedSpace(1, 0, version, version.index("stocks", 0))
    with pytest.raises(UnfitShapes, match=why):
        with_shapes({"stocks": known}, [given])


def test_several_spaces_share_the_configurators(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        *(at(f"s1-{n}", PRICES[leaf], 100, leaf) for n, leaf in enumerate(PRICES)),
        at("s2-1", 100, 400, "all") | {"space": "bonds", "partition": "2.0/all"},
    ]
    write_rows(tmp_path, rows, footer=footer(space(QUARTERS), space(None, "bonds", 2)))
    found = run(spark, tmp_path, speeds={C1: 1.0, C2: 1.0})
    # All is at the first. Bonds have most work, and come first: when they have moved, all is well.
    bonds, stocks = found.spaces
    assert (bonds.space, stocks.space) == ("bonds", "stocks")
    assert (bonds.before.imbalance, bonds.after.imbalance) == pytest.approx((2.0, 1.0))
    assert bonds.plan is not None
    assert bonds.plan.assignment == {"all": C2}
    assert stocks.plan is None
    # For stocks alone, they go, because bonds stay. The owners are those that the service tells.
    owners = {f"1.0/{leaf}": C1 for leaf in PRICES}
    plan = only(run(spark, tmp_path, space="stocks", speeds={C1: 1, C2: 1}, owners=owners)).plan
    assert plan is not None
    assert plan.assignment == dict.fromkeys(PRICES, C2)
    with pytest.raises(UnknownTraceSpace, match=r"'shares'; there is bonds, stocks"):
        run(spark, tmp_path, space="shares")


def test_a_sample_stands_for_the_work_of_all_regions(spark: SparkSession) -> None:
    packed = [pack(Region.parse(f"{n:010b}")) for n in range(200)]
    rows = [
        ("stocks", False, 5_000.0 if n == 7 else 100.0, 2, 1.0, bytearray(region))
        for n, region in enumerate(packed)
    ]
    columns = "space string, advertised boolean, work_us double, partials long, filters double"
    regions = spark.createDataFrame(rows, f"{columns}, region binary")
    taken = sample_regions(regions, "stocks", 24_900.0, 50)
    assert len(taken) == 50
    assert sum(load.weight for load in taken) == pytest.approx(24_900.0)
    # The heavy one is itself; each of the others stands for about 199 / 49 regions of its kind.
    weights = {load.region: load.weight for load in taken}
    assert weights[unpack(packed[7])] == pytest.approx(5_000, rel=0.2)
    assert sum(load.partials for load in taken) == pytest.approx(400, rel=0.2)
    assert sample_regions(regions, "stocks", 24_900.0, 50) == taken
    whole = sample_regions(regions, "stocks", 24_900.0, 200)
    assert {load.region: load.weight for load in whole}[unpack(packed[7])] == pytest.approx(5_000)


def test_in_mode_sea_nothing_is_assigned(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        at(f"s1-{n}", 900 + 30 * n, 300, "0-1", mode="sea", configurator=(C1, C2)[n % 2])
        for n in range(4)
    ]
    found = job(spark, tmp_path, rows, space(QUARTERS))
    result = only(found)
    assert (found.mode, result.before.shares) == ("sea", {})
    assert result.before.imbalance == pytest.approx(2.0)  # one partition, one at a time
    assert result.plan is not None
    assert result.plan.assignment == {}
    assert result.after.imbalance == pytest.approx(1.0)


def test_an_empty_folder_has_no_plan(spark: SparkSession, tmp_path: Path) -> None:
    found = run(spark, tmp_path)
    assert (found.source.rows, found.spaces, found.mode) == (0, (), "")
    nothing = job(spark, tmp_path / "empty", [], space(QUARTERS))
    assert (nothing.source.rows, nothing.spaces) == (0, ())


def test_one_row_is_one_hot_region_which_cannot_be_cut(spark: SparkSession, tmp_path: Path) -> None:
    result = only(job(spark, tmp_path, [at("s1-1", 900, 100)], space(), speeds={C1: 1, C2: 1}))
    assert (result.regions, result.before.imbalance, result.plan) == (1, 2.0, None)
    assert result.why == (
        "no map and no move would be better: all has 100% of the work, and what lies there cannot"
        " be divided"
    )


def test_files_that_describe_no_space_cannot_be_planned(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_rows(tmp_path, [row("s1-1")])
    found = run(spark, tmp_path)
    assert found.spaces == ()
    assert "No space can be planned: no file describes the spaces" in found.source.notices[0]
