"""The columns of traces, as docs/reference/traces.md describes them."""

from typing import NamedTuple

from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

_TEXT, _LONG, _INT = StringType(), LongType(), IntegerType()
_COLUMNS: dict[str, DataType] = {
    "request_id": _TEXT,
    "kind": _TEXT,
    "space": _TEXT,
    "host": _TEXT,
    "partition": _TEXT,
    "configurator": _TEXT,
    "mode": _TEXT,
    "regions": ArrayType(_TEXT),
    "received_us": _LONG,
    "queued_us": _LONG,
    "decided_us": _LONG,
    "pushed_us": _LONG,
    "done_us": _LONG,
    "slice": _LONG,
    "slice_size": _INT,
    "adds": _INT,
    "modifies": _INT,
    "deletes": _INT,
    "switches": _INT,
    "outcome": _TEXT,
    "target_id": _TEXT,
    "filter": _TEXT,
}
REQUESTS = StructType([StructField(name, kind) for name, kind in _COLUMNS.items()])

EVENTS = StructType(
    [
        StructField("space", _TEXT),
        StructField("host", _TEXT),
        StructField("time_us", _LONG),
        StructField("values", _TEXT),
        StructField("weight", DoubleType()),
    ]
)

ADDED = frozenset({"slice_size", "weight"})
"""Columns that files of earlier releases lack: rows of these have null there."""

PARQUET: dict[DataType, str] = {
    _TEXT: "BINARY",
    _LONG: "INT64",
    _INT: "INT32",
    DoubleType(): "DOUBLE",
}
"""How Parquet names the types of plain columns."""


class TraceKind(NamedTuple):
    """A kind of traces: the name of its folder, what to call its files, and its columns."""

    folder: str
    text: str
    columns: StructType
    has_spaces: bool  # whether footers describe the spaces


REQUEST_TRACES = TraceKind("requests", "request traces", REQUESTS, has_spaces=True)
EVENT_TRACES = TraceKind("events", "traces of events", EVENTS, has_spaces=False)
