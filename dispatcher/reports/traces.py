"""Traces in Parquet: a row per partial, and sampled events, written by a thread of their own.

Rows wait in bounded queues; when a queue or the disk is full, rows are dropped and counted. A file
gets its final name when it is complete, so that readers never see a part of one. All files together
take a bounded amount of disk space: the oldest are deleted first.

`received_us` and `done_us` are times (microseconds since the epoch); `queued_us`, `decided_us` and
`pushed_us` say how long that took. Each row has the times of its whole slice, in which `slice_size`
partials were decided and pushed together.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from configurators.environment import Clock
from configurators.memory import return_free_memory
from configurators.streams.messages import Done
from dispatcher.requests.intake.routing import region_texts
from dispatcher.requests.operation import Operation
from dzflow.host_protocol import MAX_PAYLOAD

_log = logging.getLogger(__name__)

_QUEUED = 100_000  # rows that wait for the writer
_EVENTS_QUEUED = 40_000
_EVENT_BYTES = 4 * MAX_PAYLOAD  # of an event as JSON, which is longer than what is sent
_STALE_SECONDS = 3_600.0  # after which the process that wrote an unfinished file must be gone
_WRITE_EVERY = 0.1  # seconds: a few rows at a time, because requests wait for the interpreter
_BATCH = 200  # rows that are packed together: as objects they take several times as much memory
_GROUP = 10_000  # rows that are written together
_ROLL_ROWS = 500_000
_ROLL_BYTES = 64 << 20
_ROLL_SECONDS = 300.0

_KINDS = {
    ("begin", "subscription"): "subscribe",
    ("begin", "advertisement"): "advertise",
    ("end", "subscription"): "unsubscribe",
    ("end", "advertisement"): "unadvertise",
    ("update", "subscription"): "update",
    ("update", "advertisement"): "update",
}

REQUESTS = pa.schema(
    [
        ("request_id", pa.string()),
        ("kind", pa.string()),
        ("space", pa.string()),
        ("host", pa.string()),
        ("partition", pa.string()),
        ("configurator", pa.string()),
        ("mode", pa.string()),
        ("regions", pa.list_(pa.string())),
        ("received_us", pa.int64()),
        ("queued_us", pa.int64()),
        ("decided_us", pa.int64()),
        ("pushed_us", pa.int64()),
        ("done_us", pa.int64()),
        ("slice", pa.int64()),
        ("slice_size", pa.int32()),
        ("adds", pa.int32()),
        ("modifies", pa.int32()),
        ("deletes", pa.int32()),
        ("switches", pa.int32()),
        ("outcome", pa.string()),
        ("target_id", pa.string()),
        ("filter", pa.string()),
    ]
)
EVENTS = pa.schema(
    [
        ("space", pa.string()),
        ("host", pa.string()),
        ("time_us", pa.int64()),
        ("values", pa.string()),
        ("weight", pa.float64()),
    ]
)

Row = tuple[Any, ...]


class Sample(Protocol):
    """An event that a publisher sent."""

    @property
    def space(self) -> str:
        """Its space."""

    @property
    def time_us(self) -> int:
        """When, in microseconds since the epoch."""

    @property
    def values(self) -> dict[str, Any]:
        """The event."""

    @property
    def weight(self) -> float:
        """How many published events it stands for."""


class Traces:
    """Queues rows, and writes them in a thread."""

    def __init__(
        self,
        folder: Path,
        name: str,
        mode: str,
        most_bytes: int = 2 << 30,
        clock: Clock | None = None,
        roll_seconds: float = _ROLL_SECONDS,
        roll_rows: int = _ROLL_ROWS,
    ) -> None:
        self._mode = mode
        self._clock = clock = clock or Clock()
        self._began = clock.wall() - clock.monotonic()
        tidy = partial(_tidy, folder, most_bytes, clock)
        self.requests = _Table(
            folder / "requests", name, REQUESTS, _request_row, tidy, clock, roll_seconds, roll_rows
        )
        self.events = _Table(
            folder / "events",
            name,
            EVENTS,
            tuple,
            tidy,
            clock,
            roll_seconds,
            roll_rows,
            _EVENTS_QUEUED,
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Write the rows that are left; takes a moment."""
        self._stop.set()
        self._thread.join()

    def task_ended(self, operation: Operation, done: Done, configurator: str) -> None:
        """A configurator has done or refused a task."""
        task = operation.rollout.latest.get(done.partition)
        if task is None or task.seq != done.seq:
            return
        now = self._clock.monotonic()
        self.requests.put(
            (operation, done, task.regions, configurator, self._mode, now, self._began)
        )

    def sample(self, host: str, events: Iterable[Sample]) -> int:
        """Queue sampled events; how many there was room for. Too large ones are dropped."""
        taken = 0
        for event in events:
            values = msgspec.json.encode(event.values)
            if len(values) > _EVENT_BYTES:
                self.events.dropped += 1
            else:
                taken += self.events.put(
                    (event.space, host, event.time_us, values.decode(), event.weight)
                )
        return taken

    @property
    def dropped(self) -> int:
        """How many rows were dropped."""
        return self.requests.dropped + self.events.dropped

    def _run(self) -> None:
        self.requests.tidy()
        while not self._stop.wait(_WRITE_EVERY):
            self.requests.write()
            self.events.write()
        self.requests.write(last=True)
        self.events.write(last=True)


class _Table:
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
        most: int = _QUEUED,
    ) -> None:
        self.dropped = 0
        self._folder = folder
        self._name = name
        self._schema = schema
        self._row = row
        self._tidy = tidy
        self._clock = clock
        self._most = most
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
        if len(self._queue) >= self._most:
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
            self._writer.close()
            self._file.rename(self._file.with_name(self._file.name.removeprefix(".")))
            self.tidy()
        self._writer = self._file = None
        self._rows = 0
        self._opened = self._clock.monotonic() if self._queue else 0.0
        self._reported = False
        pa.default_memory_pool().release_unused()  # Arrow keeps tens of megabytes otherwise
        return_free_memory()

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


def _request_row(row: Row) -> Row:
    operation: Operation = row[0]
    done: Done = row[1]
    regions, configurator, mode, now, began = row[2:]
    record = operation.record
    name = record.id if operation.action == "begin" else f"{record.id}.{record.seq}"
    waited = round((now - operation.write_ended) * 1e6) - done.decided_us - done.pushed_us
    given = record.next.filter if operation.action == "update" and record.next else record.filter
    return (
        name,
        _KINDS[operation.action, record.kind],
        record.space,
        record.host,
        done.partition,
        configurator,
        mode,
        region_texts(regions),
        round((operation.received + began) * 1e6),
        max(0, waited),
        done.decided_us,
        done.pushed_us,
        round((now + began) * 1e6),
        done.slice,
        done.size,
        done.adds,
        done.modifies,
        done.deletes,
        done.switches,
        done.outcome,
        record.id,
        msgspec.json.encode(given).decode(),
    )


def _tidy(folder: Path, most_bytes: int, clock: Clock) -> None:
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
