"""Traces in Parquet: a row per partial, and sampled events, written by their own thread.

Rows wait in bounded queues; when a queue is full or the storage fails, rows are dropped and
counted. `dispatcher/reports/trace_storage.py` says when readers see a file, and when it is deleted.

`received_us` and `done_us` are times (microseconds since the epoch); `queued_us`, `decided_us` and
`pushed_us` say how long that took. Each row has the times of its whole slice, in which `slice_size`
partials were decided and pushed together.

The footer of each file of requests describes the spaces: readers need no service.
"""

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]

from configurators.environment import Clock
from configurators.state.trace_spaces import encode_footer
from configurators.store.model import SpaceDoc
from configurators.streams.messages import Done
from dispatcher.reports.trace_storage import TraceStorage
from dispatcher.reports.trace_writer import Row, TraceWriter
from dispatcher.requests.intake.routing import region_texts
from dispatcher.requests.operation import Operation
from dzflow.host_protocol import MAX_PAYLOAD

_log = logging.getLogger(__name__)

_QUEUED = 100_000  # rows that wait for the writer
_EVENTS_QUEUED = 40_000
_EVENT_BYTES = 4 * MAX_PAYLOAD  # of an event as JSON, which is longer than what is sent
_WRITE_EVERY = 0.1  # seconds: a few rows at a time, because requests wait for the interpreter
_ROLL_ROWS = 500_000
_ROLL_SECONDS = 300.0
_CLOSE_SECONDS = 8.0  # for the last rows; the process is killed if it takes 12 s to stop

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
        storage: TraceStorage,
        name: str,
        mode: str,
        clock: Clock | None = None,
        roll_seconds: float = _ROLL_SECONDS,
        roll_rows: int = _ROLL_ROWS,
        spaces: Callable[[], tuple[SpaceDoc, ...]] = tuple,
    ) -> None:
        """`spaces` gives the documents of all spaces; the thread that writes calls it."""
        self._mode = mode
        self._spaces = spaces
        self._clock = clock = clock or Clock()
        self._storage = storage
        self.requests = TraceWriter(
            storage,
            "requests",
            name,
            REQUESTS,
            _request_row,
            clock,
            roll_seconds,
            roll_rows,
            _QUEUED,
            self._footer,
        )
        self.events = TraceWriter(
            storage,
            "events",
            name,
            EVENTS,
            tuple,
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
        """Write the rows that are left; takes a moment, but not long if the storage hangs."""
        self._stop.set()
        self._thread.join(_CLOSE_SECONDS)
        if self._thread.is_alive():
            text = "%s takes too long: the last rows of traces may be lost"
            _log.error(text, self._storage.place)

    def task_ended(self, operation: Operation, done: Done, configurator: str) -> None:
        """A configurator has done or refused a task."""
        task = operation.rollout.latest.get(done.partition)
        if task is None or task.seq != done.seq:
            return
        # The wall clock may be set, or go on while the machine is suspended: it is asked each time.
        now, wall = self._clock.monotonic(), self._clock.wall()
        self.requests.put((operation, done, task.regions, configurator, self._mode, now, wall))

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

    def _footer(self) -> dict[str, str]:
        footer = encode_footer(self._spaces())
        if footer.left_out:
            text = "the footer of a trace file has no room for some spaces (%d, such as %s)"
            _log.warning(text, len(footer.left_out), footer.left_out[0])
        return footer.entries

    def _run(self) -> None:
        try:
            self._storage.prepare()
        except OSError as error:  # it is tried again with the first file
            _log.error("traces cannot be written to %s yet: %s", self._storage.place, error)
        self.requests.tidy()
        while not self._stop.wait(_WRITE_EVERY):
            self.requests.write()
            self.events.write()
        self.requests.write(last=True)
        self.events.write(last=True)


def _request_row(row: Row) -> Row:
    operation: Operation = row[0]
    done: Done = row[1]
    regions, configurator, mode, now, wall = row[2:]
    record = operation.record
    kind = "reindex" if operation.reindex else _KINDS[operation.action, record.kind]
    name = record.id if operation.action == "begin" else f"{record.id}.{record.seq}"
    waited = round((now - operation.write_ended) * 1e6) - done.decided_us - done.pushed_us
    given = record.next.filter if operation.action == "update" and record.next else record.filter
    return (
        name,
        kind,
        record.space,
        record.host,
        done.partition,
        configurator,
        mode,
        region_texts(regions),
        round((wall - (now - operation.received)) * 1e6),
        max(0, waited),
        done.decided_us,
        done.pushed_us,
        round(wall * 1e6),
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
