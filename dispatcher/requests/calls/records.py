"""The calls about subscriptions and advertisements: begin, end, update, renew, and read."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from configurators.environment import Clock
from configurators.store.documents import decode_record
from configurators.store.etcd.client import Etcd
from configurators.store.keys import record_key
from configurators.store.model import Record, RecordKind, State
from configurators.tracing import Span
from dispatcher.calls import Answer, Page, RecordSpec
from dispatcher.errors import Conflict, NotFound, Problem, Unavailable
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.knowledge.expiry_times import ExpiryTimes
from dispatcher.requests.calls.followed import FollowedRecords
from dispatcher.requests.calls.idempotency import key_name
from dispatcher.requests.calls.keyed_calls import KeyedCalls
from dispatcher.requests.calls.pending_reply import PendingReply
from dispatcher.requests.calls.record_view import RecordViews
from dispatcher.requests.calls.replies import Replies
from dispatcher.requests.operation import Operation
from dispatcher.requests.pipeline import RequestPipeline
from dispatcher.requests.spans import begin_span
from dispatcher.requests.writing.first_write import REINDEXED
from dispatcher.requests.writing.settled_records import SettledRecords
from dispatcher.requests.writing.stored_records import StoredRecord, list_records, read_many
from dispatcher.views import RecordView
from dzflow.aio import PauseByTime
from dzflow.errors import BadInput

_log = logging.getLogger(__name__)

T = TypeVar("T", RecordSpec, str)

_RENEWALS = 10  # attempts, for a record that changes all the time
_REINDEX_WAIT = 10.0  # seconds


class Records:
    """Begins, ends, updates, renews and reads records."""

    def __init__(
        self,
        etcd: Etcd,
        catalogue: Catalogue,
        pipeline: RequestPipeline,
        settled: SettledRecords,
        views: RecordViews,
        replies: Replies,
        followed: FollowedRecords,
        times: ExpiryTimes,
        keyed: KeyedCalls,
        max_page: int | None,
        clock: Clock,
    ) -> None:
        """`max_page` is the most bytes of a page of records, if it has more than one."""
        self._etcd = etcd
        self._catalogue = catalogue
        self._pipeline = pipeline
        self._known = settled
        self._views = views
        self._replies = replies
        self._followed = followed
        self._times = times
        self._keyed = keyed
        self._max_page = max_page
        self._clock = clock
        self._pending: set[PendingReply] = set()

    async def close(self) -> None:
        """Leave no caller waiting."""
        for reply in self._pending:
            reply.give_up(
                Unavailable("the service is stopping; another dispatcher may still carry it out")
            )

    async def begin(
        self,
        kind: RecordKind,
        specs: Sequence[RecordSpec | Problem],
        *,
        wait: float,
        key: str | None = None,
        who: str = "",
        restricted: bool = False,
        span: Span | None = None,
    ) -> list[Answer]:
        """Subscribe or advertise; waits so many seconds for the switches to acknowledge."""
        received = self._clock.monotonic()
        reply = PendingReply(len(specs))
        wanted = _valid(reply, specs)
        ids: Mapping[int, str] = {}
        if key is not None:
            name = key_name(who, key)
            ids = await self._keyed.claim_begin(kind, specs, reply, wanted, name, restricted)
        for place, spec in wanted.items():
            caller = reply.element(place)
            if key is None:
                operation = Operation.begin(kind, spec, received, caller, restricted=restricted)
            else:
                operation = Operation.begin(
                    kind,
                    spec,
                    received,
                    caller,
                    id=ids[place],
                    repeatable=True,
                    restricted=restricted,
                )
            if span is not None:
                begin_span(operation, span, place)
            self._pipeline.intake.add(operation)
        return await self._answered(reply, wait)

    async def end(
        self,
        kind: RecordKind,
        ids: Sequence[str | Problem],
        *,
        wait: float,
        key: str | None = None,
        who: str = "",
        span: Span | None = None,
    ) -> list[Answer]:
        """Unsubscribe or unadvertise; waits so many seconds for the switches to acknowledge."""
        received = self._clock.monotonic()
        reply = PendingReply(len(ids))
        wanted = _valid(reply, ids)
        live: dict[str, StoredRecord] = {}
        if key is None:
            live = await self._settled_here(wanted.values())
        remembered = frozenset(live)
        live |= await read_many(self._etcd, [id for id in wanted.values() if id not in live])
        finished: dict[str, StoredRecord] = {}
        if key is not None:
            name = key_name(who, key)
            finished = await self._keyed.claim_end(kind, ids, wanted, live.keys(), name)
        for place, id in wanted.items():
            stored = live.get(id)
            if stored and stored.record.kind == kind:
                caller = reply.element(place)
                if stored.record.state == "removing":
                    self._replies.follow(caller, "end", stored.record)
                else:
                    operation = Operation.end(stored, received, caller)
                    operation.remembered = id in remembered
                    if span is not None:
                        begin_span(operation, span, place)
                    self._pipeline.intake.add(operation)
            elif id in finished:
                reply.answer(place, self._replies.answer_for("end", finished[id].record))
            else:
                reply.refuse(place, NotFound(f"there is no {kind} {id[:64]!r}"))
        return await self._answered(reply, wait)

    async def _settled_here(self, ids: Iterable[str]) -> dict[str, StoredRecord]:
        """The records among these that this dispatcher remembers."""
        found: dict[str, StoredRecord] = {}
        pause = PauseByTime(self._clock.monotonic)
        for id in ids:
            if known := self._known.get(id):
                found[id] = known
                if pause.due:
                    await pause.let_others_run()
        return found

    async def update(
        self,
        kind: RecordKind,
        id: str,
        filter: Any,
        *,
        wait: float,
        restricted: bool = False,
        span: Span | None = None,
    ) -> Answer:
        """Replace a filter; events that both filters match are delivered all the time."""
        began = self._clock.monotonic()
        deadline = began + wait
        while True:
            stored = await self._settled(kind, id, began, deadline)
            reply = PendingReply(1)
            now = self._clock.monotonic()
            caller = reply.element(0)
            operation = Operation.update(stored, filter, now, caller, restricted=restricted)
            if span is not None:
                begin_span(operation, span, 0)
            self._pipeline.intake.add(operation)
            (answer,) = await self._answered(reply, max(0.0, deadline - now))
            if answer.problem is None or answer.problem.type != REINDEXED:
                return answer

    async def _settled(
        self, kind: RecordKind, id: str, began: float, deadline: float
    ) -> StoredRecord:
        """A record that nothing changes now; Conflict if it is changed until the deadline.

        Users need not know of records that are indexed again, so that is waited for anyway.
        """
        while True:
            stored = await self._read(kind, id)
            record = stored.record
            if record.state == "removing":
                raise Conflict(f"{id!r} is being removed")
            if not record.open:
                return stored
            if record.reindexing:
                deadline = max(deadline, began + _REINDEX_WAIT)
            left = deadline - self._clock.monotonic()
            if left <= 0:
                raise Conflict(f"{id!r} is {record.state} and still being changed; try again")
            await self._followed.wait_until(id, _is_settled_or_removing, left)

    async def renew(self, kind: RecordKind, id: str) -> RecordView:
        """Let a record with a ttl live on; NotFound if it is gone, Conflict if it has no ttl."""
        for _ in range(_RENEWALS):
            record, revision = await self._read(kind, id)
            if record.ttl is None:
                raise Conflict(f"{id!r} has no ttl: it lives until it is removed")
            if record.state == "removing":
                raise NotFound(f"{id!r} is being removed; begin a new one")
            if await self._times.renew(record, revision):
                return self._views.view(record, self._pipeline.in_flight.get(id))
        raise Unavailable(f"{id!r} is being changed all the time; try again")

    async def record(self, id: str, kind: RecordKind | None = None) -> RecordView:
        """A record, also one that was removed or has failed lately; NotFound if there is none."""
        record = await self._read_also_finished(id)
        if kind:
            _check_kind(record, kind)
        operation = self._pipeline.in_flight.get(id)
        current = operation if operation and operation.record.seq == record.seq else None
        return self._views.view(record, current)

    async def host_of(self, id: str, kind: RecordKind) -> str:
        """The host that a record belongs to, which never changes; NotFound if there is none."""
        known = self._known.get(id)
        record = known.record if known else await self._read_also_finished(id)
        _check_kind(record, kind)
        return record.host

    async def records(
        self,
        kind: RecordKind,
        *,
        host: str | None = None,
        space: str | None = None,
        state: State | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page:
        """Records of a kind, a page at a time; removed and failed ones if asked for by state."""
        number = None if space is None else self._catalogue.spaces.named(space).number

        def wanted(record: Record) -> bool:
            return host is None or record.host == host

        found = await list_records(
            self._etcd, kind, wanted, number, state, limit, after, self._max_page
        )
        items = []
        for record in found.records:
            try:
                items.append(self._views.view(record))
            except BadInput as error:
                _log.error("%s is left out: %s", record.id, error)
        return Page(items, found.next)

    # Waiting and reading

    async def _answered(self, reply: PendingReply, wait: float) -> list[Answer]:
        self._pending.add(reply)
        try:
            await reply.wait(wait)
        finally:
            self._pending.discard(reply)
        return self._replies.of(reply)

    async def _read(self, kind: RecordKind, id: str) -> StoredRecord:
        """A record that is not finished; NotFound, or BadRecordId if it can be no id."""
        record_key(id)
        stored = (await read_many(self._etcd, [id])).get(id)
        if stored is None or stored.record.kind != kind:
            raise NotFound(f"there is no {kind} {id!r}")
        return stored

    async def _read_also_finished(self, id: str) -> Record:
        """A record that exists, or did until lately; NotFound if not."""
        keys = (record_key(id), record_key(id, finished=True))
        for key in (*keys, keys[0]):  # it may be finished, or restored, in between
            stored = await self._etcd.get(key)
            if stored:
                return decode_record(stored.value)
        raise NotFound(f"there is no subscription or advertisement {id!r}")


def _valid(reply: PendingReply, elements: Sequence[T | Problem]) -> dict[int, T]:
    """The valid elements of a call, by place; the others are refused with their problem."""
    found: dict[int, T] = {}
    for place, element in enumerate(elements):
        if isinstance(element, Problem):
            reply.refuse(place, element)
        else:
            found[place] = element
    return found


def _check_kind(record: Record, kind: RecordKind) -> None:
    if record.kind != kind:
        raise NotFound(f"there is no {kind} {record.id!r}; it is an {record.kind}")


def _is_settled_or_removing(record: Record) -> bool:
    return not record.open or record.state == "removing"
