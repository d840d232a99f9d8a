"""From a call to journaled operations: admission, indexing, the first write, and the answer."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from configurators.store.documents import decode_record, encode
from configurators.store.etcd.client import Compare, Put, Stored, StoreError, absent
from configurators.store.keys import new_record_id, record_key, ttl_key
from configurators.store.model import NextFilter, Record, RecordKind
from dispatcher.errors import Conflict, NotFound, TooManyRequests, Unavailable
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.reports.metrics import Metrics
from dispatcher.requests.calls import Call
from dispatcher.requests.driver import Gatherer
from dispatcher.requests.limits import Admission, Rates
from dispatcher.requests.operation import Action, Operation, Shares, union
from dispatcher.requests.record_writer import Journal, Verdict, Write
from dispatcher.views import Ask
from dzflow.errors import BadInput, DzflowError
from sdn.topology import UnknownHost

_log = logging.getLogger(__name__)

_TURN = 64  # operations that are begun in one turn of the loop
# Seconds after which an operation lets others of its host pass: if it is known what it waits for,
# and anyway.
_LONG, _VERY_LONG = 1.0, 3.0
_PAUSE = 1.0  # before the store is tried again
_MOST_TRIES = 20  # of changing a record that others change, too


class Draft:
    """An operation before it is journaled: what is to be done, for whom, and how often tried."""

    __slots__ = (
        "action",
        "again",
        "ask",
        "call",
        "compares",
        "created",
        "given",
        "id",
        "indexed",
        "kind",
        "place",
        "received",
        "record",
        "revision",
        "tries",
    )

    def __init__(self, action: Action, kind: RecordKind, call: Call | None, place: int) -> None:
        self.action = action
        self.kind: RecordKind = kind
        self.call = call
        self.place = place
        self.ask: Ask | None = None  # of a beginning
        self.id = ""
        self.created: float | None = None  # if that was before now
        self.record: Record | None = None  # that is to be changed, and its revision
        self.revision = 0
        self.given: Any = None  # the new filter of an update
        self.compares: Sequence[Compare] = ()
        self.again = False  # it is journaled already, and driven anew
        self.received = time.monotonic()
        self.indexed = 0.0
        self.tries = 0

    @property
    def repeatable(self) -> bool:
        """Whether its id comes from a key under which a call is repeated, not from a backup."""
        return bool(self.id) and self.created is None

    @property
    def host(self) -> str:
        """Whose turn it takes."""
        return self.ask.host if self.ask else self.record.host if self.record else ""


class Intake:
    """Takes operations on, in fair order, and writes them down before anything else happens."""

    def __init__(
        self,
        me: str,
        catalogue: Catalogue,
        journal: Journal,
        gatherer: Gatherer,
        admission: Admission[Draft],
        rates: Rates,
        metrics: Metrics,
    ) -> None:
        self._me = me
        self._catalogue = catalogue
        self._journal = journal
        self._gatherer = gatherer
        self.admission = admission
        self._rates = rates
        self._metrics = metrics
        self.orphans = False  # something of ours may be journaled that nobody drives
        self._writing: dict[str, int] = {}  # how many writes there are about each record
        self._pumping = False
        self._refreshes: set[asyncio.Task[None]] = set()
        self.on_elsewhere: Callable[[Draft, Record], None] = lambda *_: None
        """Called when the record of a draft is in somebody else's hands, and is to be followed."""
        gatherer.on_restart = self._restart

    async def close(self) -> None:
        """Stop what runs in the background."""
        for task in list(self._refreshes):
            task.cancel()
        await asyncio.gather(*self._refreshes, return_exceptions=True)

    # Coming in

    def check(self, host: str) -> None:
        """Take one operation of a host into account; TooManyRequests if it is too much now."""
        if wait := self._rates.admit(host, time.monotonic()):
            raise TooManyRequests(
                f"{host} asks for more operations a second than it may; wait {wait:.1f} s", wait
            )
        if not self.admission.room(host):
            raise TooManyRequests(f"the queue is full with {self.admission.queued} operations")

    def add(self, draft: Draft) -> None:
        """Queue an operation; it is refused if there is no room, or too much was asked."""
        host = draft.host
        try:
            if draft.action == "begin" and not self._catalogue.knows_host(host):
                raise UnknownHost(
                    f"there is no host {host[:64]!r}; GET /hosts lists those there are"
                )
            self.check(host)
        except DzflowError as error:
            self._refuse(draft, error)
            return
        self.admission.put(host, draft)
        self.pump()

    def take_over(self, draft: Draft) -> None:
        """Go on with an operation that somebody has journaled."""
        draft.again = True
        self.force(draft)

    def force(self, draft: Draft) -> None:
        """Begin an operation at once, whatever else there is to do."""
        self.admission.force(draft.host)
        self._prepare(draft)

    def concerns(self, name: str) -> bool:
        """Whether something about a record is being written."""
        return name in self._writing

    async def make_way(self) -> None:
        """See to it that operations which take long do not keep others of their host waiting."""
        while True:
            await asyncio.sleep(_LONG / 2)
            if self.admission.queued:
                now = time.monotonic()
                for operation in self._gatherer.operations.values():
                    long = _LONG if operation.waiting else _VERY_LONG
                    if not operation.slow and operation.journal_ended < now - long:
                        operation.slow = True
                        self.admission.slow(operation.record.host)
                self.pump()

    def pump(self) -> None:
        """Begin what may begin, in turns, so that the loop can do other things in between."""
        if not self._pumping and self.admission.queued:
            self._pumping = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._pumping = False
        drafts = self.admission.take(_TURN)
        for draft in drafts:
            if draft.call and draft.call.cancelled:
                self.admission.release(draft.host)
            else:
                self._prepare(draft)
        if drafts:
            self.pump()

    # Writing

    def _prepare(self, draft: Draft) -> None:
        """Index, and write down."""
        began = time.monotonic()
        try:
            operation = self._operation(draft)
        except DzflowError as error:
            self.admission.release(draft.host)
            self._refuse(draft, error)
            return
        record = operation.record
        operation.call, operation.place = draft.call, draft.place
        operation.received = draft.received
        operation.indexed = draft.indexed
        operation.journal_began = time.monotonic()
        if draft.action != "end":
            operation.indexed += operation.journal_began - began
        key = record_key(record.id)
        ops = [Put(key, encode(record))]
        begins = draft.action == "begin" and not draft.again
        if begins and record.ttl is not None:
            ops.append(Put(ttl_key(record.id), str(record.expires).encode()))
        space = self._catalogue.spaces.get(record.space) if begins else None
        compares = draft.compares
        if begins and draft.repeatable and not compares:
            # The other call has this id, too, and may be over already.
            compares = (absent(record_key(record.id, finished=True)),)
        self._writing[record.id] = self._writing.get(record.id, 0) + 1
        self._journal.write(
            Write(key, draft.revision, ops, self._written, (draft, operation), space, compares)
        )

    def _operation(self, draft: Draft) -> Operation:
        if draft.again or draft.ask is None:
            return self._changed(draft)
        ask = draft.ask
        space = self._catalogue.spaces.named(ask.space)
        indexed = self._catalogue.routing.index(space, draft.kind == "advertisement", ask.filter)
        now = time.time()
        record = Record(
            draft.id or new_record_id(draft.kind, space.number),
            draft.kind,
            ask.host,
            ask.space,
            ask.filter,
            indexed.regions,
            "pending",
            1,
            draft.created or now,
            self._me,
            label=ask.label,
            ttl=ask.ttl,
            expires=None if ask.ttl is None else now + ask.ttl,
        )
        return Operation(record, 0, {}, indexed.shares)

    def _changed(self, draft: Draft) -> Operation:
        """An operation on a record that there is."""
        record = draft.record
        assert record
        routing = self._catalogue.routing
        space = self._catalogue.spaces.named(record.space)
        advertised = record.kind == "advertisement"
        sure = not record.open and not draft.again
        before: Shares = routing.shares(space, record) if record.state != "pending" else {}
        changed = replace(record, seq=record.seq + 1, by=self._me)
        if draft.action == "end":
            if record.state == "pending":
                before = routing.shares(space, record)
            if record.next:
                other = routing.route(space, advertised, record.next.regions)
                before = {
                    name: union(before.get(name, (b"", b"")), other.get(name, (b"", b"")))
                    for name in {**before, **other}
                }
            return Operation(replace(changed, state="removing"), 0, before, {}, sure)
        given = record.filter if draft.action == "begin" else draft.given
        try:
            indexed = routing.index(space, advertised, given)
        except BadInput as error:
            if not draft.again:
                raise
            return self._unfit(changed, before, error)
        if draft.action == "begin":
            changed = replace(changed, regions=indexed.regions)
        else:
            changed = replace(changed, next=NextFilter(given, indexed.regions))
        return Operation(changed, 0, before, indexed.shares, sure)

    def _unfit(self, record: Record, before: Shares, error: BadInput) -> Operation:
        """An operation that was good when it was journaled, and no longer is: it is taken back."""
        space = self._catalogue.spaces.named(record.space)
        regions = record.next.regions if record.next else record.regions
        told = self._catalogue.routing.route(space, record.kind == "advertisement", regions)
        operation = Operation(record, 0, before, told, sure=False)
        operation.reason = f"the space has changed meanwhile: {error}"
        return operation

    def _written(self, write: Write, verdict: Verdict) -> None:
        draft: Draft = write.about[0]
        operation: Operation = write.about[1]
        name = operation.record.id
        if self._writing[name] == 1:
            del self._writing[name]
        else:
            self._writing[name] -= 1
        if verdict is Verdict.FAILED:
            self.orphans |= write.uncertain
        if verdict is Verdict.WRITTEN:
            operation.revision = write.revision
            operation.journal_ended = time.monotonic()
            if draft.call:
                draft.call.written(draft.place, operation)
            self._gatherer.start(operation)
        elif verdict is Verdict.GUARDED and not draft.compares:
            task = asyncio.create_task(self._refresh(draft))
            self._refreshes.add(task)
            task.add_done_callback(self._refreshes.discard)
        elif verdict is Verdict.FAILED and draft.again:
            asyncio.get_running_loop().call_later(_PAUSE, self._prepare, draft)
        else:
            self.admission.release(draft.host)
            if verdict is Verdict.FAILED:
                self._refuse(draft, Unavailable(f"the store does not take it: {write.error}", 2.0))
            elif verdict is Verdict.CHANGED:
                self._found_changed(draft, write.found)
        self.pump()

    async def _refresh(self, draft: Draft) -> None:
        """The space has changed since it was indexed: do that again. Or it has ended before."""
        assert draft.ask
        space = self._catalogue.spaces.get(draft.ask.space)
        ended: Stored | None = None
        try:
            if space:
                await self._catalogue.refresh(space)
            if draft.repeatable:
                ended = await self._journal.read(record_key(draft.id, finished=True))
        except StoreError as error:
            self.admission.release(draft.host)
            self._refuse(draft, Unavailable(f"the store cannot be read: {error}", 2.0))
            return
        if ended:
            self.admission.release(draft.host)
            self.on_elsewhere(draft, decode_record(ended.value))
        else:
            self._prepare(draft)

    def _found_changed(self, draft: Draft, found: Stored | None) -> None:
        """The record is not as it was when it was read."""
        draft.tries += 1
        if found:
            self.orphans |= self._is_left_alone(decode_record(found.value))
        if draft.compares or (draft.again and draft.call is None):
            return  # whoever changed it goes on with it
        if found is None and draft.action == "end" and draft.record:
            # It ended while this call was under way, which may have been asked twice.
            self.on_elsewhere(draft, draft.record)
        elif found is None:
            self._refuse(draft, NotFound(f"there is no {draft.kind} {draft.id!r} (any more)"))
        else:
            self._found_other(draft, found)

    def _is_left_alone(self, record: Record) -> bool:
        """Whether a record is in our hands, but by a write that was thought to have failed."""
        if not record.open or record.by != self._me:
            return False
        return record.id not in self._gatherer.operations and not self.concerns(record.id)

    def _found_other(self, draft: Draft, found: Stored) -> None:
        record = decode_record(found.value)
        if draft.again or draft.ask or record.state == "removing":
            self.on_elsewhere(draft, record)
        elif draft.action == "end" and draft.tries < _MOST_TRIES:
            draft.record, draft.revision = record, found.revision
            self.admission.force(draft.host)
            self._prepare(draft)
        else:
            self._refuse(
                draft, Conflict(f"{draft.id!r} is being changed by another call; try again")
            )

    def _restart(self, operation: Operation) -> None:
        if operation.slow:
            self.admission.not_slow(operation.record.host)
        draft = Draft(operation.action, operation.record.kind, None, operation.place)
        assert operation.call is None or isinstance(operation.call, Call)
        draft.call = operation.call
        draft.id = operation.record.id
        draft.record, draft.revision = operation.record, operation.revision
        draft.given = operation.record.next.filter if operation.record.next else None
        draft.received, draft.indexed = operation.received, operation.indexed
        draft.again = True
        self._prepare(draft)

    def _refuse(self, draft: Draft, error: DzflowError) -> None:
        if draft.call:
            draft.call.refuse(draft.place, error)
        else:
            _log.warning("%s %s: %s", draft.action, draft.id, error)
