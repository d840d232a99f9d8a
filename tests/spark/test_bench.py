"""The benchmark `spark`: its traces are sound, and DuckDB computes what the jobs compute."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from pyspark.sql import SparkSession

from bench import spark as bench_spark
from bench.report import Report, Row
from bench.trace_jobs import jobs
from bench.trace_jobs.balancer_alone import settled_owners
from bench.trace_jobs.children import JobFailed, Usage, run_measured
from bench.trace_jobs.duck import Field, Question, run_job
from bench.trace_jobs.equal_maps import equal_map
from bench.trace_jobs.generator import write_requests
from bench.trace_jobs.plan_quality import BALANCED, BEFORE, PLANNED, load_of
from bench.trace_jobs.pool import make_origin
from bench.trace_jobs.running_service import service_ratios, traced_imbalance
from bench.workload import make_index, make_space
from configurators.state.trace_spaces import decode_footer
from dzflow.filters import parse_filter
from sdn.tables.pipeline import PlanName
from spark.reading import find_traces
from spark.rebalance.job import make_rebalance
from spark.rebalance.options import RebalanceOptions
from spark.report.job import make_report
from spark.shapes.job import make_shapes
from spark.shapes.options import ShapesOptions

ROWS = 900
SMALLEST = 20
TINY = bench_spark.Scale(
    planned=ROWS, filters=150, events=100, partitions=9, configurators=3, counted_filters=40
)
approx: Callable[..., Any] = partial(pytest.approx, rel=1e-6)
about = partial(pytest.approx, rel=0.05)  # percentiles may be those of the next value


class Made(NamedTuple):
    """The rows of the benchmark, and what both sides have found."""

    rows: list[Row]
    folder: Path

    def found(self, job: str, by: str) -> Any:
        return json.loads((self.folder / f"{job}-{by}-{ROWS}.json").read_text())


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    """All sections that need generated traces; the jobs run here instead of in processes.

    The smallest traces only show how long a job takes to start, so no job runs on them.
    """

    def run_here(command: Sequence[Any]) -> Usage:
        result = Path(command[5])
        if result.stem.endswith(f"-{SMALLEST}"):
            result.write_text('{"timeline": {"bucket_s": 1}}')  # DuckDB is asked for the same
        elif command[1] == "trace":
            job, path = command[2], str(command[3])
            traces = find_traces(spark, path)
            if job == "report":
                found: Any = make_report(spark, path, traces)
            elif job == "rebalance":
                found = make_rebalance(spark, path, traces, RebalanceOptions())
            else:
                found = make_shapes(spark, path, traces, ShapesOptions())
            result.write_bytes(msgspec.json.encode(found))
        else:
            job, requests = command[3:5]
            bucket, fields, scope = json.loads(command[7])
            asked = Question(bucket, [Field(*each) for each in fields], scope)
            result.write_text(json.dumps(run_job(job, requests, asked), default=float))
        return Usage(2.0, 1.0, 10.0)

    folder = tmp_path_factory.mktemp("bench")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs, "run_measured", run_here)
        patch.setattr(bench_spark, "JOB_SECTIONS", {"start": SMALLEST, "jobs_1e5": ROWS})
        chosen = {"jobs", "plans", "shapes"}
        yield Made(bench_spark.measure_traces(folder, TINY, chosen, lambda _: None), folder)


def numbers(row: Row) -> Row:
    """The columns of a row that may differ by a rounding error."""
    return {name: value for name, value in row.items() if not isinstance(value, str)}


def test_duckdb_finds_the_same_requests_as_the_report(made: Made) -> None:
    report, duck = made.found("report", "Spark"), made.found("report", "DuckDB")
    (source,) = duck["source"]
    assert source == {name: report["source"][name] for name in source}
    assert source["rows"] == ROWS
    for kind, other in zip(report["kinds"], duck["kinds"], strict=True):
        assert numbers(other) == approx(numbers({name: kind[name] for name in other}))
        assert other["kind"] == kind["kind"]
    hosts = [host for host in report["hosts"] if host["host"]]
    for host, other in zip(hosts, duck["hosts"], strict=False):
        assert numbers(other) == approx(numbers({name: host[name] for name in other}))
        assert other["host"] == host["host"]
    expensive = [(each["id"], each["regions"], each["filter"]) for each in report["expensive"]]
    assert expensive == [(e["request_id"], e["regions"], e["filter"]) for e in duck["expensive"]]
    buckets = {each["begin_us"]: each for each in report["timeline"]["buckets"]}
    counts: dict[int, dict[str, int]] = {}
    for row in duck["timeline_kinds"]:
        counts.setdefault(row["begin_us"], {})[row["kind"]] = row["number"]
    assert counts == {begin: bucket["requests"] for begin, bucket in buckets.items()}
    for row in duck["timeline"]:
        bucket = buckets[row["begin_us"]]
        assert (row["failed"], row["quantiles"][0] / 1_000) == about(
            (bucket["failed"], bucket["p50_ms"])
        )


def test_duckdb_finds_the_same_latency_and_load_as_the_report(made: Made) -> None:
    report, duck = made.found("report", "Spark"), made.found("report", "DuckDB")
    for stage in report["latency"]:
        (other,) = duck[f"latency_{stage['stage']}"]
        assert (other["mean_ms"], other["max_ms"]) == approx((stage["mean_ms"], stage["max_ms"]))
        assert other["quantiles"] == about([stage["p50_ms"], stage["p90_ms"], stage["p99_ms"]])
    for over, name in (("partitions", "partition"), ("configurators", "configurator")):
        others = {row[name]: row for row in duck[over]}
        assert others.keys() == {load["name"] for load in report[over]}
        for load in report[over]:
            other = others[load["name"]]
            for column in ("partials", "work_ms", "operations"):
                assert other[column] == approx(load[column])
            for stage_name in ("queued", "decided", "pushed"):
                p50, _, p99 = other[stage_name]
                expected = (load[f"{stage_name}_p50_ms"], load[f"{stage_name}_p99_ms"])
                assert (p50, p99) == about(expected)


def test_duckdb_finds_the_same_sizes_churn_and_hot_regions_as_the_report(made: Made) -> None:
    report, duck = made.found("report", "Spark"), made.found("report", "DuckDB")
    sizes = {row["slice_size"]: row["number"] for row in duck["slices"]}
    assert max(sizes) == report["slices"]["max"]
    mean = sum(size * number for size, number in sizes.items()) / sum(sizes.values())
    assert mean == approx(report["slices"]["mean"])
    (operations,) = duck["operations"]
    assert operations["number"] == report["operations"]["count"]
    assert operations["mean"] == approx(report["operations"]["mean"])
    bars = {2.0 ** row["power"]: row["number"] for row in duck["operation_bars"]}
    assert bars == {b["upto"]: b["count"] for b in report["operations"]["bins"] if b["count"]}
    lifetimes = {row["name"]: row for row in duck["lifetimes"]}
    for churn in report["churn"]:
        letter = churn["kind"][0]
        (row,) = [each for each in duck["churn"] if each["letter"] == letter]
        assert (row["begun"], row["updated"], row["ended"]) == (
            *(churn["begun"], churn["updated"], churn["ended"]),
        )
        if churn["lifetime_s"]:
            lived = lifetimes[letter + churn["space"]]
            assert lived["mean"] == approx(churn["lifetime_s"]["mean"])
            assert lived["number"] == churn["lifetime_s"]["count"]
    assert len(report["hot"]) == len(duck["hot"])
    for hot, other in zip(report["hot"], duck["hot"], strict=True):
        assert other["regions"] == hot["regions"]
        assert other["work_ms"] == approx(hot["work_ms"])


def test_duckdb_finds_the_same_work_as_rebalance(made: Made) -> None:
    found, duck = made.found("rebalance", "Spark"), made.found("rebalance", "DuckDB")
    (source,) = duck["source"]
    assert source == {name: found["source"][name] for name in source}
    (space,) = found["spaces"]
    (filters,) = duck["filters"]
    assert filters["filters"] == space["filters"]
    assert filters["work_us"] / 1_000 == approx(space["work_ms"])
    assert sum(row["pushed_us"] for row in duck["totals"]) / 1_000 == approx(space["pushed_ms"])
    assert sum(row["operations"] for row in duck["totals"]) == space["before"]["operations"]
    work = {row["configurator"]: row["work_us"] for row in duck["totals"]}
    shares = {name: value / sum(work.values()) for name, value in work.items()}
    assert shares == about(space["before"]["shares"])
    (timing,) = duck["timing"]
    before = space["before"]
    rest = before["latency_ms"] - before["waiting_ms"]
    assert (timing["decided_us"] + timing["pushed_us"]) / 1_000 == approx(rest)
    assert timing["mode"] == found["mode"]


def test_the_plan_is_better_than_equal_cuts_and_than_the_balancer(made: Made) -> None:
    found = bench_spark.ratios(made.rows)
    by_case = {row["case"]: row for row in made.rows if row["measure"] == "plans"}
    assert by_case[PLANNED]["imbalance"] < by_case[BALANCED]["imbalance"]
    assert by_case[BALANCED]["imbalance"] <= by_case[BEFORE]["imbalance"]
    assert found["imbalance_after_over_before"] < 0.8
    assert found["report_spark_over_duckdb"] == 1.0
    assert {"rebalance_start_s", "imbalance_after_over_equal_cuts"} <= found.keys()
    assert "report_growth" not in found  # there are not three sizes
    told = [row["predicted_imbalance"] for row in by_case.values()]
    assert [name for name, value in zip(by_case, told, strict=True) if value] == [BEFORE, PLANNED]


def test_unwanted_deliveries_are_counted_under_both_dictionaries(made: Made) -> None:
    before, after = (row for row in made.rows if row["measure"] == "shapes")
    for row in (before, after):
        assert (row["filters"], row["events"]) == (TINY.counted_filters, TINY.events)
        assert 0 < row["unwanted_share"] < 1
    # Those that are not in the traces gain only if the traces have enough filters and events.
    assert after["predicted_unwanted_share"] < before["predicted_unwanted_share"]
    found = bench_spark.ratios(made.rows)
    assert found["unwanted_after_over_before"] == after["unwanted"] / before["unwanted"]


def test_generated_traces_are_those_of_a_service(tmp_path: Path) -> None:
    origin = make_origin(50, 10, 9, 2)
    files = write_requests(tmp_path / "a", origin, 1_000, files=3, seed=5)
    again = write_requests(tmp_path / "b", origin, 1_000, files=3, seed=5)
    tables = [pq.read_table(file) for file in files]
    assert [table.num_rows for table in tables] == [334, 333, 333]
    assert [pq.read_table(file) for file in again] == tables
    rows = [row for table in tables for row in table.to_pylist()]
    space = decode_footer(pq.read_metadata(files[0]).metadata)["bench"]
    stored = space.versions[space.current]
    index = stored.index("bench", space.current)
    assert stored.map == origin.map
    began = {}
    for row in rows:
        leaf = row["partition"].partition("/")[2]
        assert row["configurator"] == origin.owners[leaf]
        assert row["done_us"] > row["received_us"]
        if row["kind"] in ("subscribe", "advertise"):
            began[row["target_id"]] = row["received_us"]
            told = map(str, index.regions(parse_filter(index.space, json.loads(row["filter"]))))
            assert set(row["regions"]) <= set(told)
        if row["kind"] in ("unsubscribe", "unadvertise"):
            assert row["regions"] == []
            assert row["received_us"] > began[row["target_id"]]
        if row["slice"]:
            slice_rows = [
                r
                for r in rows
                if (r["slice"], r["decided_us"], r["pushed_us"])
                == (row["slice"], row["decided_us"], row["pushed_us"])
            ]
            assert len(slice_rows) == row["slice_size"]
            assert {r["partition"] for r in slice_rows} == {row["partition"]}


@pytest.mark.parametrize("plan", ["legs", "lpm"])
@pytest.mark.parametrize("count", [1, 2, 9, 30, 63])
def test_equal_cuts_differ_by_one_test_at_the_most(plan: PlanName, count: int) -> None:
    found = equal_map(make_index(make_space("fields")), plan, count).leaves()
    step = 1 if plan == "lpm" else 2
    assert len(found) == 1 + (count - 1) // step * step
    tests = {len(leaf) if plan == "lpm" else leaf.count("-") for leaf in found if leaf != "all"}
    assert not tests or max(tests) - min(tests) <= 1


def test_the_balancer_alone_moves_whole_partitions_until_it_has_nothing_to_propose() -> None:
    work = {"a": 5.0, "b": 3.0, "c": 2.0, "d": 2.0}
    owners = settled_owners(work, dict.fromkeys(work, "one"), ("one", "two"))
    assert owners.keys() == work.keys()
    loads = {name: sum(work[p] for p in work if owners[p] == name) for name in ("one", "two")}
    assert max(loads.values()) <= 7.0
    assert settled_owners(work, owners, ("one", "two")) == owners


def test_the_load_of_a_map_counts_each_partial() -> None:
    origin = make_origin(50, 1, 9, 2)
    assert sum(load_of(origin, origin.map).values()) >= 1.0
    whole = equal_map(origin.index, "legs", 1)
    assert load_of(origin, whole) == pytest.approx({"all": 1.0})


def test_a_command_is_measured_with_the_processes_that_it_starts() -> None:
    inner = "x = b'1' * 60_000_000; import time; time.sleep(0.5)"
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
    usage = run_measured([sys.executable, "-c", outer])
    assert usage.seconds > 0.5
    assert usage.peak_mb > 60
    assert usage.cpu_s >= 0
    with pytest.raises(JobFailed, match=r"ended with 1: .*broken"):
        run_measured([sys.executable, "-c", "raise SystemExit('broken')"])


def test_the_imbalance_of_a_service_is_that_of_its_traces_in_a_time(tmp_path: Path) -> None:
    origin = make_origin(50, 1, 9, 2)
    files = write_requests(tmp_path / "traces" / "requests", origin, 200, files=2)
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    middle = sorted(row["received_us"] for row in rows)[100]
    names = [row["configurator"] for row in rows if row["received_us"] < middle]
    most = max(names.count(name) for name in set(names))
    assert traced_imbalance(tmp_path, 2, 0, middle) == pytest.approx(most * 2 / len(names))


def test_a_repeated_section_replaces_only_itself() -> None:
    cases = ("equal cuts", "equal cuts, balancer", "plan of rebalance")
    service = [
        {"measure": "service", "case": case, "mean_ms": 100.0 / n, "imbalance": 2.0 / n}
        for n, case in enumerate(cases, 1)
    ]
    old = [{**row, "mean_ms": 1.0} for row in service]
    other: Row = {"measure": "other"}
    before = Report("spark", {}, [other, *old])
    found = bench_spark.combined(before, Report("spark", {}, service))
    assert found.rows == [other, *service]
    assert found.ratios == service_ratios(service)
    assert found.ratios["measured_latency_after_over_before"] == pytest.approx(1 / 3)
    assert found.ratios["measured_imbalance_after_over_balancer"] == pytest.approx(2 / 3)


def test_jobs_can_be_measured_one_size_after_another() -> None:
    def jobs_of(rows: int, seconds: float) -> list[Row]:
        return [
            {"measure": "jobs", "job": "report", "by": by, "rows": rows}
            | {"seconds": seconds / n, "rows_per_s": rows * n / seconds}
            for n, by in enumerate(("Spark", "DuckDB"), 1)
        ]

    report = Report("spark", {}, [])
    first = bench_spark.JOB_SECTIONS["start"]
    for rows, seconds in (
        (2_000, 16.0),
        (first, 4.0),
        (12_000, 60.0),
        (12_000, 56.0),
        (1_000, 14.0),
    ):
        more = Report("spark", {}, jobs_of(rows, seconds))
        report = bench_spark.combined(report, more)
    assert [row["rows"] for row in report.rows[::2]] == [2_000, first, 12_000, 1_000]
    assert report.ratios == pytest.approx(
        {
            "report_start_s": 4.0,
            "report_rows_per_s": 12_000 / 56,
            "report_spark_over_duckdb": 2.0,
            "report_growth": 2.0,  # 4 ms for each further row, after 2 ms
        }
    )


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_spark, "check_installation", lambda: None)
    monkeypatch.setattr(bench_spark, "find_spec", lambda _: None)
    with pytest.raises(bench_spark.SparkBenchUnavailable, match="duckdb is missing: run `make"):
        bench_spark.run(True, lambda _: None)
