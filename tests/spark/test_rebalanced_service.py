"""A service with a bad partition map: its traces, the plan of the job, and what that changes."""

import asyncio
import json
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from pyspark.sql import SparkSession

from dzflow.sdk import Subscription
from tests.end_to_end.harness import Traffic, control_plane
from tests.etcd import TestEtcd
from tests.robustness.state import read_etcd_state, read_tables
from tests.service import COMMAND
from tests.spark.commands import run_trace
from tests.stack import Stack
from tests.support import until_sync

C0, C1 = "configurator-0", "configurator-1"
SPACE = "market"
SCHEMA = {
    "attributes": [
        {"name": "price", "type": "int", "min": 0, "max": 1023, "bits": 10},
        {"name": "n", "type": "int", "min": 0, "max": 1 << 30, "bits": 1},
    ]
}
# Nearly all of the load is at prices from 896 on, in one partition.
BAD_MAP = {"plan": "legs", "root": {"bit": 0, "zero": {"bit": 1}}}
OWNERS = {"0-1": C1, "0-0.1-0": C0, "0-0.1-1": C0, "0-0.1-x": C0, "0-x": C0}
HOT = [896 + n * 37 % 128 for n in range(32)]
REQUESTS = 400
TIMEOUT = 300
ROLL = 0.2  # seconds until a file of traces is closed
PAUSE = 0.1  # seconds between requests while the job runs


def post(client: httpx.Client, path: str, body: Any) -> Any:
    answer = client.post(path, json=body)
    assert answer.status_code < 300, answer.text
    return answer.json()


def zipf(random: Random, count: int) -> list[int]:
    """Prices by Zipf's law, and a few others."""
    weights = [1 / (rank + 1) for rank in range(len(HOT))]
    prices = random.choices(HOT, weights, k=count)
    return [random.randrange(896) if random.random() < 0.05 else price for price in prices]


def load(client: httpx.Client, random: Random, count: int) -> str:
    """Subscriptions that begin and end; the id of the last one."""
    last = ""
    for start in range(0, count, 50):
        prices = zipf(random, min(50, count - start))
        wanted = [
            {"host": f"h{2 + n % 2}", "space": SPACE, "filter": {"price": {"eq": price}}}
            for n, price in enumerate(prices)
        ]
        made = post(client, "/subscribe", wanted)
        assert {record["status"] for record in made} == {201}
        gone = post(client, "/unsubscribe", [{"id": record["id"]} for record in made])
        assert {record["status"] for record in gone} == {200}
        last = made[-1]["id"]
    return last


@contextmanager
def going_on(client: httpx.Client, random: Random) -> Iterator[None]:
    """Requests come and go meanwhile."""
    stop = threading.Event()
    failed: list[BaseException] = []

    def work() -> None:
        try:
            while not stop.wait(PAUSE):
                load(client, random, 10)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert not failed, failed


def collect(subscription: Subscription) -> list[int]:
    """The numbers of all events, as they come, until the subscription is closed."""
    found: list[int] = []

    def work() -> None:
        for event in subscription:
            found.append(event["n"])  # noqa: PERF401 - others see them as they come

    threading.Thread(target=work, daemon=True).start()
    return found


def take_traces(folder: Path, last: str) -> pa.Table:
    """All rows since the last time, up to those of the subscription that ended last; they go."""
    files: list[Path] = []

    def complete() -> bool:
        files[:] = sorted((folder / "requests").glob("[!.]*.parquet"))
        ended = pc.field("kind") == "unsubscribe"
        wanted = ended & (pc.field("target_id") == last)
        return any(pq.read_table(file, filters=wanted).num_rows for file in files)

    until_sync(complete)
    tables = [pq.read_table(file) for file in files]
    entries = pq.read_metadata(files[-1]).metadata
    for file in files:
        file.unlink()
    return pa.concat_tables(tables).replace_schema_metadata(entries)


