"""The first write of an operation: it is stored in its record before anything else happens."""

from functools import partial

from configurators.environment import Clock
from configurators.store.documents import decode_record, encode
from configurators.store.etcd.client import Put, Stored, StoreError, absent
from configurators.store.keys import record_key, ttl_key
from configurators.store.model import Record
from dispatcher.errors import Conflict, NotFound, TooLarge, Unavailable
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.requests.in_flight import InFlight
from dispatcher.requests.intake.planning import Planner
from dispatcher.requests.operation import Operation, Stage
from dispatcher.requests.steps import Steps
from dispatcher.requests.timers import call_after
from dispatcher.requests.writing.record_writer import RecordWriter
from dispatcher.requests.writing.stored_records import StoredRecord
from dispatcher.requests.writing.writes import Write, WriteResult
from dzflow.aio import BackgroundTasks
from dzflow.errors import DzflowError

_PAUSE = 1.0  # seconds before the next attempt to write a resumed operation
REINDEXED = "reindexed"  # the kind of a conflict with nothing that users have changed
_MOST_ATTEMPTS = 20  # to change a record that others change, too


class OperationWriter:
    """Plans operations, writes them, and hands them on when they are stored."""

    def __init__(
        self,
        me: str,
        catalogue: Catalogue,
        planner: Planner,
        writer: RecordWriter,
        in_flight: InFlight,
        steps: Steps,
        tasks: BackgroundTasks,
        clock: Clock,
        max_record: int | None = None,
    ) -> None:
        """`max_record` is the most bytes of a record that callers make or update."""
        self._max_record = max_record
        self._me = me
        self._catalogue = catalogue
        self._planner = planner
        self._writer = writer
        self._in_flight = in_flight
        self._steps = steps
        self._tasks = tasks
        self._clock = clock
        self._writing: dict[str, int] = {}  # how many writes there are of each record
        self._in_doubt = False

    def is_attended(self, id: str) -> bool:
        """Whether this dispatcher works on a record's operation."""
        return id in self._writing or self._in_flight.get(id) is not None

    def clear_doubt(self) -> bool:
        """Whether, since the last call, a write may have stored an unattended operation.

        It may have succeeded although etcd's answer was lost.
        """
        doubt, self._in_doubt = self._in_doubt, False
        return doubt

    def write(self, operation: Operation) -> None:
        """Plan an operation and write it to its record."""
        began = self._clock.monotonic()
        try:
            self._planner.plan(operation)
        except DzflowError as error:
            self._steps.refuse(operation, error)
            return
        operation.enter(Stage.WRITING)
        operation.write_began = self._clock.monotonic()
        if operation.action != "end":
            operation.indexed += operation.write_began - began
        if operation.span is not None:
            operation.rollout.trace = operation.span.context
        record = operation.record
        operation.key = key = record_key(record.id)
        value = encode(record)
        most = self._max_record
        if most and len(value) > most and operation.limited:
            self._steps.refuse(operation, _too_large(len(value), most))
            return
        ops = [Put(key, value)]
        space = None
        compares = operation.only_if
        if operation.action != "end" and not operation.resumed:
            # Its regions must be those that the space has now.
            space = self._catalogue.spaces.get(record.space)
        if operation.action == "begin" and not operation.resumed:
            if record.ttl is not None:
                ops.append(Put(ttl_key(record.id), str(record.expires).encode()))
            if operation.repeatable:
                # Another call with the same key uses this id, too, and may be over already.
                compares = (absent(record_key(record.id, finished=True)),)
        self._writing[record.id] = self._writing.get(record.id, 0) + 1
        on_result = partial(self._written, operation)
        self._writer.write(Write(key, operation.revision, ops, on_result, space, compares))

    def _written(self, operation: Operation, write: Write, result: WriteResult) -> None:
        id = operation.id
        if self._writing[id] == 1:
            del self._writing[id]
        else:
            self._writing[id] -= 1
        if result is WriteResult.WRITTEN:
            operation.revision = write.revision
            operation.write_ended = self._clock.monotonic()
            if operation.caller:
                operation.caller.written(operation)
            self._steps.deliver(operation)
        elif result is WriteResult.CHANGED:
            self._record_changed(operation, write.found)
        elif result is WriteResult.FAILED:
            self._in_doubt |= write.uncertain
            if operation.resumed:
                operation.enter(Stage.ACCEPTED)
                call_after(self._tasks, _PAUSE, partial(self.write, operation))
            else:
                error = Unavailable(f"etcd does not take it: {write.error}", 2.0)
                self._steps.refuse(operation, error)
        elif operation.only_if:
            self._steps.hand_over(operation, None)
        else:
            operation.enter(Stage.ACCEPTED)
            self._tasks.spawn(self._plan_again(operation), f"plan {id} again")

    async def _plan_again(self, operation: Operation) -> None:
        """Write again with the space as it is now; unless the record has ended already."""
        space = self._catalogue.spaces.get(operation.record.space)
        ended: Stored | None = None
        try:
            if space:
                await self._catalogue.refresh(space)
            if operation.repeatable:
                ended = await self._writer.read(record_key(operation.id, finished=True))
        except StoreError as error:
            self._steps.refuse(operation, Unavailable(f"etcd cannot be read: {error}", 2.0))
            return
        if ended:
            self._steps.hand_over(operation, decode_record(ended.value))
        else:
            self.write(operation)

    def _record_changed(self, operation: Operation, found: Stored | None) -> None:
        """The record is not as it was when it was read."""
        operation.attempts += 1
        stored = StoredRecord.decode(found) if found else None
        if stored:
            self._in_doubt |= self._is_unattended(stored.record)
        if operation.only_if or (operation.resumed and operation.caller is None):
            self._steps.hand_over(operation, None)  # the dispatcher that changed it goes on
        elif (
            stored is None
            and operation.action == "end"
            and operation.stored
            and not operation.remembered
        ):
            # It ended meanwhile, perhaps because the caller has asked twice.
            self._steps.hand_over(operation, operation.stored.record)
        elif stored is None:
            text = f"there is no {operation.kind} {operation.id!r} (any more)"
            self._steps.refuse(operation, NotFound(text))
        elif operation.resumed or operation.spec or stored.record.state == "removing":
            self._steps.hand_over(operation, stored.record)
        elif operation.action == "end" and operation.attempts < _MOST_ATTEMPTS:
            operation.set_stored(stored)
            operation.enter(Stage.ACCEPTED)
            self.write(operation)
        else:
            text = f"{operation.id!r} is being changed by another call; try again"
            same = operation.stored and _same_for_users(stored.record, operation.stored.record)
            self._steps.refuse(operation, Conflict(text, REINDEXED if same else ""))

    def _is_unattended(self, record: Record) -> bool:
        """Whether a write of ours has stored an open operation, though it was thought to fail."""
        return record.open and record.by == self._me and not self.is_attended(record.id)


def _same_for_users(now: Record, before: Record) -> bool:
    """Whether all that may have changed in a record are its regions."""
    return now.filter == before.filter and (now.next is None or now.reindexing)


def _too_large(size: int, most: int) -> TooLarge:
    return TooLarge(
        f"the record would have {size} bytes, and a record has at most {most} (limits.record):"
        " while a filter is replaced, it has both; simplify the filter or use several"
    )
