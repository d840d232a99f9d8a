"""Incremental runs: each file once, whatever happens in between, and reports on what they kept."""

import os
import signal
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from pyspark.sql import SparkSession

from dispatcher.reports.traces import REQUESTS
from spark.history.ingest import Ingested, NoHistory, ingest
from spark.history.report import make_report, percentiles
from spark.history.tables import INTERVAL_US, bucket_end_ms
from spark.report.model import LoadRow, Report
from spark.storage import Storage
from spark.traces import NoTraces
from tests.service import COMMAND
from tests.spark.quick import quick_environment, quick_words
from tests.spark.rows import BEGAN, row, write_rows
from tests.support import until_sync

START = 300.0  # seconds until a command has started Spark and read its files
A, B = "1.0/3-0", "1.0/3-1"
BEGIN = BEGAN // INTERVAL_US * INTERVAL_US
NEXT = BEGIN + INTERVAL_US
FIRST = [
    row("s1-1", partition=A, received_us=BEGIN, decided_us=400, slice_size=4),
    row("s1-1", partition=B, received_us=BEGIN, configurator="c2"),
    row("s1-2", partition=A, received_us=BEGIN + 10, decided_us=400, slice_size=4),
]
SECOND = [
    row("s1-1.2", kind="unsubscribe", partition=A, received_us=NEXT, decided_us=50)
    | {"adds": 0, "deletes": 4},
    # It failed before it was decided, and a clock was set back.
    row("a1-3", kind="advertise", partition=A, received_us=NEXT, done_us=BEGIN, decided_us=0)
    | {"outcome": "failed", "slice": 0, "slice_size": 0},
]
THIRD = [row("s1-9", partition=B, received_us=BEGIN + 20)]


