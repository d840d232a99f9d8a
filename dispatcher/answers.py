"""What callers are told: of operations that ended, that go on, and of records of others."""

import asyncio
import logging
from collections.abc import Callable, Mapping

from configurators.store.client import Etcd, StoreError
from configurators.store.documents import decode_record
from configurators.store.keys import record_key
from configurators.store.model import Record
from dispatcher.asks import Answer, RecordView
from dispatcher.calls import Call
from dispatcher.catalogue import Catalogue
from dispatcher.errors import Conflict, Failed, NotFound, problem_of
from dispatcher.requests import Action, Operation
from dispatcher.views import record_view

_log = logging.getLogger(__name__)

_POLL = 0.1
_ACTED: Mapping[Action, int] = {"begin": 201, "end": 200, "update": 200}


class Answers:
    """Makes answers. `expires` knows of renewals that records do not."""

    def __init__(
        self, etcd: Etcd, catalogue: Catalogue, expires: Callable[[str], float | None]
    ) -> None:
        self._etcd = etcd
        self._catalogue = catalogue
        self._expires = expires
        self._following: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Stop what runs in the background."""
        for task in list(self._following):
            task.cancel()
        await asyncio.gather(*self._following, return_exceptions=True)

    def view(self, record: Record, operation: Operation | None = None) -> RecordView:
        """A record as users see it."""
        space = self._catalogue.spaces.get(record.space)
        version = space.doc.current if space else 0
        waiting = None
        if operation:
            settled = operation.action == "update" and record.next is None and not operation.refused
            begun = operation.action == "begin"
            partitions = operation.after if begun or settled else operation.before
            waiting = operation.waiting
        else:
            partitions = self._catalogue.routing.shares(space, record) if space else {}
        expires = None if record.ttl is None else self._expires(record.id)
        return record_view(record, partitions, version, waiting, expires)

    def ended(self, operation: Operation, record: Record, outcome: str) -> None:
        """An operation has come to its end: tell its caller, if there is one."""
        call = operation.call
        if not isinstance(call, Call):
            return
        if outcome == "superseded":
            if operation.action == "end" or record.open:
                self.follow(call, operation.place, operation.action, record)
            else:
                call.answer(operation.place, self.settled(operation.action, record))
            return
        view = self.view(record, operation)
        if outcome == "failed":
            problem = problem_of(Failed(operation.reason or ""), record.id)
            call.answer(operation.place, Answer(problem.status, view, problem))
        else:
            call.answer(operation.place, Answer(_ACTED[operation.action], view))

    def settled(self, action: Action, record: Record) -> Answer:
        """The answer that the state of a record gives, whoever brought it there."""
        view = self.view(record)
        wanted = "removed" if action == "end" else "active"
        if record.state == wanted:
            return Answer(_ACTED[action], view)
        if record.open:
            return Answer(202, view)
        if record.state == "failed" or action == "end":
            problem = problem_of(Failed(record.reason or "a switch refused it"), record.id)
        else:
            problem = problem_of(Conflict(f"another call has removed {record.id!r}"), record.id)
        return Answer(problem.status, view, problem)

    def of(self, call: Call) -> list[Answer]:
        """The answers to a call, with what is known now of those elements that go on."""
        found = []
        for answer, begun in zip(call.answers, call.begun, strict=True):
            if answer is None:
                operation = begun if isinstance(begun, Operation) else None
                record = operation.record if operation else begun
                answer = Answer(202, self.view(record, operation))
            found.append(answer)
        return found

    def follow(self, call: Call, place: int, action: Action, record: Record) -> None:
        """A record is in somebody else's hands: answer when it is settled."""
        call.written(place, record)
        task = asyncio.create_task(self._follow(call, place, action, record.id))
        self._following.add(task)
        task.add_done_callback(self._following.discard)

    async def _follow(self, call: Call, place: int, action: Action, name: str) -> None:
        while not call.over:
            try:
                record = await self.read(name)
            except StoreError as error:
                _log.warning("cannot read %s: %s", name, error)
            except NotFound as error:
                call.refuse(place, error)
                return
            else:
                if not record.open:
                    call.answer(place, self.settled(action, record))
                    return
                call.written(place, record)
            await asyncio.sleep(_POLL)

    async def read(self, name: str) -> Record:
        """A record that there is, or was until lately; NotFound if not."""
        keys = (record_key(name), record_key(name, finished=True))
        for key in (*keys, keys[0]):  # it may be finished, or restored, in between
            stored = await self._etcd.get(key)
            if stored:
                return decode_record(stored.value)
        raise NotFound(f"there is no subscription or advertisement {name!r}")
