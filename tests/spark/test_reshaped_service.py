"""A service with bad shapes: what the job learns from its traces, and what that changes."""

from collections.abc import Sequence
from pathlib import Path

import httpx
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from pyspark.sql import SparkSession

from dispatcher.reports.traces import EVENTS
from dzflow import ControlPlane
from dzflow.cli.trace import shapes
from dzflow.sdk import Advertisement, Subscription
from dzflow.sdk.events.sorter import Counters
from spark.reading import find_traces, read_rows
from spark.shapes.job import make_shapes
from spark.shapes.options import ShapesOptions
from tests.end_to_end.harness import Traffic, control_plane, drain, until
from tests.etcd import TestEtcd
from tests.spark.test_rebalanced_service import ROLL, check_tables, take_traces

SPACE = "stocks"
COARSE = [[2, 0]]  # cells of a quarter of all prices
LOWEST = (100, 300, 420, 700, 1000)  # of the prices that a host wants: 20 of them
HOSTS = tuple(f"h{n + 2}" for n in range(len(LOWEST)))
PRICES = [*range(0, 1024, 3), *LOWEST]


class Subscriber:
    """A host with one subscription, and what the switches have brought it."""

    def __init__(self, host: ControlPlane, lowest: int) -> None:
        self.wanted = range(lowest, lowest + 20)
        wanted = f"price >= {lowest} and price < {lowest + 20}"
        self.subscription: Subscription = host.subscribe(SPACE, wanted)
        self._host = host

    def counts(self) -> tuple[int, int]:
        """Events received, and those that it does not want."""
        until(lambda: self._now().received == self._now().delivered + self._now().unwanted)
        found = self._now()
        return found.received, found.unwanted

    def _now(self) -> Counters:
        return self._host.counters().get(SPACE, Counters())


def unwanted_share(
    advertisement: Advertisement, subscribers: Sequence[Subscriber], first: int
) -> float:
    """Publish an event of each price; the share of the deliveries that nobody wanted."""
    before = [each.counts() for each in subscribers]
    for n, price in enumerate(PRICES):
        advertisement.publish({"price": price, "n": first + n})
    for each in subscribers:
        # The last event that it wants: all before it have arrived, too.
        last = max(n for n, price in enumerate(PRICES) if price in each.wanted)
        drain(each.subscription, first + last)
    after = [each.counts() for each in subscribers]
    received = sum(new[0] - old[0] for old, new in zip(before, after, strict=True))
    unwanted = sum(new[1] - old[1] for old, new in zip(before, after, strict=True))
    return unwanted / received


def begin_and_end(client: httpx.Client) -> str:
    """A subscription that ends at once, and leaves its rows in the traces; its id."""
    ask = {"host": "h2", "space": SPACE, "filter": {"price": {"eq": 1}}}
    id: str = client.post("/subscribe", json=ask).json()["id"]
    client.post("/unsubscribe", json={"id": id}).raise_for_status()
    return id


def write_events(folder: Path) -> None:
    """The events as publishers sample them."""
    folder.mkdir()
    rows = [
        {"space": SPACE, "host": "h1", "time_us": n, "values": f'{{"price": {price}, "n": {n}}}'}
        | {"weight": 1.0}
        for n, price in enumerate(PRICES)
    ]
    table = pa.Table.from_pylist(rows, EVENTS)
    pq.write_table(table, folder / "20260101T000000-a-1.parquet")


def test_shapes_from_traces_keep_unwanted_events_away(
    spark: SparkSession, etcd_server: TestEtcd, tmp_path: Path
) -> None:
    traces, copy = tmp_path / "traces", tmp_path / "copy"
    writing = {"traces": str(traces), "traces_roll": ROLL}
    plane = control_plane(etcd_server, topology="line:6", more=writing)
    with plane as (stack, client, at):
        answer = client.put(f"/spaces/{SPACE}/shapes", json={"version": 0, "shapes": COARSE})
        assert answer.is_success, answer.text
        advertisement = at("h1").advertise(SPACE, {})
        subscribers = [Subscriber(at(host), low) for host, low in zip(HOSTS, LOWEST, strict=True)]
        before = unwanted_share(advertisement, subscribers, 0)
        seen = client.get("/subscriptions").json()["items"]
        (copy / "requests").mkdir(parents=True)
        rows = take_traces(traces, begin_and_end(client))
        pq.write_table(rows, copy / "requests" / "20260101T000000-a-1.parquet")
        write_events(copy / "events")

        learned = make_shapes(
            spark, str(copy), find_traces(spark, str(copy)), ShapesOptions(SPACE, None, None)
        )
        (found,) = learned.spaces
        assert found.proposal, found.why
        assert (found.basis, found.subscriptions) == ("events", len(LOWEST))

        traffic = Traffic(advertisement, LOWEST[1] + 5)
        traffic.more(20)
        shapes.adopt(client, [found.proposal], wait=True)
        sent = traffic.stop()
        # None is missed while the regions change.
        assert drain(subscribers[1].subscription, sent - 1)[-sent:] == list(range(sent))

        after = unwanted_share(advertisement, subscribers, 1 << 20)
        assert found.before
        assert found.after
        assert before == pytest.approx(found.before.unwanted, rel=0.05)
        assert after == pytest.approx(found.after.unwanted, rel=0.2, abs=0.02)
        assert after < 0.5 * before
        check_tables(stack)

        # Users see nothing of it, and it does not count as load.
        now = client.get("/subscriptions").json()["items"]
        kept = ("id", "filter", "state", "acknowledged", "timing", "flow_ops", "updating")
        assert [[each[k] for k in kept] for each in now] == [[e[k] for k in kept] for e in seen]
        assert {tuple(each["regions"]) for each in now} != {tuple(e["regions"]) for e in seen}
        rows = take_traces(traces, begin_and_end(client))
        kinds = set(rows["kind"].to_pylist())
        assert kinds == {"reindex", "subscribe", "unsubscribe"}
        again = tmp_path / "again"
        again.mkdir()
        pq.write_table(rows, again / "20260101T000000-a-1.parquet")
        read = read_rows(spark, find_traces(spark, str(again))).select("kind").distinct()
        assert {row["kind"] for row in read.collect()} == kinds - {"reindex"}
