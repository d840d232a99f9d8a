"""Records that expire, hosts that flood, traces that are kept: what goes on beside requests."""

import asyncio
import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from msgspec import Struct

from dispatcher.calls import RecordSpec
from dispatcher.errors import Conflict, NotFound
from dispatcher.reports import traces as traces_module
from dispatcher.reports.traces import REQUESTS, Traces
from tests.dispatcher.support import TIMEOUT, eventually, problem, specs, views, world
from tests.etcd import TestEtcd


async def test_a_record_ends_when_its_time_is_up_unless_it_is_renewed(
    etcd_server: TestEtcd,
) -> None:
    async with world(etcd_server.access()) as w, w.dispatcher() as d1, w.dispatcher() as d2:
        some = [RecordSpec("h1", "stocks", {"price": n}, ttl=ttl) for n, ttl in ((1, 2), (2, 600))]
        short, long = views(await d1.begin("subscription", some, wait=TIMEOUT))
        [forever] = views(await d1.begin("subscription", specs(1), wait=TIMEOUT))
        assert long.expires == pytest.approx(long.created + 600)
        renewed = await d2.renew("subscription", long.id)
        assert renewed.expires
        assert renewed.expires > time.time() + 590
        with pytest.raises(Conflict):
            await d2.renew("subscription", forever.id)

        async def gone() -> bool:
            return (await d1.record(short.id)).state == "removed"

        await eventually(gone)
        with pytest.raises(NotFound):
            await d2.renew("subscription", short.id)
        left = {record.id for record in (await d2.records("subscription")).items}
        assert left == {long.id, forever.id}
        assert w.installed() == await w.expected()
        assert [item.key for item in (await w.etcd.range("ttl/")).items] == [f"ttl/{long.id}"]


async def test_a_record_that_is_being_removed_is_not_renewed(etcd_server: TestEtcd) -> None:
    async with world(etcd_server.access()) as w, w.dispatcher() as d:
        ask = RecordSpec("h1", "stocks", {}, ttl=600)
        [record] = views(await d.begin("subscription", [ask], wait=TIMEOUT))
        w.hold()
        await d.end("subscription", [record.id], wait=0)
        with pytest.raises(NotFound, match="being removed"):
            await d.renew("subscription", record.id)


async def test_too_much_at_once_is_refused_before_anything_is_stored(etcd_server: TestEtcd) -> None:
    async with (
        world(etcd_server.access()) as w,
        w.dispatcher(window=10, window_per_host=5, queue=30, queue_per_host=20) as d,
    ):
        w.hold()
        flood = asyncio.create_task(d.begin("subscription", specs(100), wait=TIMEOUT))

        async def five() -> bool:
            return len((await d.records("subscription")).items) == 5

        await eventually(five)
        assert d.queue() == (15, 5)
        quiet = asyncio.create_task(d.begin("subscription", specs(2, "h2"), wait=TIMEOUT))

        async def begun() -> bool:
            return len((await d.records("subscription", host="h2")).items) == 2

        await eventually(begun)  # though the other host has many waiting
        await w.release()
        assert {answer.status for answer in await quiet} == {201}
        answers = await flood
        assert [answer.status for answer in answers] == [201] * 20 + [429] * 80
        assert problem(answers[-1]).retry_after
        assert d.queue() == (0, 0)
        assert len((await w.etcd.range("records/")).items) == 22


async def test_rates_are_limited_per_host(etcd_server: TestEtcd) -> None:
    async with (
        world(etcd_server.access()) as w,
        w.dispatcher(rate_per_host=0.01, burst_s=300) as d,
    ):
        answers = await d.begin("subscription", specs(5), wait=TIMEOUT)
        assert [answer.status for answer in answers] == [201] * 3 + [429] * 2
        assert problem(answers[-1]).retry_after == pytest.approx(100, abs=10)
        [other] = await d.begin("subscription", specs(1, "h2"), wait=TIMEOUT)
        assert other.status == 201


class Event(Struct, frozen=True):
    space: str
    time_us: int
    values: dict[str, Any]


