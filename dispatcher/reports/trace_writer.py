"""Writes rows of one kind to Parquet files: a bounded queue, and files that are rolled.

The event loop calls `put`; the thread that writes calls everything else.
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from configurators.environment import Clock
from configurators.memory import return_free_memory
from dispatcher.reports.trace_storage import TraceFile, TraceStorage

_log = logging.getLogger(__name__)

_BATCH = 200  # rows that are packed together: as objects they take several times as much memory
_GROUP = 10_000  # rows that are written together
_ROLL_BYTES = 64 << 20

Row = tuple[Any, ...]


class TraceWriter:
    """One kind of rows: a queue, and the file that is being written."""

    def __init__(
        self,
        storage: TraceStorage,
        folder: str,
        name: str,
        schema: pa.Schema,
        row: Callable[[Row], Row],
        clock: Clock,
        roll_seconds: float,
        roll_rows: int,
        most_queued: int,
        footer: Callable[[], Mapping[str, str]] | None = None,
    ) -> None:
        """`footer` gives what is added to the footer of each file when it is closed."""
        self.dropped = 0
        self._storage = storage
        self._folder = folder
        self._name = name
        self._schema = schema
        self._row = row
        self._clock = clock
        self._most_queued = most_queued
        self._footer = footer
        self._roll_seconds = roll_seconds
        self._roll_rows = roll_rows
        self._queue: deque[Row] = deque()
        self._ready: list[Row] = []  # as they are written
        self._packed: list[pa.RecordBatch] = []
        self._file: TraceFile | None = None
        self._file_name = ""
        self._writer: pq.ParquetWriter | None = None
        self._rows = 0
        self._opened = 0.0
        self._number = 0
        self._reported = False

    def put(self, row: Row) -> bool:
        """Queue a row; False if there is no room."""
        if len(self._queue) >= self._most_queued:
            self.dropped += 1
            return False
        self._queue.append(row)
        return True

    def write(self, last: bool = False) -> None:
        """Write the queued rows, if they are many or old enough, and roll the file."""
        age = self._clock.monotonic() - self._opened if self._opened else 0.0
        due = last or age > self._roll_seconds
        if (self._queue or self._ready or self._packed) and not self._opened:
            self._opened = self._clock.monotonic()
        try:
            while self._queue:
                self._ready.append(self._row(self._queue.popleft()))
                if len(self._ready) >= _BATCH:
                    self._pack()
                if len(self._packed) >= _GROUP // _BATCH:
                    self._append()
                    if self._rows >= self._roll_rows or self._size() >= _ROLL_BYTES:
                        self._roll()
            if due:
                self._pack()
                self._append()
                self._roll()
        except Exception as error:  # whatever it is, later rows must be written
            self._drop_rows(error)

    def _pack(self) -> None:
        """Pack the rows that are ready."""
        rows, self._ready = self._ready, []
        if not rows:
            return
        self._rows += len(rows)  # they are lost if this or the writing fails
        columns = zip(*rows, strict=True)
        arrays = [
            pa.array(column, field.type)
            for column, field in zip(columns, self._schema, strict=True)
        ]
        self._packed.append(pa.RecordBatch.from_arrays(arrays, schema=self._schema))

    def _append(self) -> None:
        """Write what is packed."""
        packed, self._packed = self._packed, []
        if not packed:
            return
        if self._writer is None:
            self._number += 1
            now = datetime.fromtimestamp(self._clock.wall(), UTC)
            stamp = now.strftime("%Y%m%dT%H%M%S")
            self._file_name = f"{stamp}-{self._name}-{self._number}.parquet"
            self._file = self._storage.begin(self._folder, self._file_name)
            self._writer = pq.ParquetWriter(self._file.sink, self._schema, compression="zstd")
        self._writer.write_table(pa.Table.from_batches(packed), row_group_size=_GROUP)

    def _size(self) -> int:
        return self._file.size() if self._file else 0

    def _roll(self) -> None:
        if self._writer and self._file:
            self._add_footer(self._writer)
            self._writer.close()
            self._file.finish()
            self.tidy()
        self._writer = self._file = None
        self._rows = 0
        self._opened = self._clock.monotonic() if self._queue else 0.0
        self._reported = False
        pa.default_memory_pool().release_unused()  # Arrow keeps tens of megabytes otherwise
        return_free_memory()

    def _add_footer(self, writer: pq.ParquetWriter) -> None:
        if self._footer is None:
            return
        try:
            writer.add_key_value_metadata(self._footer())
        except Exception:  # whatever it is, the rows are worth more
            text = "%s has all its rows, but its footer lacks the description of them"
            _log.exception(text, self._file_name)

    def tidy(self) -> None:
        """Make room for the next files."""
        try:
            self._storage.tidy()
        except OSError as error:
            _log.warning("old traces cannot be removed: %s", error)

    def _drop_rows(self, error: Exception) -> None:
        """Drop the rows that cannot be written."""
        self.dropped += self._rows
        if not self._reported:
            text = "cannot write traces to %s; they are dropped: %s"
            cause = None if isinstance(error, OSError) else error
            _log.error(text, f"{self._storage.place}/{self._folder}", error, exc_info=cause)
        self._reported = True
        writer, file = self._writer, self._file
        self._writer = self._file = None
        self._packed = []
        self._rows = 0
        self._opened = 0.0
        try:
            if writer:
                writer.close()
        except (OSError, pa.ArrowException):
            _log.debug("the unfinished file could not be closed", exc_info=True)
        try:
            if file:
                file.discard()
        except (OSError, pa.ArrowException):
            _log.debug("the unfinished file could not be deleted", exc_info=True)
