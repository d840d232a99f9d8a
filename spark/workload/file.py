"""The file of a workload: Parquet that bench and `dzflow trace replay` read. Needs no Spark.

docs/reference/traces.md describes it. The footer has the spaces, as that of a trace file has.
"""

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from configurators.state.trace_spaces import SPACES_KEY, VERSION_KEY, TraceSpace, decode_footer
from dzflow.errors import BadInput
from spark.workload.model import WorkloadAbout, WorkloadRequest

ABOUT_KEY = "dzflow.workload"
COLUMNS = pa.schema(
    [
        pa.field("at_us", pa.int64(), nullable=False),
        *(
            pa.field(name, pa.string(), nullable=False)
            for name in ("kind", "space", "host", "target_id", "filter")
        ),
    ]
)
_TOGETHER = 10_000  # requests that are written or read together


class BadWorkload(BadInput):
    """A file that has no workload, or cannot be written."""


def write_workload(
    path: Path,
    requests: Iterable[WorkloadRequest],
    about: WorkloadAbout,
    footer: Mapping[str, str],
) -> None:
    """Write a file that only its owner can read; it is complete, or as it was before.

    `footer` is that of a trace file: the spaces are taken from it.
    """
    entries = {key: footer[key] for key in (VERSION_KEY, SPACES_KEY) if key in footer}
    entries[ABOUT_KEY] = msgspec.json.encode(about).decode()
    remaining = iter(requests)
    draft = ""
    try:
        handle, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        os.close(handle)
        with pq.ParquetWriter(draft, COLUMNS, compression="zstd") as writer:
            while chunk := list(islice(remaining, _TOGETHER)):
                arrays = [
                    pa.array([getattr(request, field.name) for request in chunk], field.type)
                    for field in COLUMNS
                ]
                writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=COLUMNS))
            writer.add_key_value_metadata(entries)
        Path(draft).replace(path)
    except OSError as error:
        raise BadWorkload(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            Path(draft).unlink()  # if it is still there


class WorkloadFile:
    """A workload in a file; its requests are read a few at a time."""

    def __init__(self, path: Path) -> None:
        """BadWorkload if the file has no workload."""
        self.path = path
        try:
            # The handle is opened here: given a folder, Arrow would look for files in it.
            self._file = pq.ParquetFile(path)
        except (OSError, pa.ArrowException) as error:
            raise BadWorkload(f"{path} cannot be read: {error}") from None
        schema = self._file.schema_arrow
        for field in COLUMNS:
            if schema.get_field_index(field.name) < 0:
                raise BadWorkload(f"{path} is no workload: it lacks the column {field.name}")
            if schema.field(field.name).type != field.type:
                raise BadWorkload(f"{path}: the column {field.name} is not of type {field.type}")
        self._entries: Mapping[bytes, bytes] = self._file.metadata.metadata or {}
        about = self._entries.get(ABOUT_KEY.encode())
        if about is None:
            raise BadWorkload(
                f"{path} is no workload: make one with `dzflow trace replay PATH --workload FILE`"
            )
        try:
            self.about = msgspec.json.decode(about, type=WorkloadAbout)
        except msgspec.MsgspecError as error:
            raise BadWorkload(f"{path}: {ABOUT_KEY} in its footer is wrong: {error}") from None

    def spaces(self) -> dict[str, TraceSpace]:
        """The spaces of its requests; BadTraceSpaces if they cannot be used."""
        return decode_footer(self._entries)

    def requests(self) -> Iterator[WorkloadRequest]:
        """The requests, in the order in which they came."""
        names = COLUMNS.names
        for batch in self._file.iter_batches(_TOGETHER, columns=names):
            columns = [batch.column(name) for name in names]
            if any(column.null_count for column in columns):
                raise BadWorkload(f"{self.path} has requests with empty columns")
            for values in zip(*(column.to_pylist() for column in columns), strict=True):
                yield WorkloadRequest(*values)