@pytest.fixture(scope="module")
def state(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A history of four runs, of which one took nothing in, and one was killed."""
    folder = tmp_path_factory.mktemp("service")
    traces, state = folder / "traces" / "requests", str(folder / "state")
    write_rows(traces, FIRST, "a.parquet")
    assert ingest(spark, str(folder), state) == Ingested(1, 3, ())
    assert ingest(spark, str(folder), state) == Ingested(0, 0, ())
    write_rows(traces, SECOND, "b.parquet")
    kill_in_a_batch(folder, Path(state))
    write_rows(traces, THIRD, "c.parquet")
    assert ingest(spark, str(folder), state) == Ingested(2, 3, ())
    for file in traces.iterdir():
        file.unlink()  # a history outlives the traces
    return state


def kill_in_a_batch(folder: Path, state: Path) -> None:
    """Run the command, and kill it with all its processes when it has begun to write."""
    before = {path.name for path in state.glob("*/*/batch=*")}
    words = ["--state", str(state), *quick_words()]
    run = subprocess.Popen(
        [COMMAND, "trace", "ingest", folder, *words],
        env=quick_environment(),
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until_sync(lambda: {path.name for path in state.glob("*/*/batch=*")} - before, START)
    finally:
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    (new,) = {path.name for path in state.glob("*/*/batch=*")} - before
    assert not list(state.glob(f"*/files/{new}"))  # which would be written last


@pytest.fixture(scope="module")
def found(spark: SparkSession, state: str) -> Report:
    return make_report(spark, state)


def work(loads: Iterable[LoadRow]) -> dict[str, tuple[int, float, int]]:
    return {one.name: (one.partials, round(one.work_ms, 6), one.operations) for one in loads}


def test_each_file_counts_once_also_after_a_run_was_killed(found: Report) -> None:
    source = found.source
    assert (source.files, source.rows, source.requests) == (3, 6, 5)
    assert (source.begin_us, source.end_us) == (BEGIN, NEXT + INTERVAL_US)
    kinds = {k.kind: (k.requests, k.failed, k.partials, k.adds, k.deletes) for k in found.kinds}
    assert kinds == {
        "subscribe": (3, 0, pytest.approx(4 / 3), pytest.approx(8 / 3), 0.0),
        "unsubscribe": (1, 0, 1.0, 0.0, 4.0),
        "advertise": (1, 1, 1.0, 2.0, 0.0),
    }
    assert found.kinds[0].per_s == pytest.approx(3 / 600)
    assert "made from a history" in source.notices[0]


def test_a_history_has_the_work_of_partitions_and_configurators(found: Report) -> None:
    assert work(found.partitions) == {A: (4, 0.25, 10), B: (2, 0.2, 4)}
    assert work(found.configurators) == {"configurator-1": (5, 0.35, 12), "c2": (1, 0.1, 2)}
    assert {skew.over: skew.count for skew in found.skew} == {"partitions": 2, "configurators": 2}
    busiest = found.partitions[0]
    assert busiest.space == "stocks"
    assert busiest.share == pytest.approx(0.25 / 0.45)
    # 0.4 ms, 0.4 ms and 0.05 ms: each at the end of its bucket.
    assert 0.4 <= busiest.decided_p50_ms <= 0.44
    assert 3.0 <= busiest.pushed_p99_ms <= 3.3


def test_a_history_has_latency_and_a_timeline(found: Report) -> None:
    assert [stage.stage for stage in found.latency] == ["total", "queued", "decided", "pushed"]
    assert [stage.mean_ms for stage in found.latency] == pytest.approx([5.0, 1.0, 0.21, 3.0])
    assert found.timeline.bucket_s == 300.0
    assert [(bucket.begin_us, bucket.requests) for bucket in found.timeline.buckets] == [
        (BEGIN, {"subscribe": 3}),
        (NEXT, {"advertise": 1, "unsubscribe": 1}),
    ]
    assert [bucket.failed for bucket in found.timeline.buckets] == [0, 1]
    assert 5.0 <= found.timeline.buckets[1].p99_ms <= 5.5


def test_a_part_of_a_history_can_be_chosen(spark: SparkSession, state: str) -> None:
    assert make_report(spark, state, NEXT).source.requests == 2
    nothing = make_report(spark, state, None, BEGIN)
    assert (nothing.source.rows, nothing.kinds, nothing.source.notices) == (0, (), ())


def test_files_that_cannot_be_used_are_named_and_left_out(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    traces, state = tmp_path / "traces", str(tmp_path / "state")
    newer = REQUESTS.append(pa.field("colour", pa.string()))
    write_rows(traces, FIRST, "a copy.parquet", schema=newer)
    whole = write_rows(traces, [row(f"s1-{n}") for n in range(2_000)], "b.parquet").read_bytes()
    (traces / "b.parquet").write_bytes(whole[: len(whole) // 2])
    (traces / ".c.parquet").write_bytes(whole)
    write_rows(traces, [row("s1-9")], "d.parquet", schema=REQUESTS.remove(0))
    # A footer is right, and a page in the middle is not.
    middle = bytearray(whole)
    middle[4 : len(middle) // 2] = bytes(len(middle) // 2 - 4)
    (traces / "e.parquet").write_bytes(middle)
    write_rows(traces, [], "f.parquet")
    gone = write_rows(traces, SECOND, "g.parquet")
    first_open = Storage.open

    def open_late(storage: Storage, path: str) -> object:
        gone.unlink(missing_ok=True)  # after its rows were counted, and before they are summed up
        return first_open(storage, path)

    monkeypatch.setattr(Storage, "open", open_late)
    done = ingest(spark, str(traces), state)
    why = {file.name: file.why for file in done.skipped}
    assert sorted(why) == [".c.parquet", "b.parquet", "d.parquet", "e.parquet", "g.parquet"]
    assert (done.files, done.rows) == (1, 3)
    assert "still being written" in why[".c.parquet"]
    assert "is damaged" in why["b.parquet"]
    assert why["g.parquet"] == "it was deleted while it was read"
    assert "lacks the column request_id" in why["d.parquet"]
    assert "of its 2000 rows can be read" in why["e.parquet"]


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
    write_rows(tmp_path / "traces [1]", FIRST)
    with pytest.raises(NoTraces, match="takes for a pattern: rename it"):
        ingest(spark, str(tmp_path / "traces [1]"), state)
    (tmp_path / "empty").mkdir()
    assert ingest(spark, str(tmp_path / "empty"), state) == Ingested(0, 0, ())


def test_percentiles_come_from_buckets() -> None:
    assert percentiles({}) == (0.0, 0.0, 0.0)
    ends = {bucket: bucket_end_ms(bucket) for bucket in (0, 80, 88)}
    assert ends == pytest.approx({0: 0.001, 80: 1.024, 88: 2.048})
    assert percentiles({0: 50, 80: 45, 88: 5}) == (ends[0], ends[80], ends[88])
    assert percentiles({80: 1}) == (ends[80],) * 3
