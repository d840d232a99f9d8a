"""One operation on one record, from the moment it is accepted until it has ended. Pure."""

from collections.abc import Mapping, Sequence
from enum import Enum, IntEnum
from typing import Any, Literal, Protocol, Self

from msgspec.structs import replace

from configurators.store.etcd.client import Compare
from configurators.store.model import Record, RecordKind, Timing
from configurators.tracing import Span
from dispatcher.calls import Answer, RecordSpec
from dispatcher.errors import Problem
from dispatcher.requests.rollout import Rollout
from dispatcher.requests.writing.stored_records import StoredRecord
from dzflow.errors import DzflowError

Action = Literal["begin", "end", "update"]


def action_of(record: Record) -> Action:
    """What the open operation of a record does."""
    if record.state == "pending":
        return "begin"
    return "end" if record.state == "removing" else "update"


class Stage(IntEnum):
    """How far an operation has come. (Integers, because their hashes are cheap.)"""

    ACCEPTED = 0  # it waits for its turn, or to be planned again
    WRITING = 1  # it is being written to its record
    DELIVERING = 2  # partitions carry it out
    COMPLETE = 3  # all partitions have done their part; the result is being written
    ENDED = 4


_FOLLOWING: Mapping[Stage, frozenset[Stage]] = {
    # Refused when it is planned; or its caller is gone.
    Stage.ACCEPTED: frozenset({Stage.WRITING, Stage.ENDED}),
    # Its space or record has changed meanwhile; or no partition has anything to do.
    Stage.WRITING: frozenset({Stage.ACCEPTED, Stage.DELIVERING, Stage.COMPLETE, Stage.ENDED}),
    # Partitions get the next phase, or the same again; or another operation has replaced it.
    Stage.DELIVERING: frozenset({Stage.DELIVERING, Stage.COMPLETE, Stage.ENDED}),
    # A partition has a new owner, which must do it again; or the result has to be written again.
    Stage.COMPLETE: frozenset({Stage.DELIVERING, Stage.COMPLETE, Stage.ENDED}),
    Stage.ENDED: frozenset(),
}


class IllegalTransition(DzflowError):
    """An operation was to go from one stage to another that cannot follow it: a bug."""


class Ending(Enum):
    """How an operation has ended."""

    DONE = "done"
    FAILED = "failed"
    SUPERSEDED = "superseded"  # by another operation on the same record


class WaitingCaller(Protocol):
    """One element of a call that waits for an operation."""

    @property
    def cancelled(self) -> bool:
        """Whether the caller has gone away."""

    @property
    def over(self) -> bool:
        """Whether the call no longer waits for any element."""

    def written(self, current: "Operation | Record") -> None:
        """The element is stored; `current` shows its progress."""

    def answer(self, answer: Answer) -> None:
        """The element has its answer."""

    def refuse(self, error: DzflowError | Problem) -> None:
        """The element is refused."""


