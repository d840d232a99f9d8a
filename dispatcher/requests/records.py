"""Operations on subscriptions and advertisements, as callers ask for them."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from configurators.store.documents import decode_key_use
from configurators.store.etcd.client import Etcd
from configurators.store.keys import new_record_id, record_key
from configurators.store.model import KeyUse, Record, RecordKind, State
from configurators.store.upkeep import SharedLeases
from dispatcher.changes.expiry import Expiry
from dispatcher.errors import Conflict, NotFound, Unavailable
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.requests.calls import Call
from dispatcher.requests.driver import Gatherer
from dispatcher.requests.idempotency import claim, fingerprint, key_name
from dispatcher.requests.intake import Draft, Intake
from dispatcher.requests.operation import Action
from dispatcher.requests.reading import Held, list_records, read_many
from dispatcher.requests.replies import Answers
from dispatcher.views import Answer, Ask, Page, RecordView, Refused
from dzflow.errors import DzflowError
from sdn.topology import UnknownHost

_POLL = 0.05
_TURN = 50  # filters that are read in one turn of the loop
_RENEWALS = 10  # of a record that changes all the time
_FORGOTTEN = (
    "this key was used long ago, and what it began has ended since, if it ever began; take a new"
    " key to begin anew"
)


class Records:
    """Begins, ends, updates, renews and reads records."""

    def __init__(
        self,
        etcd: Etcd,
        catalogue: Catalogue,
        intake: Intake,
        gatherer: Gatherer,
        answers: Answers,
        expiry: Expiry,
        key_leases: SharedLeases,
        finished_ttl: float,
    ) -> None:
        self._etcd = etcd
        self._catalogue = catalogue
        self._intake = intake
        self._gatherer = gatherer
        self._answers = answers
        self._expiry = expiry
        self._key_leases = key_leases
        self._sure = finished_ttl / 2  # so long after its beginning a record is surely known
        self._calls: set[Call] = set()  # that somebody waits for

    async def close(self) -> None:
        """Leave nobody waiting."""
        for call in self._calls:
            call.give_up(Unavailable("the service is stopping; it may still be done by another"))

    async def begin(
        self,
        kind: RecordKind,
        asks: Sequence[Ask | Refused],
        *,
        wait: float,
        key: str | None = None,
        who: str = "",
    ) -> list[Answer]:
        """Subscribe or advertise; waits so many seconds for the switches to acknowledge."""
        call = Call(len(asks))
        drafts: dict[int, Draft] = {}
        for place, ask in enumerate(asks):
            if isinstance(ask, Refused):
                call.answer(place, Answer(ask.status, problem=ask.problem))
            else:
                drafts[place] = draft = Draft("begin", kind, call, place)
                draft.ask = ask
        if key is not None:
            await self._claim_begin(kind, asks, call, drafts, key_name(who, key))
        for draft in drafts.values():
            self._intake.add(draft)
        return await self._answered(call, wait)

    async def _claim_begin(
        self,
        kind: RecordKind,
        asks: Sequence[Ask | Refused],
        call: Call,
        drafts: dict[int, Draft],
        name: str,
    ) -> None:
        """Give drafts the ids that the key stands for; what was begun before is left out."""
        mark = fingerprint(kind, [[type(ask).__name__, ask] for ask in asks])
        use = await self._used(name, mark)
        if use is None:
            for place, draft in list(drafts.items()):
                try:
                    draft.id = self._new_id(draft)
                except DzflowError as error:
                    call.refuse(place, error)
                    del drafts[place]
                if place % _TURN == _TURN - 1:
                    await asyncio.sleep(0)
            if not drafts:
                return  # a call of which nothing is left does not use up its key
            ids = [drafts[place].id if place in drafts else "" for place in range(len(asks))]
            use = await claim(self._etcd, self._key_leases, name, mark, ids)
            if use is None:
                return
        known = await self._read_any(use.ids)
        old = time.time() - use.made > self._sure
        for place, draft in list(drafts.items()):
            draft.id = use.ids[place]
            if draft.id in known:
                self._replay(call, place, "begin", known[draft.id].record)
                del drafts[place]
            elif not draft.id:
                call.refuse(place, self._refusal(draft))
                del drafts[place]
            elif old:
                call.refuse(place, Conflict(_FORGOTTEN))
                del drafts[place]

    def _new_id(self, draft: Draft) -> str:
        """An id for a record that can be begun; raises if it cannot."""
        ask = draft.ask
        assert ask
        if not self._catalogue.knows_host(ask.host):
            raise UnknownHost(f"there is no host {ask.host[:64]!r}; GET /hosts lists all there are")
        space = self._catalogue.spaces.named(ask.space)
        self._catalogue.routing.index(space, draft.kind == "advertisement", ask.filter)
        return new_record_id(draft.kind, space.number)

    def _refusal(self, draft: Draft) -> DzflowError:
        """Why an element is refused that was refused when its key was first used."""
        try:
            self._new_id(draft)
        except DzflowError as error:
            return error
        return Conflict("this element was refused when the key was first used; take a new key")

    async def end(
        self,
        kind: RecordKind,
        ids: Sequence[str | Refused],
        *,
        wait: float,
        key: str | None = None,
        who: str = "",
    ) -> list[Answer]:
        """Unsubscribe or unadvertise; waits so many seconds for the switches to acknowledge."""
        call = Call(len(ids))
        names: dict[int, str] = {}
        for place, name in enumerate(ids):
            if isinstance(name, Refused):
                call.answer(place, Answer(name.status, problem=name.problem))
            else:
                names[place] = name
        live = await read_many(self._etcd, list(names.values()))
        again: dict[str, Held] = {}
        if key is not None:
            mark = fingerprint(f"end {kind}", [getattr(name, "problem", name) for name in ids])
            used = [names.get(place, "") for place in range(len(ids))]
            if any(name in live for name in names.values()):
                use = await claim(self._etcd, self._key_leases, key_name(who, key), mark, used)
            else:
                use = await self._used(key_name(who, key), mark)
            if use:
                again = await read_many(self._etcd, list(names.values()), finished=True)
        for place, name in names.items():
            held = live.get(name)
            if held and held.record.kind == kind:
                if held.record.state == "removing":
                    self._answers.follow(call, place, "end", held.record)
                else:
                    draft = Draft("end", kind, call, place)
                    draft.id, (draft.record, draft.revision) = name, held
                    self._intake.add(draft)
            elif name in again:
                call.answer(place, self._answers.settled("end", again[name].record))
            else:
                call.refuse(place, NotFound(f"there is no {kind} {name[:64]!r}"))
        return await self._answered(call, wait)

    async def update(self, kind: RecordKind, id: str, filter: Any, *, wait: float) -> Answer:
        """Replace a filter; what both filters want is never interrupted."""
        deadline = time.monotonic() + wait
        while True:
            held = await self._held(kind, id)
            if held.record.state == "removing":
                raise Conflict(f"{id!r} is being removed")
            if not held.record.open:
                break
            if time.monotonic() >= deadline:
                raise Conflict(f"{id!r} is {held.record.state} and still being changed; try again")
            await asyncio.sleep(_POLL)
        call = Call(1)
        draft = Draft("update", kind, call, 0)
        draft.id, (draft.record, draft.revision) = id, held
        draft.given = filter
        self._intake.add(draft)
        return (await self._answered(call, max(0.0, deadline - time.monotonic())))[0]

    async def renew(self, kind: RecordKind, id: str) -> RecordView:
        """Let a record with a ttl live on; NotFound if it is gone, Conflict if it has no ttl."""
        for _ in range(_RENEWALS):
            held = await self._held(kind, id)
            if held.record.ttl is None:
                raise Conflict(f"{id!r} has no ttl: it lives until it is removed")
            if held.record.state == "removing":
                raise NotFound(f"{id!r} is being removed; begin anew")
            if await self._expiry.renew(held):
                return self._answers.view(held.record, self._gatherer.operations.get(id))
        raise Unavailable(f"{id!r} is being changed all the time; try again")

    async def record(self, id: str, kind: RecordKind | None = None) -> RecordView:
        """A record, also one that was removed or has failed lately; NotFound if there is none."""
        record = await self._answers.read(id)
        if kind and record.kind != kind:
            raise NotFound(f"there is no {kind} {id!r}; it is an {record.kind}")
        operation = self._gatherer.operations.get(id)
        current = operation if operation and operation.record.seq == record.seq else None
        return self._answers.view(record, current)

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

        found = await list_records(self._etcd, kind, wanted, number, state, limit, after)
        return Page([self._answers.view(record) for record in found.records], found.next)

    # In between

    async def _answered(self, call: Call, wait: float) -> list[Answer]:
        self._calls.add(call)
        try:
            await call.wait(wait)
        finally:
            self._calls.discard(call)
        return self._answers.of(call)

    async def _held(self, kind: RecordKind, id: str) -> Held:
        record_key(id)  # says so if it is none
        held = (await read_many(self._etcd, [id])).get(id)
        if held is None or held.record.kind != kind:
            raise NotFound(f"there is no {kind} {id!r}")
        return held

    async def _read_any(self, ids: Sequence[str]) -> dict[str, Held]:
        finished = await read_many(self._etcd, ids, finished=True)
        return finished | await read_many(self._etcd, ids)

    async def _used(self, name: str, mark: bytes) -> KeyUse | None:
        """The use of a key by an equal call, if there was one; Conflict if it was another."""
        stored = await self._etcd.get(name)
        if stored is None:
            return None
        use = decode_key_use(stored.value)
        if use.fingerprint != mark:
            raise Conflict("this idempotency key was used for another call", "key-reused")
        return use

    def _replay(self, call: Call, place: int, action: Action, record: Record) -> None:
        """Answer with what has become of what an earlier call began."""
        if record.open:
            self._answers.follow(call, place, action, record)
        elif record.state == "removed":
            call.answer(place, Answer(200, self._answers.view(record)))
        else:
            call.answer(place, self._answers.settled(action, record))
