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
from configurators.state.trace_spaces import encode_footer
from configurators.store.model import SpaceDoc
from dispatcher.reports.traces import REQUESTS
from spark.reading import find_traces
from spark.rebalance.job import RebalanceOptions, UnknownTraceSpace, make_rebalance
from spark.rebalance.model import Rebalance, SpaceResult
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


def test_a_partition_with_most_of_the_work_is_cut_where_the_work_is(
    spark: SparkSession, tmp_path: Path
) -> None:
    hot = [at(f"s1-{n}", 900 + 30 * n, 300, "0-1", configurator=C2) for n in range(4)]
    cold = [at("s1-8", 100, 100, "0-0", configurator=C1)]
    found = job(spark, tmp_path, hot + cold, space(Node(0, zero=Node(1), one=None)), partitions=9)
    result = only(found)
    plan = result.plan
    assert plan is not None
    # 1,200 of 1,300 were in one partition.
    assert result.before.imbalance == pytest.approx(1200 / 650)
    assert result.after.imbalance < 1.1
    assert plan.reasons[0] == "92% of the work was where price >= 896"
    assert set(plan.assignment.values()) == {C1, C2}
    assert set(plan.assignment) <= set(plan.map.leaves())


def test_filters_are_indexed_and_traced_regions_are_not_looked_at(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = quarters(a=300, b=300, c=100, d=100)
    strange = [{**each, "regions": ["1111111111"]} for each in rows]
    wrong = [{**each, "partition": "1.0/3-x"} for each in strange]  # of a former map
    found = job(spark, tmp_path, wrong, space(QUARTERS), speeds={C1: 1.0, C2: 1.0})
    assert only(found).before.partition_imbalance == pytest.approx(300 * 7 / 800)


def test_a_request_counts_once_and_its_rows_are_added_up(
    spark: SparkSession, tmp_path: Path
) -> None:
    # A slice of four took 400 us: 100 for each of its partials.
    sliced = {"slice_size": 4, "decided_us": 400}
    rows = [
        at("s1-1", {"gte": 256, "lt": 768}, 0, "0-0.1-1", configurator=C1) | sliced,
        at("s1-1", {"gte": 256, "lt": 768}, 0, "0-1.1-0", configurator=C2) | sliced,
        at("s1-1.2", {"gte": 256, "lt": 768}, 40, "0-0.1-1", kind="unsubscribe", target_id="s1-1")
        | {"configurator": C1, "regions": []},
    ]
    found = job(spark, tmp_path, rows, space(QUARTERS))
    result = only(found)
    assert (found.source.requests, found.source.rows) == (2, 3)
    assert result.work_ms == pytest.approx(0.24)
    assert (result.filters, result.regions, result.sampled) == (1, 2, 2)  # two quarters
    assert result.before.shares == pytest.approx({C1: 0.5, C2: 0.5})


def test_the_work_of_an_advertisement_is_shared_by_the_partitions_that_are_told(
    spark: SparkSession, tmp_path: Path
) -> None:
    offered = {"kind": "advertise", "target_id": "a1-1"}
    rows = [at("a1-1", {"lt": 512}, 600, "0-0", **offered), at("s1-2", 900, 100, "0-1")]
    result = only(job(spark, tmp_path, rows, space(Node(0)), speeds={C1: 1.0, C2: 1.0}))
    # 300 each for 0-0 and 0-x, which may hold subscriptions that overlap, and 100 for 0-1.
    assert result.before.partition_imbalance == pytest.approx(300 * 3 / 700)
    assert result.before.entries == 1


def test_filters_that_do_not_fit_are_counted_and_left_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = quarters(a=300, b=300, c=100, d=100)
    rows += [
        row("s1-7", partition="1.0/all", decided_us=50, filter='{"colour": {"eq": "red"}}'),
        row("s1-8", partition="1.0/all", decided_us=50, filter="no JSON"),
        row("s1-9", partition="1.0/all", decided_us=100, filter='"price == 100"'),
    ]
    result = only(job(spark, tmp_path, rows, space(QUARTERS)))
    assert (result.filters, result.regions, result.damaged) == (7, 4, 2)
    assert result.damaged_share == pytest.approx(0.1)


def test_rows_of_other_spaces_and_versions_are_left_out_with_a_notice(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = quarters(a=300, b=300, c=100, d=100)
    rows += [
        {**rows[0], "request_id": "s1-8", "partition": "1.1/0-0.1-0", "decided_us": 200},
        {**rows[0], "request_id": "s2-8", "space": "gone", "partition": "2.0/all"},
    ]
    found = job(spark, tmp_path, rows, space(QUARTERS))
    assert only(found).work_ms == pytest.approx(0.8)
    assert found.source.notices == (
        "gone is left out: no file describes the space.",
        "20.0% of the work in stocks is left out: it was done under other versions of its index"
        " than the one that is described.",
    )
    # What configurators do in other spaces is load, too: 300 more for the first.
    assert only(found).before.shares == pytest.approx({C1: 900 / 1100, C2: 200 / 1100})


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
    assert bonds.before.imbalance == pytest.approx(2.0)
    assert bonds.after.imbalance == pytest.approx(1.0)
    assert bonds.plan is not None
    assert bonds.plan.assignment == {"all": C2}
    assert stocks.plan is None
    alone = run(spark, tmp_path, space="stocks", speeds={C1: 1.0, C2: 1.0})
    assert [result.space for result in alone.spaces] == ["stocks"]
    plan = only(alone).plan
    assert plan is not None
    assert plan.assignment == dict.fromkeys(PRICES, C2)
    with pytest.raises(UnknownTraceSpace, match=r"'shares'; there is bonds, stocks"):
        run(spark, tmp_path, space="shares")


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


def test_a_sample_stands_for_the_work_of_all_regions(spark: SparkSession, tmp_path: Path) -> None:
    rows = [at(f"s1-{n}", n, 100 if n else 5_000) for n in range(200)]
    found = job(spark, tmp_path, rows, space(QUARTERS), most_regions=50)
    again = run(spark, tmp_path, most_regions=50)
    result = only(found)
    assert (result.regions, result.sampled) == (200, 50)
    assert result.work_ms == pytest.approx(24.9)
    # Prices below 200 are in one quarter, whatever the sample is.
    assert result.before.partition_imbalance == pytest.approx(7.0)
    assert again.spaces == found.spaces


def test_an_empty_folder_has_no_plan(spark: SparkSession, tmp_path: Path) -> None:
    found = run(spark, tmp_path)
    assert (found.source.rows, found.spaces, found.mode) == (0, (), "")
    nothing = job(spark, tmp_path / "empty", [], space(QUARTERS))
    assert (nothing.source.rows, nothing.spaces) == (0, ())


def test_files_that_describe_no_space_cannot_be_planned(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_rows(tmp_path, [row("s1-1")])
    found = run(spark, tmp_path)
    assert found.spaces == ()
    assert "No space can be planned: no file describes the spaces" in found.source.notices[0]


def test_one_row_cannot_be_divided(spark: SparkSession, tmp_path: Path) -> None:
    rows = [at("s1-1", 100, 300, "0-0.1-0", configurator=C1)]
    result = only(job(spark, tmp_path, rows, space(QUARTERS)))
    assert (result.plan, result.why) == (
        None,
        "there is one configurator only: work cannot be spread",
    )
    result = only(run(spark, tmp_path, speeds={C1: 1.0, C2: 1.0}))
    assert result.plan is None
    assert "0-0.1-0 has 100% of the work, and what lies there cannot be divided" in result.why


def test_a_hot_region_that_cannot_be_cut_gets_a_configurator_of_its_own(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = quarters(a=900, b=100, c=100, d=100)
    result = only(job(spark, tmp_path, rows, space(QUARTERS)))
    assert result.plan is not None
    assert result.plan.assignment == {"0-0.1-1": C2}
    assert result.after.imbalance == pytest.approx(1.5)  # 900 of 1,200: no map can change that
    # There it is alone: nothing is left to be done.
    rows = quarters(a=900, b=100, c=100, d=100)
    rows[1]["configurator"] = C2
    result = only(job(spark, tmp_path / "alone", rows, space(QUARTERS)))
    assert result.plan is None
    assert "0-0.1-0 has 75% of the work" in result.why


def test_balanced_work_stays_where_it_is(spark: SparkSession, tmp_path: Path) -> None:
    result = only(job(spark, tmp_path, quarters(a=110, b=100, c=100, d=100), space(QUARTERS)))
    assert result.plan is None
    assert "that is good enough" in result.why
    assert result.before == result.after


def test_a_plan_must_gain_what_is_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    found = job(spark, tmp_path, quarters(a=200, b=150, c=100, d=100), space(QUARTERS))
    assert only(found).plan is not None
    result = only(run(spark, tmp_path, min_gain=0.25))
    assert result.plan is None
    assert "and 0.25 is asked for" in result.why


def test_faster_configurators_get_more(spark: SparkSession, tmp_path: Path) -> None:
    rows = quarters(a=100, b=100, c=100, d=100)
    result = only(job(spark, tmp_path, rows, space(QUARTERS), speeds={C1: 3.0, C2: 1.0}))
    assert result.before.imbalance == pytest.approx(200 / 100)
    assert result.after.shares == pytest.approx({C1: 0.75, C2: 0.25})
    assert result.after.imbalance == pytest.approx(1.0)


def test_owners_that_a_service_tells_are_taken(spark: SparkSession, tmp_path: Path) -> None:
    owners = {f"1.0/{leaf}": C2 for leaf in PRICES}
    rows = quarters(a=100, b=100, c=100, d=100)
    found = job(spark, tmp_path, rows, space(QUARTERS), owners=owners, speeds={C1: 1, C2: 1})
    assert only(found).before.shares == {C1: 0.0, C2: 1.0}


def test_clocks_that_went_backwards_do_no_harm(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        {**each, "done_us": BEGAN - 5_000, "decided_us": each["decided_us"]}
        for each in quarters(a=300, b=300, c=100, d=100)
    ]
    rows.append(at("s1-9", 100, -400, "0-0.1-0"))
    found = job(spark, tmp_path, rows, space(QUARTERS))
    assert (found.source.backwards, only(found).work_ms) == (4, 0.8)
    assert only(found).plan is not None


def test_columns_of_other_releases_do_no_harm(spark: SparkSession, tmp_path: Path) -> None:
    rows = quarters(a=300, b=300, c=100, d=100)
    newer = REQUESTS.append(pa.field("colour", pa.string()))
    older = REQUESTS.remove(REQUESTS.get_field_index("slice_size"))
    write_rows(tmp_path, rows[:2], "a.parquet", footer(space(QUARTERS)), older)
    write_rows(tmp_path, rows[2:], "b.parquet", footer(space(QUARTERS)), newer)
    found = run(spark, tmp_path)
    assert only(found).work_ms == pytest.approx(0.8)
    assert "did not record how large slices were" in found.source.notices[0]


def test_a_file_that_vanishes_is_named(spark: SparkSession, tmp_path: Path) -> None:
    rows = quarters(a=300, b=300, c=100, d=100)
    write_rows(tmp_path, rows, "a.parquet", footer(space(QUARTERS)))
    gone = write_rows(tmp_path, rows, "b.parquet", footer(space(QUARTERS)))
    traces = find_traces(spark, str(tmp_path))
    gone.unlink()
    found = make_rebalance(spark, str(tmp_path), traces, RebalanceOptions())
    assert [file.name for file in found.source.skipped] == ["b.parquet"]
    assert only(found).work_ms == pytest.approx(0.8)


def test_fewer_regions_than_partitions_leave_partitions_idle(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [at("s1-1", 100, 100, configurator=C1), at("s1-2", 900, 100, configurator=C1)]
    found = job(spark, tmp_path, rows, space(None), partitions=12, speeds={C1: 1.0, C2: 1.0})
    result = only(found)
    assert result.plan is not None
    assert result.after.partitions < 12
    assert result.after.imbalance == pytest.approx(1.0)


def test_waiting_is_predicted_by_the_load_of_each_configurator(
    spark: SparkSession, tmp_path: Path
) -> None:
    # In one second, the first works for 0.8 s and the second not at all.
    rows = quarters(a=400_000, b=400_000, c=0, d=0)
    result = only(job(spark, tmp_path, rows, space(QUARTERS)))
    # A partial takes 200 ms on average, and waits for 0.8 / 0.2 times as long.
    assert result.before.waiting_ms == pytest.approx(800)
    assert result.before.latency_ms == pytest.approx(800 + 200 + 3)
    assert result.after.waiting_ms == pytest.approx(200 * 0.4 / 0.6)
    more = quarters(a=400_000, b=700_000, c=0, d=0)
    assert only(job(spark, tmp_path / "more", more, space(QUARTERS))).before.waiting_ms is None
