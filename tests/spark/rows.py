"""Rows of traces for tests: what is not given has a plain value."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from dispatcher.reports.traces import REQUESTS

BEGAN = 1_700_000_000_000_000  # microseconds


def row(id: str, **given: Any) -> dict[str, Any]:
    """A partial of a request, one millisecond after BEGAN and five milliseconds long."""
    received = given.get("received_us", BEGAN + 1_000)
    plain = {
        "request_id": id,
        "kind": "subscribe",
        "space": "stocks",
        "host": "h1",
        "partition": "1.0/all",
        "configurator": "configurator-1",
        "mode": "sna",
        "regions": ["0101"],
        "received_us": received,
        "queued_us": 1_000,
        "decided_us": 100,
        "pushed_us": 3_000,
        "done_us": received + 5_000,
        "slice": 1,
        "slice_size": 1,
        "adds": 2,
        "modifies": 0,
        "deletes": 0,
        "switches": 2,
        "outcome": "done",
        "target_id": id.partition(".")[0],
        "filter": "{}",
    }
    return plain | given


def write_rows(
    folder: Path,
    rows: Iterable[Mapping[str, Any]],
    name: str = "20231114T221320-a-1.parquet",
    footer: Mapping[str, str] | None = None,
    schema: pa.Schema = REQUESTS,
) -> Path:
    """A file of traces; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    with pq.ParquetWriter(path, schema) as writer:
        writer.write_table(pa.Table.from_pylist(list(rows), schema))
        writer.add_key_value_metadata(footer or {})
    return path
