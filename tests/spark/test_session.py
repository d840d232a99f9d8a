"""Whether Spark can be used, and what is said where it cannot."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark import session
from spark.java import find_java, java_problem, java_version
from spark.session import (
    SHUFFLE_PARTITIONS,
    SparkFailed,
    SparkOptions,
    SparkUnavailable,
    local_size,
    open_session,
    reason,
    suit_rows,
)


def fake_java(folder: Path, text: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{text}' >&2\n")
    java.chmod(0o755)
    return java


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_401"', 8),
        ('openjdk version "25-ea"', 25),
        ("no Java", None),
    ],
)
def test_the_version_of_a_java_is_read(tmp_path: Path, text: str, version: int | None) -> None:
    assert java_version(str(fake_java(tmp_path, text))) == version


def test_a_java_that_is_missing_or_too_old_is_named_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java() is None
    assert "there is none that runs: run `make java`" in (java_problem() or "")
    java = fake_java(tmp_path, 'java version "1.8.0_401"')
    assert f"{java} is version 8" in (java_problem() or "")
    with pytest.raises(SparkUnavailable, match="Java 17 or later"), open_session(SparkOptions()):
        pass


def test_what_spark_refuses_is_told_in_one_line(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="nowhere") as refused:
        spark.sql("select * from nowhere").collect()
    assert "nowhere" in reason(refused.value)
    assert "\n" not in reason(refused.value)


def test_errors_of_a_job_have_a_name(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    # The session of all tests is the one that is found, and must stay.
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)
    failing = pytest.raises(SparkFailed, match=r"Spark gave up: .*nowhere")
    with failing, open_session(SparkOptions(spark.sparkContext.master or "")):
        spark.sql("select * from nowhere").collect()


def test_the_less_there_is_to_read_the_less_is_compiled() -> None:
    java, whole = "spark.driver.extraJavaOptions", "spark.sql.codegen.wholeStage"
    few, some, many, unknown = (
        session.spark_settings(SparkOptions(size=size), "folder")
        for size in (session.FEW_BYTES, session.SOME_BYTES, session.SOME_BYTES + 1, None)
    )
    assert few[whole] == "false"
    assert all(whole not in each for each in (some, many, unknown))
    assert many == unknown
    assert some[java].startswith(f"{many[java]} -XX:")
    assert few[java].startswith(f"{some[java]} -XX:")


def test_on_this_machine_not_every_file_is_a_task() -> None:
    name = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
    assert int(session.spark_settings(SparkOptions(), "folder")[name]) >= 4
    assert name not in session.spark_settings(SparkOptions("spark://host:7077"), "folder")


def test_the_size_of_traces_is_that_of_their_files(tmp_path: Path) -> None:
    requests = tmp_path / "traces" / "requests"
    requests.mkdir(parents=True)
    for name in ("a.parquet", "b.parquet"):
        (requests / name).write_bytes(bytes(10))
    for path in (tmp_path, tmp_path / "traces", requests):
        assert local_size(str(path)) == 20
    assert local_size(str(requests / "a.parquet")) == 10
    # Sampled events count, too.
    (tmp_path / "traces" / "events").mkdir()
    (tmp_path / "traces" / "events" / "a.parquet").write_bytes(bytes(1))
    assert local_size(str(tmp_path)) == 21
    for other in (tmp_path / "nowhere", "hdfs://namenode/traces"):
        assert local_size(str(other)) is None


def test_shuffles_make_as_many_partitions_as_suit_the_rows(spark: SparkSession) -> None:
    before = spark.conf.get(SHUFFLE_PARTITIONS)
    chosen, few = SparkOptions(settings={SHUFFLE_PARTITIONS: "5"}), SparkOptions(size=1)
    try:
        for options, rows, expected in (
            (SparkOptions(), 10, "2"),  # all cores have something to do
            (SparkOptions(), 10**6, "7"),
            (chosen, 10**7, "7"),
            (few, 10**7, "7"),
        ):
            suit_rows(spark, options, rows)
            assert spark.conf.get(SHUFFLE_PARTITIONS) == expected
    finally:
        spark.conf.set(SHUFFLE_PARTITIONS, str(before))
