"""Writes rows of one kind to Parquet files: a bounded queue, and files that are rolled.

The event loop calls `put`; the thread that writes calls everything else.
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from configurators.environment import Clock
from configurators.memory import return_free_memory

_log = logging.getLogger(__name__)

_STALE_SECONDS = 3_600.0  # after which the process that wrote an unfinished file must be gone
_BATCH = 200  # rows that are packed together: as objects they take several times as much memory
_GROUP = 10_000  # rows that are written together
_ROLL_BYTES = 64 << 20

Row = tuple[Any, ...]


class TraceTable:
    """One kind of rows: a queue, and the file that is being written."""

    def __init__(
        self,
        folder: Path,
        name: str,
        schema: pa.Schema,
        row: Callable[[Row], Row],
        tidy: Callable[[], None],
        clock: Clock,
        roll_seconds: float,
        roll_rows: int,
        most_queued: int,
        footer: Callable[[], Mapping[str, str]] | None = None,
    ) -> None:
        """`footer` gives what is added to the footer of each file when it is closed."""
        self.dropped = 0
        self._folder = folder
        self._name = name
        self._schema = schema
        self._row = row
        self._tidy = tidy
        self._clock = clock
        self._most_queued = most_queued
        self._footer = footer
        self._roll_seconds = roll_seconds
        self._roll_rows = roll_rows
        self._queue: deque[Row] = deque()
        self._ready: list[Row] = []  # as they are written
        self._packed: list[pa.RecordBatch] = []
        self._file: Path | None = None
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
            for each in (self._folder.parent, self._folder):  # `parents` would open them to others
                each.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._number += 1
            now = datetime.fromtimestamp(self._clock.wall(), UTC)
            stamp = now.strftime("%Y%m%dT%H%M%S")
            self._file = self._folder / f".{stamp}-{self._name}-{self._number}.parquet"
            self._writer = pq.ParquetWriter(self._file, self._schema, compression="zstd")
        self._writer.write_table(pa.Table.from_batches(packed), row_group_size=_GROUP)

    def _size(self) -> int:
        return self._file.stat().st_size if self._file else 0

    def _roll(self) -> None:
        if self._writer and self._file:
            self._add_footer(self._writer, self._file)
            self._writer.close()
            self._file.rename(self._file.with_name(self._file.name.removeprefix(".")))
            self.tidy()
        self._writer = self._file = None
        self._rows = 0
        self._opened = self._clock.monotonic() if self._queue else 0.0
        self._reported = False
        pa.default_memory_pool().release_unused()  # Arrow keeps tens of megabytes otherwise
        return_free_memory()

    def _add_footer(self, writer: pq.ParquetWriter, file: Path) -> None:
        if self._footer is None:
            return
        try:
            writer.add_key_value_metadata(self._footer())
        except Exception:  # whatever it is, the rows are worth more
            text = "%s has all its rows, but its footer lacks the description of them"
            _log.exception(text, file.name.removeprefix("."))

    def tidy(self) -> None:
        """Make room for the next files."""
        try:
            self._tidy()
        except OSError as error:
            _log.warning("old traces cannot be removed: %s", error)

    def _drop_rows(self, error: Exception) -> None:
        """Drop the rows that cannot be written."""
        self.dropped += self._rows
        if not self._reported:
            text = "cannot write traces to %s; they are dropped: %s"
            cause = None if isinstance(error, OSError) else error
            _log.error(text, self._folder, error, exc_info=cause)
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
        if file:
            file.unlink(missing_ok=True)


def delete_old_files(folder: Path, most_bytes: int, clock: Clock) -> None:
    """Delete unfinished files of dead processes, and the oldest files if all are too large.

    Several processes may write to the folder, and do this at the same time.
    """
    found = []
    for path in folder.glob("*/*.parquet"):
        try:
            about = path.stat()
        except FileNotFoundError:
            continue
        if not path.name.startswith("."):
            found.append((about.st_mtime, about.st_size, path))
        elif clock.wall() - about.st_mtime > _STALE_SECONDS:
            path.unlink(missing_ok=True)
    taken = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if taken <= most_bytes:
            break
        path.unlink(missing_ok=True)
        taken -= size
