"""The figures of a report, worked out by hand for small traces."""

from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from pyspark.sql import SparkSession

from configurators.state.spaces import LoadedSpace, new_space
from configurators.state.trace_spaces import encode_footer
from dispatcher.reports.traces import REQUESTS
from dzflow.filters import parse_filter
from spark.reading import find_traces, read_rows
from spark.report.job import make_report
from spark.report.model import Bin, Histogram, Report, Skew
from spark.report.rates import MOST_BUCKETS, bucket_length
from spark.report.skew import skew_of
from spark.work import requests_of, with_work
from tests.spark.rows import BEGAN, row, write_rows

SECOND = 1_000_000
SCHEMA = {
    "attributes": [
        {"name": "price", "type": "int", "min": 0, "max": 1023, "bits": 10},
        {"name": "volume", "type": "int", "min": 0, "max": 15, "bits": 4},
    ]
}
A, B = "1.0/3-0", "1.0/3-1"


def report(spark: SparkSession, path: Path, *times: int | None) -> Report:
    return make_report(spark, str(path), find_traces(spark, str(path)), *times)


@pytest.fixture(scope="module")
def known(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """A subscription with two partials, one of another host, an end, and a failure."""
    folder = tmp_path_factory.mktemp("known")
    rows = [
        row("s1-1", partition=A, received_us=BEGAN, decided_us=400, slice_size=4),
        row("s1-1", partition=B, received_us=BEGAN, done_us=BEGAN + 9_000, configurator="c2"),
        row("s1-2", partition=A, received_us=BEGAN + SECOND, decided_us=400, slice_size=4)
        | {"host": "h2", "queued_us": 7_000},
        row("s1-1.2", kind="unsubscribe", partition=A, received_us=BEGAN + 10 * SECOND)
        | {"adds": 0, "deletes": 4, "decided_us": 50},
        row("a1-3", kind="advertise", partition=A, received_us=BEGAN + 10 * SECOND)
        | {"host": "h3", "outcome": "failed", "slice": 0, "slice_size": 0, "decided_us": 0},
    ]
    write_rows(folder, rows)
    return report(spark, folder)


def test_a_request_with_several_partials_is_counted_once(known: Report) -> None:
    source = known.source
    assert (source.rows, source.requests, source.files) == (5, 4, 1)
    assert (source.begin_us, source.end_us) == (BEGAN, BEGAN + 10 * SECOND + 5_000)
    assert [(kind.kind, kind.requests, kind.failed, kind.partials) for kind in known.kinds] == [
        ("subscribe", 2, 0, 1.5),
        ("advertise", 1, 1, 1.0),
        ("unsubscribe", 1, 0, 1.0),
    ]


def test_rows_of_requests_are_moved_once_and_never_sorted(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_rows(tmp_path, [row("s1-1")])
    rows = with_work(read_rows(spark, find_traces(spark, str(tmp_path))))
    requests_of(rows).explain()
    plan = capsys.readouterr().out
    assert plan.count("Exchange") == 1
    assert "HashAggregate" in plan
    assert "Sort" not in plan


def test_flow_operations_are_added_up_by_request(known: Report) -> None:
    found = {kind.kind: (kind.adds, kind.modifies, kind.deletes) for kind in known.kinds}
    assert found["subscribe"] == (3.0, 0.0, 0.0)  # 2 + 2, and 2
    assert found["unsubscribe"] == (0.0, 0.0, 4.0)
    assert known.operations == Histogram(4, 3.0, 2, 4, 4, 4, (Bin(2.0, 2), Bin(4.0, 2)))


def test_work_is_the_share_of_a_slices_decision_time(known: Report) -> None:
    assert {load.name: load.partials for load in known.partitions} == {A: 4, B: 1}
    work = {load.name: load.work_ms for load in known.partitions}
    assert work == pytest.approx({A: 0.25, B: 0.1})  # 400/4 + 400/4 + 50, and 100
    assert [load.share for load in known.partitions] == pytest.approx([0.25 / 0.35, 0.1 / 0.35])
    assert [load.name for load in known.configurators] == ["configurator-1", "c2"]
    assert {load.space for load in known.partitions} == {"stocks"}
    assert {host.host: host.requests for host in known.hosts} == {"h1": 2, "h2": 1, "h3": 1}
    by_host = {host.host: host.work_ms for host in known.hosts}
    assert by_host == pytest.approx({"h1": 0.25, "h2": 0.1, "h3": 0.0})


def test_latency_is_that_of_requests_and_its_stages_those_of_partials(known: Report) -> None:
    stages = {stage.stage: stage for stage in known.latency}
    assert list(stages) == ["total", "queued", "decided", "pushed"]
    assert (stages["total"].p50_ms, stages["total"].max_ms) == (5.0, 9.0)
    assert stages["total"].mean_ms == 6.0  # 9, 5, 5, 5
    assert (stages["queued"].p50_ms, stages["queued"].max_ms) == (1.0, 7.0)
    assert stages["pushed"].mean_ms == 3.0
    partition = known.partitions[0]
    assert (partition.queued_p50_ms, partition.queued_p99_ms) == (1.0, 7.0)


def test_the_timeline_has_a_bucket_for_each_second_with_requests(known: Report) -> None:
    assert known.timeline.bucket_s == 1.0
    assert [
        ((bucket.begin_us - BEGAN) // SECOND, bucket.requests, bucket.failed)
        for bucket in known.timeline.buckets
    ] == [(0, {"subscribe": 1}, 0), (1, {"subscribe": 1}, 0), (10, OTHERS, 1)]
    assert known.timeline.buckets[0].p99_ms == 9.0
    assert known.kinds[0].peak_per_s == 1.0


OTHERS = {"advertise": 1, "unsubscribe": 1}


def test_slices_are_counted_by_their_size(known: Report) -> None:
    # Two rows of slices of four are half a slice; two rows are slices of one.
    slices = known.slices
    assert slices is not None
    assert slices.mean == pytest.approx((4 * 0.5 + 1 * 2) / 2.5)
    assert (slices.p50, slices.max) == (1.0, 4.0)


def test_lifetimes_are_from_begin_to_end(known: Report) -> None:
    subscriptions = next(churn for churn in known.churn if churn.kind == "subscription")
    assert (subscriptions.begun, subscriptions.updated, subscriptions.ended) == (2, 0, 1)
    assert subscriptions.lifetime_s is not None
    assert subscriptions.lifetime_s.mean == pytest.approx(10 - 0.009 + 0.005)


def test_the_most_expensive_requests_come_with_their_filters(known: Report) -> None:
    first = known.expensive[0]
    assert (first.id, first.host, first.partials, first.regions) == ("s1-1", "h1", 2, 2)
    assert first.work_ms == pytest.approx(0.2)
    assert (first.total_ms, first.operations) == (9.0, 4)
    assert first.filter == "{}"
    assert len(known.expensive) == 4


def test_skew_compares_the_busiest_with_the_mean(known: Report) -> None:
    by = {skew.over: skew for skew in known.skew}
    assert by["partitions"].max_over_mean == pytest.approx(0.25 / 0.175)
    assert by["hosts"].count == 3
    assert by["hosts"].max_over_mean == pytest.approx(1.5)


def test_files_without_schemas_give_a_notice_instead_of_hot_regions(known: Report) -> None:
    assert known.hot == ()
    assert "no file describes the spaces" in known.source.notices[0]


def test_hot_regions_are_told_in_words(spark: SparkSession, tmp_path: Path) -> None:
    # Partitions are named by the number of their space in hexadecimal.
    doc = new_space("stocks", 31, SCHEMA, "legs", 7)
    leaves = doc.versions[0].map.leaves()
    there = {"partition": f"1f.0/{leaves[0]}", "decided_us": 300}
    rows = [
        row("s1f-1", regions=["111101", "111011"], **there),  # price above 896, both
        row("s1f-2", regions=["111"], **there),
        row("s1f-3", regions=["0" + "*" * 9 + "0001"], **there),
        row("s1f-4", regions=["*"], **there),
        row("s1f-5", regions=["111"], partition="1f.1/all", decided_us=300),  # another version
        row("s1f-6", regions=["no region"], decided_us=0),
        row("s1-1", space="gone"),
        row("a1f-1", kind="advertise", regions=["000"], **there),
    ]
    write_rows(tmp_path, rows, footer=encode_footer([doc]).entries)
    found = report(spark, tmp_path)
    assert [(hot.text, hot.regions, hot.share) for hot in found.hot] == [
        ("price >= 896", 3, 0.5),
        ("anything", 1, 0.25),
        ("price <= 511 and volume <= 1", 1, 0.25),
    ]
    price, volume = found.heat
    assert (price.attribute, volume.attribute) == ("price", "volume")
    assert price.open == 0.25
    assert price.shares == pytest.approx([0.25 / 4] * 4 + [0, 0, 0, 0.5])
    assert (price.labels[0], price.labels[-1]) == ("price <= 127", "price >= 896")
    assert volume.open == 0.75
    assert volume.shares == pytest.approx([0.25] + [0] * 7)
    other, unknown = found.source.notices
    assert "lack 20.0% of its work, which was done under other versions" in other
    assert "Hot regions of gone have no words" in unknown
    # Partitions of the map that had no work count as well.
    (skew,) = (skew for skew in found.skew if skew.over == "partitions")
    assert skew.count == len(leaves) + 3


def test_parts_of_an_attribute_without_values_or_words_are_left_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = {
        "attributes": [
            {"name": "size", "type": "enum", "values": ["S", "M", "L"]},
            {"name": "name", "type": "string"},
        ]
    }
    doc = new_space("shirts", 1, schema, "legs", 1)
    index = LoadedSpace.of(doc).current.index
    texts = [f"size == 'L' and name == 'n{number}'" for number in range(8)]
    rows = [
        row(f"s1-{number}", space="shirts", regions=[str(region)])
        for number, text in enumerate(texts)
        for region in index.regions(parse_filter(index.space, text))
    ]
    write_rows(tmp_path, rows, footer=encode_footer([doc]).entries)
    found = report(spark, tmp_path)
    size = next(heat for heat in found.heat if heat.attribute == "size")
    assert size.labels == ('size == "S"', 'size == "M"', 'size == "L"')
    # A hash of the name is in the regions, but does not tell hot regions apart.
    texts = [hot.text for hot in found.hot]
    assert len(set(texts)) == len(texts)


def test_hot_regions_of_prefixes_are_told_too(spark: SparkSession, tmp_path: Path) -> None:
    schema = {**SCHEMA, "index": {"kind": "zorder"}}
    footer = encode_footer([new_space("stocks", 1, schema, "lpm", 1)]).entries
    write_rows(tmp_path, [row("s1-1", regions=["1"])], footer=footer)
    found = report(spark, tmp_path)
    assert [hot.text for hot in found.hot] == ["price >= 512"]
    assert found.heat == ()


def test_updates_of_records_that_neither_began_nor_ended_are_counted(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [
        row("s1-1.5", kind="update", partition=A),
        row("s1-1.5", kind="update", partition=A, adds=0, deletes=2),  # its second round
        row("a1-2.4", kind="update", slice=0, slice_size=None, outcome="failed", pushed_us=0),
    ]
    write_rows(tmp_path, rows)
    found = report(spark, tmp_path)
    churn = {one.kind: (one.begun, one.updated, one.ended) for one in found.churn}
    assert churn == {"subscription": (0, 1, 0)}  # the other one failed
    assert found.kinds[0].partials == 1.0
    # What was not decided has no stages, and a short trace no higher mean rate than its bucket's.
    assert found.latency[-1].p50_ms == 3.0
    assert found.kinds[0].per_s == found.kinds[0].peak_per_s == 2.0
    assert "did not record how large slices were" in found.source.notices[0]


def test_empty_traces_give_an_empty_report(spark: SparkSession, tmp_path: Path) -> None:
    found = report(spark, tmp_path)
    assert (found.source.rows, found.source.requests, found.kinds) == (0, 0, ())
    write_rows(tmp_path, [])
    assert report(spark, tmp_path).source.files == 1
    write_rows(tmp_path, [row("s1-1")], "b.parquet")
    assert report(spark, tmp_path, BEGAN + SECOND).source.rows == 0


def test_clocks_that_went_backwards_are_counted_and_spoil_no_latency(
    spark: SparkSession, tmp_path: Path
) -> None:
    back: dict[str, Any] = {"received_us": BEGAN + SECOND, "done_us": BEGAN}
    write_rows(tmp_path, [row("s1-1"), row("s1-2", **back)])
    found = report(spark, tmp_path)
    assert (found.source.backwards, found.source.requests) == (1, 2)
    assert (found.latency[0].mean_ms, found.latency[0].max_ms) == (5.0, 5.0)
    assert {each.id: each.total_ms for each in found.expensive} == {"s1-1": 5.0, "s1-2": None}


def test_rows_of_a_machine_that_did_not_know_the_time_are_told(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_rows(tmp_path, [row("s1-1"), row("s1-2", received_us=17 * SECOND), row("s1-3")])
    found = report(spark, tmp_path)
    assert found.source.begin_us == 17 * SECOND
    assert found.source.notices[0].startswith("1 rows are from before 2020, so a clock was wrong")
    known = report(spark, tmp_path, BEGAN)
    assert (known.source.requests, known.timeline.bucket_s) == (2, 1.0)
    assert not any("before 2020" in notice for notice in known.source.notices)


def test_one_row_is_enough_even_if_its_clock_went_backwards_and_other_files_vanish(
    spark: SparkSession, tmp_path: Path
) -> None:
    newer = REQUESTS.append(pa.field("colour", pa.string()))
    back = row("s1-1", received_us=BEGAN + SECOND, done_us=BEGAN, colour="red")
    write_rows(tmp_path, [back], schema=newer)
    gone = write_rows(tmp_path, [row("s1-2")], "gone.parquet")
    traces = find_traces(spark, str(tmp_path))
    gone.unlink()
    found = make_report(spark, str(tmp_path), traces)
    assert [file.name for file in found.source.skipped] == [gone.name]
    assert found.source.requests == 1
    assert [stage.stage for stage in found.latency] == ["queued", "decided", "pushed"]
    assert found.timeline.buckets[0].p50_ms == 0.0
    assert found.skew[0] == Skew("partitions", 1, 1.0, 1.0)


@pytest.mark.parametrize("seconds", [0.0, 1.0, 239.0, 241.0, 86_400.0, 1e7, 1e9])
def test_a_timeline_is_bounded(seconds: float) -> None:
    assert seconds / bucket_length(seconds) <= MOST_BUCKETS


def test_nothing_to_be_spread_has_no_skew() -> None:
    assert skew_of("hosts", []) is None
    assert skew_of("hosts", [0.0, 0.0]) is None
    assert skew_of("hosts", [3.0, 1.0]) == Skew("hosts", 2, 1.5, 0.75)
