"""The workload of small traces, worked out by hand, and its file."""

from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from pyspark.sql import SparkSession

from configurators.state.trace_spaces import NoTraceSpaces
from dispatcher.reports.traces import REQUESTS
from spark.reading import find_traces
from spark.workload import job
from spark.workload.file import COLUMNS, BadWorkload, WorkloadFile, write_workload
from spark.workload.model import LeftOut, WorkloadAbout, WorkloadRequest
from tests.spark.rows import BEGAN, row, write_rows

A, B = "1.0/3-0", "1.0/3-1"


def at(number: int) -> dict[str, int]:
    return {"received_us": BEGAN + number}


def rebuilt(
    spark: SparkSession, path: Path, *times: int | None
) -> tuple[WorkloadAbout, list[WorkloadRequest]]:
    with job.rebuild(spark, find_traces(spark, str(path)), *times) as found:
        return found.about, list(found.requests)


def ids(requests: list[WorkloadRequest]) -> list[tuple[str, str]]:
    return [(request.kind, request.target_id) for request in requests]


def test_requests_come_once_each_in_the_order_of_their_arrival(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "PIECE", 2)  # several pieces: their order is that of the whole
    rows = [
        row("s1-2.9", kind="unsubscribe", regions=[], **at(40)),
        row("s1-1", partition=A, slice_size=4, **at(10)),
        row("s1-1", partition=B, slice_size=2, configurator="c2", **at(10)),
        row("s1-2", partition=A, slice_size=4, filter='{"a": 1}', **at(10)),
        row("s1-2.3", kind="update", partition=A, filter='{"a": 2}', **at(20)),
        row("s1-2.3", kind="update", partition=A, filter='{"a": 2}', **at(20)),  # second round
        row("a1-3", kind="advertise", host="h2", partition=A, configurator="c3", **at(5)),
    ]
    write_rows(tmp_path, rows)
    about, requests = rebuilt(spark, tmp_path)
    assert ids(requests) == [
        ("advertise", "a1-3"),
        ("subscribe", "s1-1"),
        ("subscribe", "s1-2"),
        ("update", "s1-2"),
        ("unsubscribe", "s1-2"),
    ]
    assert requests[3] == WorkloadRequest(BEGAN + 20, "update", "stocks", "h1", "s1-2", '{"a": 2}')
    assert about.requests == {"advertise": 1, "subscribe": 2, "unsubscribe": 1, "update": 1}
    assert (about.total, about.hosts, about.left_out) == (5, ("h1", "h2"), LeftOut())
    # 7 partials; two of a slice of four, one of a slice of two, four slices of one: 5 slices.
    assert about.slice_size == round(7 / 5)
    last = {"1.0/all": "configurator-1", A: "configurator-1", B: "c2"}
    assert about.owners == last


def test_what_was_refused_has_no_effect(spark: SparkSession, tmp_path: Path) -> None:
    refused: dict[str, Any] = {"outcome": "failed"}
    rows = [
        row("s1-1", partition=A, **at(1)),
        row("s1-1", partition=B, **at(1), **refused),  # one partition is enough
        row("s1-2", **at(2)),
        row("s1-2.3", kind="update", **at(3), **refused),
        # An end that was taken back: the partition was told the regions again.
        row("s1-2.4", kind="unsubscribe", regions=[], **at(4), **refused),
        row("s1-2.4", kind="unsubscribe", **at(4)),
        row("s1-3", **at(5)),
        # An end that was tried again until it succeeded.
        row("s1-3.2", kind="unsubscribe", regions=[], **at(6), **refused),
        row("s1-3.2", kind="unsubscribe", regions=[], **at(6)),
    ]
    write_rows(tmp_path, rows)
    about, requests = rebuilt(spark, tmp_path)
    assert ids(requests) == [("subscribe", "s1-2"), ("subscribe", "s1-3"), ("unsubscribe", "s1-3")]
    assert about.left_out == LeftOut(refused=3)


