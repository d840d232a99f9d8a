"""What the jobs make of rows before anything reaches the driver, worked out by hand."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertDataFrameEqual

from spark.history.tables import INTERVAL_US, LATENCIES, LOADS, PER_OCTAVE, REQUESTS, aggregate
from spark.reading import find_traces, read_rows
from spark.shapes.workload import filters_of
from spark.work import requests_of, with_work
from tests.spark.rows import BEGAN, row, write_rows

A, B = "1.0/3-0", "1.0/3-1"
BEGIN = BEGAN // INTERVAL_US * INTERVAL_US


def rows_of(spark: SparkSession, folder: Path, rows: Iterable[Mapping[str, Any]]) -> DataFrame:
    write_rows(folder, rows)
    return with_work(read_rows(spark, find_traces(spark, str(folder))))


def test_the_rows_of_a_request_become_one(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        row("s1-1", partition=A, received_us=BEGAN, decided_us=400, slice_size=4),
        row("s1-1", partition=B, received_us=BEGAN, done_us=BEGAN + 9_000, modifies=1),
        # An update has two rounds, of which the second one failed; a clock was set back.
        row("s1-1.2", kind="update", partition=A, received_us=BEGAN, done_us=BEGAN - 2),
        row("s1-1.2", kind="update", partition=A, received_us=BEGAN, done_us=BEGAN - 1)
        | {"adds": 0, "deletes": 3, "outcome": "failed"},
    ]
    columns = (
        "request_id string, kind string, space string, host string, target_id string,"
        " received_us long, done_us long, total_us long, work_us double, partials long,"
        " adds long, modifies long, deletes long, operations long, failed boolean"
    )
    begun = ("s1-1", "subscribe", "stocks", "h1", "s1-1")
    changed = ("s1-1.2", "update", "stocks", "h1", "s1-1")
    expected = spark.createDataFrame(
        [
            (*begun, BEGAN, BEGAN + 9_000, 9_000, 200.0, 2, 4, 1, 0, 5, False),
            (*changed, BEGAN, BEGAN - 1, None, 200.0, 1, 2, 0, 3, 5, True),
        ],
        columns,
    )
    found = requests_of(rows_of(spark, tmp_path, rows))
    assertDataFrameEqual(found, expected)


def test_filters_count_by_the_last_request_of_a_subscription(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [
        row("s1-1", filter="old"),
        row("s1-1.9", kind="update", filter="kept"),
        row("s1-1.10", kind="update", filter="refused", outcome="failed"),
        # Numbers say what came last, whatever clocks say.
        row("s1-2", filter="kept", received_us=BEGAN + 9_000),
        row("s1-2.3", kind="unsubscribe", filter="kept", received_us=BEGAN),
        row("s2-3", filter="kept", space="bonds"),
        row("a1-4", kind="advertise", filter="other"),
    ]
    expected = spark.createDataFrame(
        [("stocks", "kept", 2, 1), ("bonds", "kept", 1, 1)],
        "space string, filter string, subscriptions long, active long",
    )
    assertDataFrameEqual(filters_of(rows_of(spark, tmp_path, rows)), expected)


def test_a_history_adds_up_each_interval(spark: SparkSession, tmp_path: Path) -> None:
    at = BEGIN + 5
    rows = [
        row("s1-1", partition=A, received_us=at, decided_us=1_024, slice_size=4),
        row("s1-1", partition=B, received_us=at, decided_us=1_024, done_us=at + 4_096),
        # It was refused before it was decided.
        row("a1-2", kind="advertise", partition=A, received_us=at, done_us=at + 1, adds=0)
        | {"outcome": "failed", "slice": 0, "slice_size": 0, "decided_us": 0},
    ]
    rows[0] |= {"queued_us": 512, "pushed_us": 0, "done_us": at + 2_048}
    rows[1] |= {"queued_us": 512, "pushed_us": 0}
    found = aggregate(rows_of(spark, tmp_path, rows))
    by_name = "configurator-1"
    expected = {
        "requests": spark.createDataFrame(
            [
                (BEGIN, "stocks", "subscribe", 1, 0, 2, 4, 0, 0),
                (BEGIN, "stocks", "advertise", 1, 1, 1, 0, 0, 0),
            ],
            REQUESTS,
        ),
        "loads": spark.createDataFrame(
            [
                (BEGIN, "stocks", A, by_name, 2, 2, 256.0),
                (BEGIN, "stocks", B, by_name, 1, 2, 1_024.0),
            ],
            LOADS,
        ),
        "latencies": spark.createDataFrame(
            [
                (BEGIN, "total", "", "", 1, 12 * PER_OCTAVE, 4_096),
                (BEGIN, "total", "", "", 1, 0, 1),
                *(
                    (BEGIN, stage, partition, by_name, 1, bucket * PER_OCTAVE, us)
                    for partition in (A, B)
                    for stage, bucket, us in (("queued", 9, 512), ("decided", 10, 1_024))
                ),
                *((BEGIN, "pushed", partition, by_name, 1, 0, 0) for partition in (A, B)),
            ],
            LATENCIES,
        ),
    }
    assert found.keys() == expected.keys()
    for table, frame in found.items():
        assertDataFrameEqual(frame, expected[table])