class Operation:
    """An operation: begin, end or update a record, or go on with what another one has begun.

    `record`, as the operation wants it stored, its `rollout`, and the record's `key` in etcd exist
    once it is planned.
    """

    __slots__ = (
        "action",
        "attempts",
        "caller",
        "created",
        "filter",
        "host",
        "id",
        "indexed",
        "key",
        "kind",
        "last_done",
        "limited",
        "map_numbers",
        "only_if",
        "received",
        "record",
        "reindex",
        "remembered",
        "repeatable",
        "restricted",
        "resumed",
        "revision",
        "rollout",
        "slow",
        "span",
        "spec",
        "stage",
        "stored",
        "write_began",
        "write_ended",
    )

    record: Record
    rollout: Rollout
    key: str

    def __init__(
        self,
        action: Action,
        kind: RecordKind,
        id: str,
        host: str,
        caller: WaitingCaller | None,
        received: float,
    ) -> None:
        self.action: Action = action
        self.kind: RecordKind = kind
        self.id = id  # empty if it is given when the operation is planned
        self.host = host
        self.caller = caller
        self.stage = Stage.ACCEPTED
        self.spec: RecordSpec | None = None  # of a record that is new
        self.created: float | None = None  # when a record was created that is restored
        self.repeatable = False  # the id comes from an idempotency key: other calls may use it, too
        self.stored: StoredRecord | None = None  # the record that is changed
        self.filter: Any = None  # the new filter of an update
        self.reindex = False  # an update to the same filter, which no caller has asked for
        self.remembered = False  # the stored record was not read just now: it may be outdated
        self.only_if: Sequence[Compare] = ()  # what else must hold in etcd when it is written
        self.limited = False  # a caller asks for it, so that limits of bytes hold
        self.restricted = False  # a host asks for it, which may do what it is permitted only
        self.resumed = False  # it was written before, and is carried out again
        self.revision = 0  # of the record, as this operation has read or written it
        self.map_numbers: tuple[tuple[int, int], ...] = ()  # of the maps that it was routed by
        self.attempts = 0  # to write it
        self.slow = False  # it waits long, and leaves its place in the window to others
        self.span: Span | None = None  # if the trace of its call is sampled
        # Moments and durations on the monotonic clock, in seconds, for the record's timing.
        self.received = received
        self.indexed = 0.0
        self.write_began = self.write_ended = self.last_done = 0.0

    @classmethod
    def begin(
        cls,
        kind: RecordKind,
        spec: RecordSpec,
        received: float,
        caller: WaitingCaller | None = None,
        *,
        id: str = "",
        created: float | None = None,
        repeatable: bool = False,
        restricted: bool = False,
    ) -> Self:
        """Begin a new record; under a given id if it is restored, or if a call is repeatable."""
        operation = cls("begin", kind, id, spec.host, caller, received)
        operation.spec = spec
        operation.created = created
        operation.repeatable = repeatable
        operation.restricted = restricted
        return operation

    @classmethod
    def end(
        cls,
        stored: StoredRecord,
        received: float,
        caller: WaitingCaller | None = None,
        only_if: Sequence[Compare] = (),
    ) -> Self:
        """End a record, whatever else is being done with it."""
        operation = cls(
            "end", stored.record.kind, stored.record.id, stored.record.host, caller, received
        )
        operation.set_stored(stored)
        operation.only_if = only_if
        return operation

    @classmethod
    def update(
        cls,
        stored: StoredRecord,
        filter: Any,
        received: float,
        caller: WaitingCaller | None = None,
        *,
        restricted: bool = False,
        reindex: bool = False,
    ) -> Self:
        """Replace the filter of an active record; or, to `reindex` it, its regions only."""
        record = stored.record
        operation = cls("update", record.kind, record.id, record.host, caller, received)
        operation.set_stored(stored)
        operation.filter = filter
        operation.restricted = restricted
        operation.reindex = reindex
        return operation

    @classmethod
    def resume(
        cls, stored: StoredRecord, received: float, caller: WaitingCaller | None = None
    ) -> Self:
        """Go on with the open operation of a record, written by a dispatcher that is gone."""
        record = stored.record
        operation = cls(action_of(record), record.kind, record.id, record.host, caller, received)
        operation.set_stored(stored)
        if record.next:
            operation.filter = record.next.filter
            operation.reindex = record.next.reindex and operation.action == "update"
        operation.resumed = True
        return operation

    def restarted(self) -> Self:
        """The same operation again, to be written under a higher number and routed as of now."""
        again = self.resume(StoredRecord(self.record, self.revision), self.received, self.caller)
        again.indexed = self.indexed
        again.span, self.span = self.span, None
        return again

    def set_stored(self, stored: StoredRecord) -> None:
        """Change the record as it is stored now."""
        self.stored = stored
        self.revision = stored.revision
        self.remembered = False

    def enter(self, stage: Stage) -> None:
        """Go to another stage; IllegalTransition if it cannot follow the present one."""
        if stage not in _FOLLOWING[self.stage]:
            raise IllegalTransition(
                f"{self.action} {self.id}: {stage.name} cannot follow {self.stage.name}"
            )
        self.stage = stage

    @property
    def has_given_id(self) -> bool:
        """Whether the id of a new record was fixed before: by a backup or an idempotency key."""
        return self.repeatable or self.created is not None

    @property
    def ended(self) -> bool:
        """Whether it is over."""
        return self.stage is Stage.ENDED

    def settlement(self, now: float, timing: Timing) -> Record:
        """The record as it is to be stored at the end (in the state removed or failed: apart)."""
        record, refusal = self.record, self.rollout.refusal
        if self.reindex:
            # Users see what their own last operation has led to.
            regions = record.next.regions if record.next and not refusal else record.regions
            return replace(record, by="", next=None, regions=regions)
        if self.action == "begin":
            state, done = ("failed", False) if refusal else ("active", True)
        elif self.action == "end":
            state, done = ("active", False) if refusal else ("removed", True)
        else:
            state, done = "active", not refusal
        changed = replace(
            record,
            state=state,
            by="",
            next=None,
            reason=refusal,
            timing=timing,
            flow_ops=self.rollout.flow_ops,
            acknowledged=now if done else record.acknowledged,
        )
        if done and record.next and self.action == "update":
            changed = replace(changed, filter=record.next.filter, regions=record.next.regions)
        return changed