def with_equal_work(rows: pa.Table) -> pa.Table:
    """Rows that took 100 us each: how long they took depends on what else the machine does."""
    at = rows.schema.get_field_index("decided_us")
    work = pc.multiply(pc.cast(rows["slice_size"], pa.int64()), 100)
    return rows.set_column(at, rows.schema.field(at), work)


def imbalance(rows: pa.Table) -> float:
    """The partials of the busiest configurator over the mean."""
    counts = Counter(rows["configurator"].to_pylist())
    return max(counts.values()) * 2 / counts.total()


def test_a_plan_from_traces_spreads_the_load_of_a_running_service(
    spark: SparkSession, etcd_server: TestEtcd, tmp_path: Path
) -> None:
    traces, copy = tmp_path / "traces", tmp_path / "copy"
    writing = {"traces": str(traces), "traces_roll": ROLL}
    plane = control_plane(etcd_server, configurators=2, more=writing)
    with plane as (stack, client, at):
        client.put(f"/spaces/{SPACE}", json=SCHEMA).raise_for_status()
        (present,) = (m for m in client.get("/partitions").json()["maps"] if m["space"] == SPACE)
        post(client, "/partitions/plan", {**present, "map": BAD_MAP, "assignment": OWNERS})
        until_sync(lambda: not client.get("/partitions/plan").json()["items"][0]["running"])
        advertisement = at("h1").advertise(SPACE, {})
        subscription = at("h3").subscribe(SPACE, "price >= 900")
        before = take_traces(traces, load(client, Random(1), REQUESTS))
        copy.mkdir()
        pq.write_table(with_equal_work(before), copy / "20260101T000000-a-1.parquet")

        received = collect(subscription)
        traffic = Traffic(advertisement, 960)
        with going_on(client, Random(2)):
            plan = rebalance(spark, copy, stack.url, tmp_path)
        sent = traffic.stop()
        until_sync(lambda: received[-1:] == [sent - 1])
        assert received == list(range(sent))

        (found,) = [each for each in plan["spaces"] if each["space"] == SPACE]
        leaves = {
            each["leaf"]: each["configurator"]
            for each in client.get("/partitions").json()["items"]
            if each["space"] == SPACE
        }
        assert found["plan"]["assignment"].items() <= leaves.items()
        assert "of the work was where price " in found["plan"]["reasons"][0]
        check_tables(stack)

        take_traces(traces, load(client, Random(4), 1))
        after = take_traces(traces, load(client, Random(3), REQUESTS))
        assert imbalance(before) == pytest.approx(found["before"]["imbalance"], rel=0.1)
        assert imbalance(after) == pytest.approx(found["after"]["imbalance"], rel=0.2)
        assert imbalance(after) < 0.75 * imbalance(before)

        # The map has another number by now.
        refused = subprocess.run(
            [COMMAND, "partitions", "plan", tmp_path / "plan.json", "--url", stack.url],
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
        assert refused.returncode == 1
        assert "make a new plan" in refused.stderr


def rebalance(spark: SparkSession, traces: Path, url: str, folder: Path) -> Any:
    """Run the command on traces, and have the plan carried out."""
    words = ["--space", SPACE, "--apply", "--wait", "--url", url]
    files = [f"--json={folder / 'result.json'}", f"--plan={folder / 'plan.json'}"]
    done = run_trace(spark, "rebalance", traces, *words, *files)
    assert done.exit_code == 0, done.output
    assert f"{SPACE}: done" in done.stderr
    assert "busiest configurator over the mean" in done.stdout
    return json.loads((folder / "result.json").read_text())


def check_tables(stack: Stack) -> None:
    """The switches hold what a rebuild from the records gives."""

    async def read() -> None:
        state = await read_etcd_state(stack.access)
        expected = state.rebuilt()
        async with httpx.AsyncClient(base_url=stack.url, timeout=60) as client:
            assert await read_tables(client, expected) == expected

    asyncio.run(read())
