"""Files of traces that can be used are read; the others are named, with the reason."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from pyspark.sql import SparkSession

from configurators.environment import Clock
from dispatcher.reports.trace_address import spark_address
from dispatcher.reports.trace_storage import open_storage
from dispatcher.reports.trace_writer import TraceWriter
from dispatcher.reports.traces import REQUESTS
from spark.reading import find_traces, may_have_rows, read_rows, vanished
from spark.rebalance.job import make_rebalance
from spark.rebalance.options import RebalanceOptions
from spark.report.job import make_report
from spark.shapes.job import make_shapes
from spark.shapes.options import ShapesOptions
from spark.traces import NoTraces, Source, Traces
from tests.spark.rows import BEGAN, row, write_rows


def why(skipped: object, name: str) -> str:
    found = {file.name: file.why for file in skipped}  # type: ignore[attr-defined]
    return str(found[name])


def ids(spark: SparkSession, path: Path, *times: int | None) -> list[str]:
    rows = read_rows(spark, find_traces(spark, str(path)), *times)
    return sorted(found["request_id"] for found in rows.collect())


@pytest.mark.parametrize("inner", ["traces/requests", "requests", ""])
def test_traces_are_found_in_a_data_folder_and_below(
    spark: SparkSession, tmp_path: Path, inner: str
) -> None:
    write_rows(tmp_path / inner, [row("s1-1"), row("s1-2")])
    assert ids(spark, tmp_path) == ["s1-1", "s1-2"]


def test_traces_that_were_written_to_an_address_are_found_there(
    spark: SparkSession, tmp_path: Path
) -> None:
    address = (tmp_path / "some where").as_uri()
    storage = open_storage(address, 1 << 30, Clock())
    writer = TraceWriter(storage, "requests", "d1", REQUESTS, tuple, Clock(), 300.0, 100, 100)
    written = row("s1-1")
    writer.put(tuple(written[name] for name in REQUESTS.names))
    writer.write(last=True)
    found = find_traces(spark, spark_address(address))
    assert found.skipped == ()
    assert [each.asDict() for each in read_rows(spark, found).collect()] == [written]


def test_one_file_can_be_named(spark: SparkSession, tmp_path: Path) -> None:
    path = write_rows(tmp_path, [row("s1-1")])
    write_rows(tmp_path, [row("s1-2")], "20231114T230000-a-2.parquet")
    assert ids(spark, path) == ["s1-1"]


def test_a_path_without_traces_is_an_error_that_says_so(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(NoTraces, match="does not exist; name the data folder"):
        find_traces(spark, str(tmp_path / "nowhere"))
    for strange in ("nosuch://storage/traces", "run:1", ""):
        with pytest.raises(NoTraces, match="cannot be read"):
            find_traces(spark, strange)
    (tmp_path / "notes.txt").write_text("no Parquet")
    with pytest.raises(NoTraces, match="is no Parquet file"):
        find_traces(spark, str(tmp_path / "notes.txt"))


def test_an_empty_folder_has_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    found = find_traces(spark, str(tmp_path))
    assert (found.files, found.skipped) == ((), ())
    assert read_rows(spark, found).columns == REQUESTS.names
    assert ids(spark, tmp_path) == []


def test_requests_are_chosen_by_the_time_at_which_they_arrived(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_rows(tmp_path, [row(f"s1-{n}", received_us=BEGAN + n) for n in range(4)])
    assert ids(spark, tmp_path, BEGAN + 1, BEGAN + 3) == ["s1-1", "s1-2"]
    assert ids(spark, tmp_path, BEGAN + 2, None) == ["s1-2", "s1-3"]
    assert ids(spark, tmp_path, None, BEGAN + 2) == ["s1-0", "s1-1"]


def test_files_that_cannot_be_used_are_named_and_left_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    good = write_rows(tmp_path, [row("s1-1")], "a.parquet")
    whole = write_rows(tmp_path, [row(f"s1-{n}") for n in range(2_000)], "b.parquet").read_bytes()
    (tmp_path / "b.parquet").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "c.parquet").write_bytes(b"")
    (tmp_path / ".d.parquet").write_bytes(whole)
    write_rows(tmp_path, [row("s1-9")], "e.parquet", schema=REQUESTS.remove(0))
    at = REQUESTS.get_field_index("received_us")
    other = REQUESTS.set(at, pa.field("received_us", pa.int32()))
    write_rows(tmp_path, [row("s1-9", received_us=1, done_us=2)], "f.parquet", schema=other)
    # A footer is right, and a page in the middle is not.
    middle = bytearray(whole)
    middle[4 : len(middle) // 2] = bytes(len(middle) // 2 - 4)
    (tmp_path / "g.parquet").write_bytes(middle)
    (tmp_path / "notes.txt").write_text("no Parquet")

    found = find_traces(spark, str(tmp_path))
    assert [file.path.rsplit("/", 1)[-1] for file in found.files] == [good.name]
    assert [file.name for file in found.skipped] == [
        ".d.parquet",
        *(f"{letter}.parquet" for letter in "bcefg"),
    ]
    assert "still being written" in why(found.skipped, ".d.parquet")
    assert "is damaged" in why(found.skipped, "b.parquet")
    assert "is damaged" in why(found.skipped, "c.parquet")
    assert "lacks the column request_id" in why(found.skipped, "e.parquet")
    assert "received_us is of type INT32" in why(found.skipped, "f.parquet")
    assert "of its 2000 rows can be read" in why(found.skipped, "g.parquet")
    assert ids(spark, tmp_path) == ["s1-1"]


def test_columns_of_other_releases_do_no_harm(spark: SparkSession, tmp_path: Path) -> None:
    at = REQUESTS.get_field_index("slice_size")
    write_rows(tmp_path, [row("s1-1")], "a.parquet", schema=REQUESTS.remove(at))
    newer = REQUESTS.append(pa.field("colour", pa.string()))
    write_rows(tmp_path, [row("s1-2", colour="red")], "b.parquet", schema=newer)
    rows = read_rows(spark, find_traces(spark, str(tmp_path))).orderBy("request_id").collect()
    assert [found["slice_size"] for found in rows] == [None, 1]


def test_a_file_that_vanishes_is_named_afterwards(spark: SparkSession, tmp_path: Path) -> None:
    write_rows(tmp_path, [row("s1-1")], "a.parquet")
    gone = write_rows(tmp_path, [row("s1-2")], "b.parquet")
    found = find_traces(spark, str(tmp_path))
    rows = read_rows(spark, found)
    gone.unlink()
    assert [one["request_id"] for one in rows.collect()] == ["s1-1"]
    assert [file.name for file in vanished(spark, found)] == ["b.parquet"]


def test_the_newest_file_with_spaces_describes_them(spark: SparkSession, tmp_path: Path) -> None:
    write_rows(tmp_path, [row("s1-1")], "20260101T000000-a-1.parquet", {"dzflow.spaces": "old"})
    write_rows(tmp_path, [row("s1-2")], "20260102T000000-a-2.parquet", {"dzflow.spaces": "new"})
    write_rows(tmp_path, [row("s1-3")], "20260103T000000-a-3.parquet")
    found = find_traces(spark, str(tmp_path))
    assert found.footer["dzflow.spaces"] == "new"


NOON = 1_767_268_800_000_000  # 2026-01-01T12:00 UTC
HOUR = 3_600_000_000


def test_files_whose_names_are_of_another_time_are_not_opened(
    spark: SparkSession, tmp_path: Path
) -> None:
    names = [f"20260101T{hour:02}0000-d-1-7.parquet" for hour in (9, 11, 12, 13, 15)]
    for number, name in enumerate(names):
        write_rows(tmp_path, [row(f"s1-{number}")], name, {"dzflow.spaces": name})
    for name in ("copy.parquet", "20269999T000000-a-1.parquet"):  # these say nothing of their time
        write_rows(tmp_path, [row(name)], name)
    # Damaged and unfinished files of another time are not looked at either.
    (tmp_path / "20260101T080000-a-1.parquet").write_bytes(b"damaged")
    (tmp_path / ".20260101T080000-a-2.parquet").write_bytes(b"unfinished")
    (tmp_path / "20260101T160000-a-3.parquet").write_bytes(b"damaged")

    found = find_traces(spark, str(tmp_path), NOON, NOON + HOUR // 2)
    read = [file.path.rsplit("/", 1)[-1] for file in found.files]
    assert read == [*names[1:4], "20269999T000000-a-1.parquet", "copy.parquet"]
    assert found.skipped == ()
    assert found.footer["dzflow.spaces"] == names[-1]  # the newest, whatever time is asked for
    since = find_traces(spark, str(tmp_path), NOON + 2 * HOUR)
    assert [file.name for file in since.skipped] == ["20260101T160000-a-3.parquet"]
    assert len(since.files) == 4
    assert len(find_traces(spark, str(tmp_path)).files) == len(names) + 2


def test_the_name_of_a_file_counts_with_an_hour_on_either_side() -> None:
    name = "20260101T120000-d-1-7.parquet"
    assert may_have_rows(name, None, None)
    assert may_have_rows(name, NOON + HOUR, None)
    assert not may_have_rows(name, NOON + HOUR + 1, None)
    assert may_have_rows(name, None, NOON - HOUR + 1)
    assert not may_have_rows(name, None, NOON - HOUR)
    for other in ("20260101T120000.parquet", "x-20260101T120000-a-1.parquet", "a.parquet"):
        assert may_have_rows(other, NOON + 9 * HOUR, NOON + 10 * HOUR)


def test_a_file_that_vanishes_before_it_is_read_is_passed_over(
    spark: SparkSession, tmp_path: Path
) -> None:
    gone = write_rows(tmp_path, [row("s1-1")], "a.parquet")
    write_rows(tmp_path, [row("s1-2")], "b.parquet")
    found = find_traces(spark, str(tmp_path))
    gone.unlink()
    assert [one["request_id"] for one in read_rows(spark, found).collect()] == ["s1-2"]
    assert [file.name for file in vanished(spark, found)] == ["a.parquet"]
    (tmp_path / "b.parquet").unlink()
    assert read_rows(spark, found).collect() == []


Job = Callable[[SparkSession, str, Traces], Source]
JOBS: dict[str, Job] = {
    "report": lambda spark, path, traces: make_report(spark, path, traces).source,
    "rebalance": lambda spark, path, traces: (
        make_rebalance(spark, path, traces, RebalanceOptions()).source
    ),
    "shapes": lambda spark, path, traces: make_shapes(spark, path, traces, ShapesOptions()).source,
}


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_if_all_files_vanish_a_job_names_them(
    spark: SparkSession, tmp_path: Path, job: Job
) -> None:
    gone = write_rows(tmp_path, [row("s1-1")])
    found = find_traces(spark, str(tmp_path))
    gone.unlink()
    source = job(spark, str(tmp_path), found)
    assert (source.rows, source.requests) == (0, 0)
    assert "was deleted while it was read" in why(source.skipped, gone.name)


def test_names_may_have_any_characters(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "run[1] {a,b}"
    for number, name in enumerate(("a copy.parquet", "50%.parquet", "what*?.parquet")):
        write_rows(folder, [row(f"s1-{number}")], name)
    assert find_traces(spark, str(folder)).skipped == ()
    assert ids(spark, folder) == ["s1-0", "s1-1", "s1-2"]


def test_nulls_in_files_of_others_are_empty_texts_and_zeros(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_rows(tmp_path, [row("s1-1", host=None, decided_us=None)])
    (found,) = read_rows(spark, find_traces(spark, str(tmp_path))).collect()
    assert (found["host"], found["decided_us"]) == ("", 0)