def test_records_that_began_before_the_traces(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        row("s1-1.7", kind="unsubscribe", **at(1)),
        row("a1-2.3", kind="update", filter='{"a": 1}', **at(2)),  # has all that a begin needs
        row("a1-2.10", kind="update", filter='{"a": 2}', **at(3)),  # 10 is after 3
        row("a1-2.11", kind="unadvertise", **at(4)),
        row("a1-2.12", kind="update", **at(5)),  # cannot be
        row("s1-4", kind="fold", **at(6)),  # of a newer release
    ]
    write_rows(tmp_path, rows)
    about, requests = rebuilt(spark, tmp_path)
    assert ids(requests) == [("advertise", "a1-2"), ("update", "a1-2"), ("unadvertise", "a1-2")]
    assert [request.filter for request in requests[:2]] == ['{"a": 1}', '{"a": 2}']
    assert (about.first_seen, about.left_out) == (1, LeftOut(began_before=2, unknown=1))
    # The same, by choosing a time.
    write_rows(tmp_path, [row("s1-1", **at(-5))], "b.parquet")
    assert rebuilt(spark, tmp_path)[0].left_out.began_before == 1
    assert rebuilt(spark, tmp_path, BEGAN)[0].left_out.began_before == 2


def test_a_clock_that_went_backwards_does_not_reorder_a_record(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [
        row("s1-1", **at(100)),
        row("s1-1.2", kind="unsubscribe", **at(20)),  # by another process
        row("s1-2", **at(50)),
    ]
    write_rows(tmp_path, rows)
    about, requests = rebuilt(spark, tmp_path)
    assert ids(requests) == [("subscribe", "s1-2"), ("subscribe", "s1-1"), ("unsubscribe", "s1-1")]
    assert [request.at_us - BEGAN for request in requests] == [50, 100, 100]
    assert about.moved == 1


def test_in_mode_sea_partitions_have_no_owner(spark: SparkSession, tmp_path: Path) -> None:
    write_rows(tmp_path, [row("s1-1", mode="sea", slice_size=None)])
    about, _ = rebuilt(spark, tmp_path)
    assert (about.owners, about.slice_size) == ({}, 1)


def test_traces_of_other_releases_and_empty_ones(spark: SparkSession, tmp_path: Path) -> None:
    assert rebuilt(spark, tmp_path) == (WorkloadAbout({}), [])
    newer = REQUESTS.append(pa.field("colour", pa.string()))
    write_rows(tmp_path, [row("s1-1", colour="red")], schema=newer)
    size = REQUESTS.get_field_index("slice_size")
    write_rows(tmp_path, [row("s1-2")], "b.parquet", schema=REQUESTS.remove(size))
    assert ids(rebuilt(spark, tmp_path)[1]) == [("subscribe", "s1-1"), ("subscribe", "s1-2")]


def test_a_file_that_vanishes_is_passed_over(spark: SparkSession, tmp_path: Path) -> None:
    gone = write_rows(tmp_path, [row("s1-1")], "a.parquet")
    write_rows(tmp_path, [row("s1-2")], "b.parquet")
    traces = find_traces(spark, str(tmp_path))
    gone.unlink()
    with job.rebuild(spark, traces) as found:
        assert ids(list(found.requests)) == [("subscribe", "s1-2")]


def test_a_workload_is_written_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "workload.parquet"
    requests = [
        WorkloadRequest(number, "subscribe", "stocks", "h1", f"s1-{number}", "{}")
        for number in range(25_000)
    ]
    about = WorkloadAbout({"subscribe": 25_000}, hosts=("h1",), owners={A: "c1"})
    write_workload(path, iter(requests), about, {"other": "entry"})
    found = WorkloadFile(path)
    assert found.about == about
    assert list(found.requests()) == requests
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    assert path.stat().st_mode & 0o077 == 0
    with pytest.raises(NoTraceSpaces):
        found.spaces()


def test_a_file_that_is_no_workload_is_refused_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "other.parquet"
    with pytest.raises(BadWorkload, match="cannot be read"):
        WorkloadFile(path)
    path.write_bytes(b"no Parquet")
    with pytest.raises(BadWorkload, match="cannot be read"):
        WorkloadFile(path)
    pq.write_table(pa.table({"at_us": [1]}), path)
    with pytest.raises(BadWorkload, match="lacks the column kind"):
        WorkloadFile(path)
    values: dict[str, Any] = {name: ["x"] for name in COLUMNS.names}
    pq.write_table(pa.table(values), path)
    with pytest.raises(BadWorkload, match="the column at_us is not of type int64"):
        WorkloadFile(path)
    pq.write_table(pa.table({**values, "at_us": [1]}), path)
    with pytest.raises(BadWorkload, match="make one with `dzflow trace replay"):
        WorkloadFile(path)
    with pytest.raises(BadWorkload, match="cannot be written"):
        write_workload(tmp_path / "nowhere" / "f", [], WorkloadAbout({}), {})
