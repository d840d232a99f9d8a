"""Traces on other storage: seen when they are complete, and never in the way."""

import io
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.fs as pa_fs  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from msgspec import Struct

from configurators.environment import Clock
from dispatcher.reports import trace_writer
from dispatcher.reports import traces as traces_module
from dispatcher.reports.trace_storage import (
    LocalStorage,
    OtherStorage,
    StorageUnavailable,
    open_storage,
)
from dispatcher.reports.traces import Traces
from tests.dispatcher.support import TIMEOUT, specs, views, world
from tests.etcd import TestEtcd
from tests.support import warnings_of


class Event(Struct, frozen=True):
    space: str
    time_us: int
    values: dict[str, Any]
    weight: float = 1.0


class _Upload(io.BytesIO):
    """What is written counts when it is closed."""

    def __init__(self, store: "ObjectStore", path: str) -> None:
        super().__init__()
        self._store = store
        self._path = path

    def write(self, data: Any) -> int:
        self._store.check()
        return super().write(data)

    def close(self) -> None:
        if not self.closed:
            try:
                self._store.check()
                self._store.objects[self._path] = self.getvalue()
            finally:
                super().close()


class ObjectStore(pa_fs.FileSystemHandler):  # type: ignore[misc]
    """Objects by name, without folders, renaming and listing, as far as traces need them."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.failure: Exception | None = None
        self.deleted: list[str] = []

    def check(self) -> None:
        if self.failure:
            raise self.failure

    def get_type_name(self) -> str:
        return "objects"

    def open_output_stream(self, path: str, metadata: Any) -> Any:  # noqa: ARG002
        self.check()
        return pa.PythonFile(_Upload(self, path), mode="w")

    def delete_file(self, path: str) -> None:
        self.deleted.append(path)
        if self.objects.pop(path, None) is None:
            raise FileNotFoundError(path)

    def _refuse(self, *_: Any) -> Any:
        raise AssertionError("an object store is only written to")

    normalize_path = get_file_info = get_file_info_selector = create_dir = delete_dir = _refuse
    delete_dir_contents = delete_root_dir_contents = move = copy_file = _refuse
    open_input_stream = open_input_file = open_append_stream = _refuse

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    __hash__ = None  # type: ignore[assignment]


def storage_of(store: ObjectStore) -> OtherStorage:
    return OtherStorage("s3://bucket/base", lambda: (pa_fs.PyFileSystem(store), "bucket/base"))


def put(traces: Traces, *numbers: int) -> None:
    traces.sample("h1", [Event("stocks", number, {}) for number in numbers])


def times(data: bytes) -> list[int]:
    found: list[int] = pq.read_table(pa.BufferReader(data))["time_us"].to_pylist()
    return found


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_writer, "_BATCH", 2)
    monkeypatch.setattr(trace_writer, "_GROUP", 2)


@pytest.mark.usefixtures("small_groups")
def test_an_object_is_seen_under_its_final_name_when_it_is_complete() -> None:
    store = ObjectStore()
    traces = Traces(storage_of(store), "d1", "sna")
    put(traces, 1, 2, 3)
    traces.events.write()
    assert store.objects == {}, "the first rows are written, and the object is not complete"
    traces.events.write(last=True)
    [(path, data)] = store.objects.items()
    assert path.startswith("bucket/base/events/2")
    assert path.endswith("-d1-1.parquet")
    assert times(data) == [1, 2, 3]
    assert traces.dropped == 0
    assert store.deleted == []


@pytest.mark.usefixtures("small_groups")
@pytest.mark.parametrize("failure", [OSError("the storage is away"), RuntimeError("a surprise")])
@pytest.mark.parametrize("begun", [True, False])
def test_rows_for_a_storage_that_fails_are_dropped_and_counted(
    caplog: pytest.LogCaptureFixture, failure: Exception, begun: bool
) -> None:
    store = ObjectStore()
    traces = Traces(storage_of(store), "d1", "sna")
    put(traces, 1, 2, 3)
    if begun:
        traces.events.write()
    store.failure = failure
    traces.events.write(last=True)
    put(traces, 4)
    traces.events.write(last=True)
    dropped = traces.dropped
    assert dropped >= 3
    (told,) = warnings_of(caplog, trace_writer.__name__)
    assert "cannot write traces to s3://bucket/base/events" in told
    assert str(failure) in told
    store.failure = None
    put(traces, 5)
    traces.events.write(last=True)
    written = [number for data in store.objects.values() for number in times(data)]
    assert 5 in written
    assert len(written) + dropped == 5, "each row is written or counted"
    assert traces.dropped == dropped


def test_an_incomplete_object_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_writer, "_GROUP", trace_writer._BATCH)
    store = ObjectStore()
    traces = Traces(storage_of(store), "d1", "sna")
    put(traces, *range(trace_writer._BATCH))
    traces.events.write()
    traces.events.put(("stocks", "h1", "no number", "", 1.0))
    traces.events.write(last=True)
    assert len(store.deleted) == 1
    assert store.objects == {}
    assert traces.dropped == trace_writer._BATCH + 1


def test_a_storage_that_cannot_be_reached_at_first_is_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = ObjectStore()
    answers: Iterator[bool] = iter([False, False, True])

    def connect() -> tuple[pa_fs.FileSystem, str]:
        if not next(answers):
            raise StorageUnavailable("there is no way to it")
        return pa_fs.PyFileSystem(store), "bucket"

    traces = Traces(OtherStorage("s3://bucket", connect), "d1", "sna", roll_seconds=0.0)
    traces.start()
    put(traces, 1)
    traces.close()
    assert "traces cannot be written to s3://bucket yet: there is no way to it" in caplog.text
    assert traces.dropped == 1
    put(traces, 2)
    traces.events.write(last=True)
    assert [times(data) for data in store.objects.values()] == [[2]]


def test_a_storage_that_hangs_costs_rows_and_neither_requests_nor_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(traces_module, "_EVENTS_QUEUED", 3)
    monkeypatch.setattr(traces_module, "_CLOSE_SECONDS", 0.0)
    reached, released = threading.Event(), threading.Event()

    def connect() -> tuple[pa_fs.FileSystem, str]:
        reached.set()
        released.wait()
        return pa_fs.PyFileSystem(ObjectStore()), "bucket"

    traces = Traces(OtherStorage("s3://bucket", connect), "d1", "sna")
    traces.start()
    try:
        reached.wait()
        put(traces, *range(5))
        assert traces.dropped == 2
        traces.close()
        assert "s3://bucket takes too long: the last rows of traces may be lost" in caplog.text
    finally:
        released.set()
    monkeypatch.setattr(traces_module, "_CLOSE_SECONDS", 60.0)
    traces.close()


def test_where_files_are_seen_before_they_are_complete_they_are_renamed(tmp_path: Path) -> None:
    """As on HDFS: the same calls, on a file system that is here."""
    system = pa_fs.SubTreeFileSystem(str(tmp_path), pa_fs.LocalFileSystem())
    storage = OtherStorage("hdfs://namenode/base", lambda: (system, "base"))
    file = storage.begin("events", "a.parquet")
    file.sink.write(b"a part")
    file.sink.flush()
    assert [path.name for path in (tmp_path / "base/events").iterdir()] == [".a.parquet"]
    assert file.size() == 6
    file.finish()
    assert [path.name for path in (tmp_path / "base/events").iterdir()] == ["a.parquet"]
    other = storage.begin("events", "b.parquet")
    other.discard()
    assert [path.name for path in (tmp_path / "base/events").iterdir()] == ["a.parquet"]


async def test_a_dispatcher_writes_to_an_address(etcd_server: TestEtcd, tmp_path: Path) -> None:
    folder = tmp_path / "some where"
    async with (
        world(etcd_server.access()) as w,
        w.dispatcher(traces=folder.as_uri(), id="d1") as d,
    ):
        begun = views(await d.begin("subscription", specs(3), wait=TIMEOUT))
    rows = pq.read_table(folder / "requests").to_pylist()
    assert {row["request_id"] for row in rows} == {record.id for record in begun}
    for path in (folder, folder / "requests"):
        assert path.stat().st_mode & 0o777 == 0o700


def test_a_local_address_is_bounded_as_a_folder_is(tmp_path: Path) -> None:
    storage = open_storage(tmp_path.as_uri(), 1, Clock())
    assert isinstance(storage, LocalStorage)
    assert storage.place == str(tmp_path)
    traces = Traces(storage, "d1", "sna")
    put(traces, 1)
    traces.events.write(last=True)
    assert list((tmp_path / "events").iterdir()) == []


def test_no_log_has_the_secrets_of_an_address(caplog: pytest.LogCaptureFixture) -> None:
    """On the real file system for S3; nobody answers at the address."""
    where = "s3://KEY:geheim@bucket/base?region=here&scheme=http&endpoint_override=127.0.0.1:9"
    storage = open_storage(where, 1, Clock())
    assert storage.place == "s3://bucket/base"
    traces = Traces(storage, "d1", "sna")
    put(traces, 1)
    traces.events.write(last=True)
    assert traces.dropped == 1
    assert "cannot write traces to s3://bucket/base/events" in caplog.text
    bad = open_storage("nosuch://KEY:geheim@bucket/base", 1, Clock())
    with pytest.raises(StorageUnavailable) as refused:
        bad.prepare()
    assert "geheim" not in caplog.text + str(refused.value)