async def test_each_partial_leaves_a_row_in_the_traces(
    etcd_server: TestEtcd, tmp_path: Path
) -> None:
    async with (
        world(etcd_server.access()) as w,
        w.dispatcher(traces=str(tmp_path), id="d1") as d,
    ):
        begun = views(await d.begin("subscription", specs(20), wait=TIMEOUT))
        await d.end("subscription", [begun[0].id], wait=TIMEOUT)
        assert d.sample_events("h1", [Event("stocks", 5, {"price": 1.5})]) == 1
    table = pq.read_table(tmp_path / "requests")
    assert table.schema.equals(REQUESTS)
    rows = table.to_pylist()
    partials = sum(len(record.partitions) for record in begun) + len(begun[0].partitions)
    assert len(rows) == partials
    assert {row["kind"] for row in rows} == {"subscribe", "unsubscribe"}
    for row in rows:
        assert row["received_us"] < row["done_us"]
        assert row["configurator"] in ("c1", "c2")
        assert row["outcome"] == "done"
    first = next(row for row in rows if row["request_id"] == begun[0].id)
    assert set(first["regions"]) <= set(begun[0].regions)
    assert first["filter"] == '{"price":{"gte":0,"lt":5}}'
    [event] = pq.read_table(tmp_path / "events").to_pylist()
    assert event == {"space": "stocks", "host": "h1", "time_us": 5, "values": '{"price":1.5}'}
    assert not list(tmp_path.glob("*/.*"))


def test_a_full_disk_costs_rows_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    traces = Traces(tmp_path, "d1", "sna")
    real: Callable[..., Any] = pq.ParquetWriter

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(pq, "ParquetWriter", full)
    for number in range(2):
        assert traces.sample("h1", [Event("stocks", number, {})]) == 1
        traces.events.write(last=True)
    assert traces.dropped == 2
    assert len(caplog.records) == 1
    monkeypatch.setattr(pq, "ParquetWriter", real)
    traces.sample("h1", [Event("stocks", 3, {})])
    traces.events.write(last=True)
    assert [row["time_us"] for row in pq.read_table(tmp_path / "events").to_pylist()] == [3]


def test_rows_that_nobody_writes_in_time_are_dropped_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traces_module, "_EVENTS_QUEUED", 3)
    traces = Traces(tmp_path, "d1", "sna")
    assert traces.sample("h1", [Event("stocks", number, {}) for number in range(5)]) == 3
    assert traces.dropped == 2


def test_an_event_larger_than_can_be_sent_is_dropped(tmp_path: Path) -> None:
    traces = Traces(tmp_path, "d1", "sna")
    large = Event("stocks", 1, {"note": "x" * 5_000})
    assert traces.sample("h1", [large, Event("stocks", 2, {"price": 1})]) == 1
    assert traces.dropped == 1


def test_the_oldest_files_go_when_all_take_too_much(tmp_path: Path) -> None:
    traces = Traces(tmp_path, "d1", "sna", most_bytes=1)
    for number in range(3):
        traces.sample("h1", [Event("stocks", number, {})])
        traces.events.write(last=True)
    assert not list(tmp_path.glob("*/*"))
    traces = Traces(tmp_path, "d2", "sna", most_bytes=5_000)
    for number in range(10):
        traces.sample("h1", [Event("stocks", number, {})])
        traces.events.write(last=True)
    kept = pq.read_table(tmp_path / "events")["time_us"].to_pylist()
    assert 9 in kept
    assert 0 not in kept
    assert sum(path.stat().st_size for path in tmp_path.glob("*/*")) <= 5_000


def test_what_a_dead_process_has_not_finished_is_removed(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    old, new = (tmp_path / "events" / f".{name}.parquet" for name in ("old", "new"))
    for path in (old, new):
        path.touch()
    os.utime(old, (0, 0))
    traces = Traces(tmp_path, "d1", "sna")
    traces.start()
    traces.close()
    assert not old.exists()
    assert new.exists()


def test_a_row_that_cannot_be_written_does_not_end_the_writing(tmp_path: Path) -> None:
    traces = Traces(tmp_path, "d1", "sna")
    traces.events.put(("stocks", "h1", "no number", ""))
    traces.events.write(last=True)
    assert traces.dropped == 1
    traces.sample("h1", [Event("stocks", 3, {})])
    traces.events.write(last=True)
    assert pq.read_table(tmp_path / "events")["time_us"].to_pylist() == [3]
