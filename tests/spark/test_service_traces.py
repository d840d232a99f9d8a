"""`dzflow trace report`, `replay` and `shapes` on the traces of a control plane that has run."""

import json
import stat
import subprocess
from pathlib import Path

import httpx
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from dzflow.cli import app
from dzflow.errors import BadInput
from dzflow.sdk import Rest
from spark import session as spark_session
from spark.session import SparkUnavailable, check_installation
from tests.etcd import TestEtcd
from tests.service import COMMAND
from tests.spark.commands import run_trace
from tests.stack import Stack, StackOptions

SCHEMA = {"attributes": [{"name": "price", "type": "int", "min": 0, "max": 1023, "bits": 10}]}
TIMEOUT = 300


def dzflow(*words: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [COMMAND, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )


@pytest.fixture(scope="module")
def traces(etcd_server: TestEtcd, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten subscriptions of which half end, an advertisement, a change, and sampled events."""
    try:
        check_installation()
    except SparkUnavailable as missing:
        pytest.skip(str(missing))
    folder = tmp_path_factory.mktemp("data") / "traces"
    options = StackOptions(more={"traces": str(folder)})
    with Stack(etcd_server.access(), options) as stack, Rest(stack.url) as rest:
        rest.put_space("stocks", SCHEMA)
        rest.begin("advertisement", "h1", "stocks", {})
        ids = [
            rest.begin("subscription", "h3", "stocks", f"price >= {1000 + n}")["id"]
            for n in range(10)
        ]
        for id in ids[:5]:
            rest.end("subscription", id)
        rest.update("subscription", ids[9], "price < 100")
        samples = [
            {"space": "stocks", "time_us": 1, "values": {"price": price}, "weight": 50.0}
            for price in (10, 500, 1010)
        ]
        answer = httpx.post(f"{stack.url}/reports", json={"host": "h1", "events": samples})
        assert answer.is_success, answer.text
    return folder


def test_a_report_says_what_the_service_has_done(
    spark: SparkSession, traces: Path, tmp_path: Path
) -> None:
    page, data = tmp_path / "report.html", tmp_path / "report.json"
    done = run_trace(spark, "report", traces.parent, "--html", page, "--json", data)
    assert done.exit_code == 0, done.output
    found = json.loads(data.read_text())
    kinds = {kind["kind"]: kind["requests"] for kind in found["kinds"]}
    assert kinds == {"subscribe": 10, "unsubscribe": 5, "advertise": 1, "update": 1}
    assert (found["source"]["skipped"], found["source"]["notices"]) == ([], [])
    subscriptions = next(one for one in found["churn"] if one["kind"] == "subscription")
    assert (subscriptions["begun"], subscriptions["ended"]) == (10, 5)
    assert subscriptions["lifetime_s"]["count"] == 5
    assert found["hot"][0]["text"].startswith("price >= ")
    assert sum(load["share"] for load in found["partitions"]) == pytest.approx(1)
    assert all(stage["max_ms"] > 0 for stage in found["latency"])
    assert "17 requests" in done.stdout
    assert "price &gt;= " in page.read_text()
    assert {stat.S_IMODE(file.stat().st_mode) for file in (page, data)} == {0o600}


def test_a_replay_does_what_the_service_has_done(
    spark: SparkSession, traces: Path, tmp_path: Path
) -> None:
    plan, data, workload = (tmp_path / name for name in ("plan.json", "out.json", "w.parquet"))
    cut = {"plan": "legs", "root": {"bit": 0, "one": {"bit": 1}}}
    plan.write_text(json.dumps({"space": "stocks", "version": 0, "number": 0, "map": cut}))
    options = ("--plan", plan, "--json", data, "--workload", workload, "--topology", "line:3")
    done = run_trace(spark, "replay", traces.parent, *options)
    assert done.exit_code == 0, done.output
    found = json.loads(data.read_text())
    assert found["requests"] == {"advertise": 1, "subscribe": 10, "unsubscribe": 5, "update": 1}
    assert (found["skipped"], found["notices"]) == ([], [])
    assert found["left_out"] == {"refused": 0, "began_before": 0, "unknown": 0}
    # The engine is the same, so it needs the same operations for the same partials.
    parts = [
        row for file in (traces / "requests").glob("*") for row in pq.read_table(file).to_pylist()
    ]
    assert found["traced"]["operations"]["adds"] == sum(row["adds"] for row in parts)
    assert found["traced"]["operations"]["deletes"] == sum(row["deletes"] for row in parts)
    assert found["traced"]["partials"] == len(parts)
    assert {each["name"] for each in found["planned"]["partitions"]} == {
        f"1.0/{leaf}" for leaf in ("0-0", "0-1.1-0", "0-1.1-1", "0-1.1-x", "0-x")
    }
    assert "10 subscribe" in done.stdout
    measured = dzflow("bench", "engine", "--quick", "--workload", workload)
    assert measured.returncode == 0, measured.stderr
    assert "engine: workload" in measured.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("report", ".", "--since", "yesterday"), "--since takes a time"),
        (("report", ".", "--html", "nowhere/report.html"), "there is no folder"),
        (("report", ".", "--setting", "memory"), "--setting takes KEY=VALUE"),
        (("replay", ".", "--topology", "torus:3"), "there is no topology"),
        (("replay", ".", "--plan", "none.json"), "cannot be read"),
    ],
)
def test_a_wrong_call_is_refused_before_spark_starts(
    words: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delattr(spark_session, "open_session")
    with pytest.raises(BadInput, match=said):
        CliRunner().invoke(app, ["trace", *words], catch_exceptions=False)


def test_an_error_ends_the_command_with_one_line(tmp_path: Path) -> None:
    wrong = dzflow("trace", "report", tmp_path, "--since", "yesterday")
    assert (wrong.returncode, "error: --since takes a time" in wrong.stderr) == (1, True)


def test_shapes_are_learned_from_subscriptions_and_sampled_events(
    spark: SparkSession, traces: Path, tmp_path: Path
) -> None:
    data = tmp_path / "shapes.json"
    done = run_trace(spark, "shapes", traces.parent, "--json", data)
    assert done.exit_code == 0, done.output
    found = json.loads(data.read_text())
    (stocks,) = found["spaces"]
    assert (found["source"]["skipped"], found["source"]["notices"]) == ([], [])
    # Five are active; the last one has another filter by now.
    assert (stocks["subscriptions"], stocks["filters"], stocks["damaged"]) == (5, 5, 0)
    assert (stocks["events"], stocks["basis"]) == (3, "events")
    assert (stocks["proposal"] is None) == bool(stocks["why"])
    assert "stocks: 5 active subscriptions with 5 filters" in done.stdout
