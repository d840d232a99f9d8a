"""The footer of files of requests: the spaces that the rows speak of, read without the service."""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from configurators.environment import Clock
from configurators.state.trace_spaces import NoTraceSpaces, TraceSpace, decode_footer, encode_footer
from configurators.store.keys import PartitionName
from configurators.store.model import SpaceDoc
from dispatcher.reports import trace_writer
from dispatcher.reports import traces as traces_module
from dispatcher.reports.trace_storage import LocalStorage
from dispatcher.reports.trace_writer import TraceWriter
from dispatcher.reports.traces import Traces
from dzflow.filters import parse_filter
from tests.dispatcher.support import TIMEOUT, specs, views, world
from tests.etcd import TestEtcd
from tests.support import warnings_of


def _spaces(file: Path) -> dict[str, TraceSpace]:
    return decode_footer(pq.read_metadata(file).metadata)


async def test_rows_are_understood_with_nothing_but_their_file(
    etcd_server: TestEtcd, tmp_path: Path
) -> None:
    async with (
        world(etcd_server.access()) as w,
        w.dispatcher(traces=str(tmp_path)) as d,
    ):
        await w.space("sports", 2)
        await d.catalogue.refresh_spaces()
        views(await d.begin("subscription", specs(5), wait=TIMEOUT))
        served = {space.name: space for space in d.catalogue.spaces}
    (file,) = (tmp_path / "requests").iterdir()
    spaces = _spaces(file)
    assert spaces.keys() == {"stocks", "sports"}
    for name, space in spaces.items():
        assert space.number == served[name].number
        assert space.versions[space.current].map == served[name].current.map
    for row in pq.read_table(file).to_pylist():
        partition = PartitionName.parse(row["partition"])
        space = spaces[row["space"]]
        assert partition.space == space.number
        stored = space.versions[partition.version]
        index = stored.index(row["space"], partition.version)
        regions = index.regions(parse_filter(index.space, json.loads(row["filter"])))
        owned = [part for each in regions for part in stored.map.parts(each)]
        assert row["regions"] == [str(part) for leaf, part in owned if leaf == partition.leaf]


def _table(folder: Path, footer: Mapping[str, str] | Exception) -> TraceWriter:
    def made() -> Mapping[str, str]:
        if isinstance(footer, Exception):
            raise footer
        return footer

    schema = pa.schema([("number", pa.int64())])
    storage = LocalStorage(folder.parent)
    return TraceWriter(storage, folder.name, "d1", schema, tuple, Clock(), 300.0, 4, 100, made)


def test_every_file_gets_the_footer_when_it_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_writer, "_BATCH", 2)
    monkeypatch.setattr(trace_writer, "_GROUP", 4)
    footer = {"a key": "before"}
    table = _table(tmp_path / "rows", footer)
    for number in range(6):
        table.put((number,))
    table.write()
    (first,) = (tmp_path / "rows").glob("[!.]*.parquet")
    footer["a key"] = "later: Ümlaut"
    table.write(last=True)
    (second,) = set((tmp_path / "rows").iterdir()) - {first}
    assert pq.read_metadata(first).metadata[b"a key"] == b"before"
    assert pq.read_metadata(second).metadata[b"a key"] == "later: Ümlaut".encode()
    assert sorted(pq.read_table(tmp_path / "rows")["number"].to_pylist()) == list(range(6))


def test_rows_are_kept_and_the_log_says_once_that_the_footer_cannot_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = _table(tmp_path / "rows", ValueError("not this one"))
    for number in range(2):
        table.put((number,))
        table.write(last=True)
    files = sorted((tmp_path / "rows").iterdir())
    assert [pq.read_table(file)["number"].to_pylist() for file in files] == [[0], [1]]
    assert table.dropped == 0
    told = warnings_of(caplog, trace_writer.__name__)
    assert [text.split()[0] for text in told] == [file.name for file in files]
    for file in files:
        with pytest.raises(NoTraceSpaces):
            _spaces(file)


async def test_spaces_for_which_there_is_no_room_are_named_in_the_log(
    etcd_server: TestEtcd,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(traces_module, "encode_footer", partial(encode_footer, most_bytes=10))
    async with (
        world(etcd_server.access()) as w,
        w.dispatcher(traces=str(tmp_path)) as d,
    ):
        views(await d.begin("subscription", specs(1), wait=TIMEOUT))
    (file,) = (tmp_path / "requests").iterdir()
    assert _spaces(file) == {}
    (text,) = warnings_of(caplog, traces_module.__name__)
    assert "(1, such as stocks)" in text


def test_files_of_events_have_no_spaces(tmp_path: Path) -> None:
    def unused() -> tuple[SpaceDoc, ...]:
        raise AssertionError

    traces = Traces(LocalStorage(tmp_path), "d1", "sna", spaces=unused)
    traces.events.put(("stocks", "h1", 1, "{}", 1.0))
    traces.events.write(last=True)
    (file,) = (tmp_path / "events").iterdir()
    with pytest.raises(NoTraceSpaces, match="it holds no requests"):
        _spaces(file)
