"""Stores in a record why its operation waits, for all readers of the record."""

from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from configurators.store.documents import encode
from configurators.store.etcd.client import Put
from configurators.store.model import Record
from dispatcher.requests.operation import Operation
from dispatcher.requests.steps import Steps
from dispatcher.requests.timers import call_after
from dispatcher.requests.writing.record_writer import RecordWriter
from dispatcher.requests.writing.writes import Write, WriteResult
from dzflow.aio import BackgroundTasks

_PAUSE = 1.0  # seconds: an operation that waits for less long stores no reason
_APART = 0.01  # seconds between transactions: nobody waits for a reason

Then = Callable[[Operation], None]


class WaitReasons:
    """Writes the reasons of operations that wait for longer than a moment."""

    def __init__(self, writer: RecordWriter, steps: Steps, tasks: BackgroundTasks) -> None:
        self._writer = writer
        self._steps = steps
        self._tasks = tasks
        self._waiting: dict[Operation, None] = {}
        self._writing: dict[Operation, Then | None] = {}  # and what to do after the write

    def store_soon(self, operation: Operation) -> None:
        """Store why an operation waits, if it still does after a moment.

        Not for one that no caller has asked for: nobody waits for that.
        """
        if operation.reindex:
            return
        if not self._waiting:
            call_after(self._tasks, _PAUSE, self._store)
        self._waiting[operation] = None

    def postpone(self, operation: Operation, then: Then) -> bool:
        """Do something after the write of an operation's reason; False if there is none now.

        Only one write of a record can be in progress, because each must know the revision.
        """
        if operation not in self._writing:
            return False
        self._writing[operation] = then
        return True

    def _store(self) -> None:
        operations, self._waiting = self._waiting, {}
        for operation in operations:
            if operation.ended or operation in self._writing:
                continue
            record, reason = operation.record, operation.rollout.waiting
            if reason in (None, record.reason):
                continue
            self._writing[operation] = None
            waiting = replace(record, reason=reason)
            put = Put(operation.key, encode(waiting))
            on_result = partial(self._stored, operation, waiting)
            write = Write(operation.key, operation.revision, [put], on_result)
            self._writer.write(write, _APART)

    def _stored(
        self, operation: Operation, record: Record, write: Write, result: WriteResult
    ) -> None:
        then = self._writing.pop(operation)
        if operation.ended:
            return
        if result is WriteResult.WRITTEN:
            operation.revision, operation.record = write.revision, record
        if result is WriteResult.CHANGED:
            self._steps.record_changed(operation, write.found, then or self._steps.settle)
        elif then:
            then(operation)
