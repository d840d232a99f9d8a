"""Incremental runs: each file once, and reports that equal those on the traces themselves."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dispatcher.reports.traces import REQUESTS
from spark.history import ingest as ingesting
from spark.history.ingest import Ingested, NoHistory, ingest
from spark.history.report import make_report, percentiles
from spark.history.tables import INTERVAL_US, bucket_end_ms
from spark.reading import NoTraces, find_traces
from spark.report.job import make_report as make_trace_report
from spark.report.model import LoadRow, Report
from spark.session import spark_errors
from tests.spark.rows import BEGAN, row, write_rows

A, B = "1.0/3-0", "1.0/3-1"
BEGIN = BEGAN // INTERVAL_US * INTERVAL_US
FIRST = [
    row("s1-1", partition=A, received_us=BEGIN, decided_us=400, slice_size=4),
    row("s1-1", partition=B, received_us=BEGIN, configurator="c2"),
    row("s1-2", partition=A, received_us=BEGIN + 10, decided_us=400, slice_size=4),
]
SECOND_FILE = [
    row("s1-1.2", kind="unsubscribe", partition=A, received_us=BEGIN + INTERVAL_US, adds=0)
    | {"deletes": 4, "decided_us": 50},
    row("a1-3", kind="advertise", partition=A, received_us=BEGIN + INTERVAL_US, done_us=BEGIN)
    | {"outcome": "failed", "slice": 0, "slice_size": 0, "decided_us": 0},
]


def work(loads: Iterable[LoadRow]) -> dict[str, tuple[int, float, int]]:
    return {one.name: (one.partials, round(one.work_ms, 6), one.operations) for one in loads}


def same(found: Report, expected: Report) -> None:
    """The parts that a history keeps say what the report on the traces says."""
    assert (found.source.rows, found.source.requests) == (
        expected.source.rows,
        expected.source.requests,
    )
    per_request = [
        (k.kind, k.requests, k.failed, k.partials, k.adds, k.deletes) for k in found.kinds
    ]
    assert per_request == [
        (k.kind, k.requests, k.failed, k.partials, k.adds, k.deletes) for k in expected.kinds
    ]
    assert work(found.partitions) == work(expected.partitions)
    assert work(found.configurators) == work(expected.configurators)
    stages = {stage.stage: stage for stage in expected.latency}
    for stage in found.latency:
        assert stage.mean_ms == pytest.approx(stages[stage.stage].mean_ms)
        assert stages[stage.stage].p50_ms <= stage.p50_ms <= 1.1 * stages[stage.stage].p50_ms


def test_new_files_are_taken_in_once_and_reported(spark: SparkSession, tmp_path: Path) -> None:
    traces, state = tmp_path / "traces", str(tmp_path / "state")
    write_rows(traces / "requests", FIRST, "a.parquet")
    assert ingest(spark, str(traces), state) == Ingested(1, 3, ())
    assert ingest(spark, str(traces), state) == Ingested(0, 0, ())
    write_rows(traces / "requests", SECOND_FILE, "b.parquet")
    assert ingest(spark, str(traces), state) == Ingested(1, 2, ())
    found = make_report(spark, state)
    same(found, make_trace_report(spark, "", find_traces(spark, str(traces))))
    assert (found.source.files, found.source.begin_us) == (2, BEGIN)
    assert found.source.end_us == BEGIN + 2 * INTERVAL_US
    assert [(bucket.begin_us - BEGIN, bucket.requests) for bucket in found.timeline.buckets] == [
        (0, {"subscribe": 2}),
        (INTERVAL_US, {"advertise": 1, "unsubscribe": 1}),
    ]
    assert found.timeline.buckets[1].failed == 1
    assert found.timeline.buckets[0].p99_ms == pytest.approx(5, rel=0.1)
    assert "made from a history" in found.source.notices[0]
    # A history outlives the traces, and can be asked about a part of its time.
    (traces / "requests" / "a.parquet").unlink()
    assert make_report(spark, state, BEGIN + INTERVAL_US).source.requests == 2
    assert make_report(spark, state, None, BEGIN + INTERVAL_US).source.requests == 2
    nothing = make_report(spark, state, BEGIN + 9 * INTERVAL_US)
    assert (nothing.source.rows, nothing.kinds, nothing.source.notices) == (0, (), ())


@pytest.mark.parametrize("table", ["loads", "files"])
def test_a_run_that_is_killed_is_continued_without_doubles(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    traces, state = tmp_path / "requests", str(tmp_path / "state")
    write = ingesting.write_batch
    write_rows(traces, FIRST, "a.parquet")
    ingest(spark, str(traces), state)

    def killed(content: Any, path: str, number: int) -> None:
        write(content, path, number)
        if path.endswith(table):
            raise RuntimeError("killed")

    write_rows(traces, SECOND_FILE, "b.parquet")
    with monkeypatch.context() as patched:
        patched.setattr(ingesting, "write_batch", killed)
        with pytest.raises(spark_errors()):
            ingest(spark, str(traces), state)
    write_rows(traces, [row("s1-9")], "c.parquet")  # comes before the next run
    done = ingest(spark, str(traces), state)
    assert (done.files, done.rows, done.skipped) == (2, 3, ())
    same(make_report(spark, state), make_trace_report(spark, "", find_traces(spark, str(traces))))


def test_files_that_cannot_be_used_are_named_and_left_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    traces, state = tmp_path / "traces [1]", str(tmp_path / "state")
    write_rows(traces, FIRST, "a copy.parquet")
    whole = write_rows(traces, [row(f"s1-{n}") for n in range(2_000)], "b.parquet").read_bytes()
    (traces / "b.parquet").write_bytes(whole[: len(whole) // 2])
    (traces / ".c.parquet").write_bytes(whole)
    write_rows(traces, [row("s1-9")], "d.parquet", schema=REQUESTS.remove(0))
    # A footer is right, and a page in the middle is not.
    middle = bytearray(whole)
    middle[4 : len(middle) // 2] = bytes(len(middle) // 2 - 4)
    (traces / "e.parquet").write_bytes(middle)
    write_rows(traces, [], "f.parquet")
    done = ingest(spark, str(traces), state)
    assert (done.files, done.rows) == (1, 3)
    why = {file.name: file.why for file in done.skipped}
    assert sorted(why) == [".c.parquet", "b.parquet", "d.parquet", "e.parquet"]
    assert "still being written" in why[".c.parquet"]
    assert "is damaged" in why["b.parquet"]
    assert "lacks the column request_id" in why["d.parquet"]
    assert "of its 2000 rows can be read" in why["e.parquet"]
    assert make_report(spark, state).source.rows == 3
    # A file that was being written is taken in when it is complete.
    (traces / ".c.parquet").rename(traces / "c.parquet")
    assert ingest(spark, str(traces), state).rows == 2_000


def test_a_wrong_folder_is_an_error_that_says_what_to_do(
    spark: SparkSession, tmp_path: Path
) -> None:
    state = str(tmp_path / "state")
    with pytest.raises(NoTraces, match="does not exist"):
        ingest(spark, str(tmp_path / "nowhere"), state)
    with pytest.raises(NoTraces, match="is a file: name the folder"):
        ingest(spark, str(write_rows(tmp_path / "traces", FIRST)), state)
    with pytest.raises(NoHistory, match="make one with `dzflow trace ingest`"):
        make_report(spark, state)
    (tmp_path / "empty").mkdir()
    assert ingest(spark, str(tmp_path / "empty"), state) == Ingested(0, 0, ())


def test_percentiles_come_from_buckets() -> None:
    assert percentiles({}) == (0.0, 0.0, 0.0)
    ends = {bucket: bucket_end_ms(bucket) for bucket in (0, 80, 88)}
    assert ends == pytest.approx({0: 0.001, 80: 1.024, 88: 2.048})
    assert percentiles({0: 50, 80: 45, 88: 5}) == (ends[0], ends[80], ends[88])
    assert percentiles({80: 1}) == (ends[80],) * 3
