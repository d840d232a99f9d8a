"""Traces: a row per partial, bounded in memory and on the disk, and never in the way."""

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from msgspec import Struct

from configurators.environment import Clock, Environment
from dispatcher.reports import trace_writer
from dispatcher.reports import traces as traces_module
from dispatcher.reports.trace_storage import LocalStorage
from dispatcher.reports.traces import REQUESTS, Traces
from tests.dispatcher.support import TIMEOUT, specs, views, world
from tests.etcd import TestEtcd
from tests.support import warnings_of


class Event(Struct, frozen=True):
    space: str
    time_us: int
    values: dict[str, Any]
    weight: float = 1.0


async def test_each_partial_leaves_a_row_in_the_traces(
    etcd_server: TestEtcd, tmp_path: Path
) -> None:
    async with (
        world(etcd_server.access()) as w,
        w.dispatcher(traces=str(tmp_path), id="d1") as d,
    ):
        begun = views(await d.begin("subscription", specs(20), wait=TIMEOUT))
        await d.end("subscription", [begun[0].id], wait=TIMEOUT)
        assert d.sample_events("h1", [Event("stocks", 5, {"price": 1.5}, 2.5)]) == 1
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
        assert (row["slice"], row["slice_size"]) == (1, 1)  # as the stand-ins answer
    first = next(row for row in rows if row["request_id"] == begun[0].id)
    assert set(first["regions"]) <= set(begun[0].regions)
    assert first["filter"] == '{"price":{"gte":0,"lt":5}}'
    [event] = pq.read_table(tmp_path / "events").to_pylist()
    assert event == {
        "space": "stocks",
        "host": "h1",
        "time_us": 5,
        "values": '{"price":1.5}',
        "weight": 2.5,
    }
    assert not list(tmp_path.glob("*/.*"))


async def test_rows_have_the_time_of_a_clock_that_was_set_meanwhile(
    etcd_server: TestEtcd, tmp_path: Path
) -> None:
    """A machine may not know the time when it starts, or be suspended."""
    late = 1.5e9  # seconds that the clock is behind

    def wall() -> float:
        return time.time() - late

    environment = Environment(Clock(wall=wall))
    async with (
        world(etcd_server.access()) as w,
        w.dispatcher(environment, traces=str(tmp_path)) as d,
    ):
        await d.begin("subscription", specs(1), wait=TIMEOUT)
        late = 0.0
        began = time.time()
        views(await d.begin("subscription", specs(1), wait=TIMEOUT))
        ended = time.time()
    early, *_, last = sorted(
        pq.read_table(tmp_path / "requests").to_pylist(), key=lambda row: row["done_us"]
    )
    assert early["done_us"] / 1e6 < began - 1e9
    assert began <= last["received_us"] / 1e6 + 0.1
    assert last["received_us"] < last["done_us"]
    assert last["done_us"] / 1e6 <= ended + 0.1


def test_a_full_disk_costs_rows_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    traces = Traces(LocalStorage(tmp_path), "d1", "sna")
    real: Callable[..., Any] = pq.ParquetWriter

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(pq, "ParquetWriter", full)
    for number in range(2):
        assert traces.sample("h1", [Event("stocks", number, {})]) == 1
        traces.events.write(last=True)
    assert traces.dropped == 2
    assert len(warnings_of(caplog, trace_writer.__name__)) == 1
    monkeypatch.setattr(pq, "ParquetWriter", real)
    traces.sample("h1", [Event("stocks", 3, {})])
    traces.events.write(last=True)
    assert [row["time_us"] for row in pq.read_table(tmp_path / "events").to_pylist()] == [3]


def test_rows_beyond_the_queue_are_dropped_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traces_module, "_EVENTS_QUEUED", 3)
    traces = Traces(LocalStorage(tmp_path), "d1", "sna")
    assert traces.sample("h1", [Event("stocks", number, {}) for number in range(5)]) == 3
    assert traces.dropped == 2


def test_rows_come_in_groups_and_files_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_writer, "_BATCH", 2)
    monkeypatch.setattr(trace_writer, "_GROUP", 4)
    traces = Traces(LocalStorage(tmp_path), "d1", "sna", roll_rows=8)
    traces.sample("h1", [Event("stocks", number, {}) for number in range(11)])
    traces.events.write()
    (complete,) = (tmp_path / "events").glob("2*.parquet")
    assert pq.read_metadata(complete).num_row_groups == 2
    assert pq.read_table(complete)["time_us"].to_pylist() == list(range(8))
    traces.events.write(last=True)
    (rest,) = set((tmp_path / "events").iterdir()) - {complete}
    assert pq.read_table(rest)["time_us"].to_pylist() == [8, 9, 10]


def test_a_write_that_fails_costs_the_rows_that_were_to_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_writer, "_BATCH", 2)
    monkeypatch.setattr(trace_writer, "_GROUP", 4)
    traces = Traces(LocalStorage(tmp_path), "d1", "sna")

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, "no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(pq, "ParquetWriter", full)
        traces.sample("h1", [Event("stocks", number, {}) for number in range(5)])
        traces.events.write()
    assert traces.dropped == 4
    traces.events.write(last=True)
    assert traces.dropped == 4
    assert pq.read_table(tmp_path / "events")["time_us"].to_pylist() == [4]


def test_an_event_larger_than_can_be_sent_is_dropped(tmp_path: Path) -> None:
    traces = Traces(LocalStorage(tmp_path), "d1", "sna")
    large = Event("stocks", 1, {"note": "x" * 5_000})
    assert traces.sample("h1", [large, Event("stocks", 2, {"price": 1})]) == 1
    assert traces.dropped == 1


def test_the_oldest_files_are_deleted_when_all_are_too_large(tmp_path: Path) -> None:
    traces = Traces(LocalStorage(tmp_path, 1), "d1", "sna")
    for number in range(3):
        traces.sample("h1", [Event("stocks", number, {})])
        traces.events.write(last=True)
    assert not list(tmp_path.glob("*/*"))
    traces = Traces(LocalStorage(tmp_path, 5_000), "d2", "sna")
    for number in range(10):
        traces.sample("h1", [Event("stocks", number, {})])
        traces.events.write(last=True)
    kept = pq.read_table(tmp_path / "events")["time_us"].to_pylist()
    assert 9 in kept
    assert 0 not in kept
    assert sum(path.stat().st_size for path in tmp_path.glob("*/*")) <= 5_000


def test_unfinished_files_of_dead_processes_are_deleted(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    old, new = (tmp_path / "events" / f".{name}.parquet" for name in ("old", "new"))
    for path in (old, new):
        path.touch()
    os.utime(old, (0, 0))
    traces = Traces(LocalStorage(tmp_path), "d1", "sna")
    traces.start()
    traces.close()
    assert not old.exists()
    assert new.exists()


def test_a_row_that_cannot_be_written_does_not_stop_the_writer(tmp_path: Path) -> None:
    traces = Traces(LocalStorage(tmp_path), "d1", "sna")
    traces.events.put(("stocks", "h1", "no number", "", 1.0))
    traces.events.write(last=True)
    assert traces.dropped == 1
    traces.sample("h1", [Event("stocks", 3, {})])
    traces.events.write(last=True)
    assert pq.read_table(tmp_path / "events")["time_us"].to_pylist() == [3]
