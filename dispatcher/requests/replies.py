"""What callers are told: of operations that ended, that go on, and of records of others."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from configurators.store.documents import decode_record
from configurators.store.etcd.client import Etcd, StoreError
from configurators.store.keys import record_key
from configurators.store.model import Record
from dispatcher.errors import Conflict, Failed, NotFound, problem_of
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.reports.record_view import record_view
from dispatcher.requests.calls import Call
from dispatcher.requests.operation import Action, Operation
from dispatcher.requests.reading import read_many
from dispatcher.views import Answer, RecordView

_log = logging.getLogger(__name__)

_FIRST_POLL, _LONGEST_POLL = 0.1, 1.0  # seconds between looks at records of others
_ACTED: Mapping[Action, int] = {"begin": 201, "end": 200, "update": 200}


class _Follower(NamedTuple):
    call: Call
    place: int
    action: Action
    wished: Any  # the filter of an update


class Answers:
    """Makes answers. `expires` knows of renewals that records do not."""

    def __init__(
        self, etcd: Etcd, catalogue: Catalogue, expires: Callable[[str], float | None]
    ) -> None:
        self._etcd = etcd
        self._catalogue = catalogue
        self._expires = expires
        self._followed: dict[str, list[_Follower]] = {}
        self._polling: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Stop what runs in the background."""
        if self._polling:
            self._polling.cancel()
            await asyncio.gather(self._polling, return_exceptions=True)

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
        """An operation has come to its end: tell all who wait for it."""
        if record.id in self._followed:
            self._tell_followers(record)
        call = operation.call
        if not isinstance(call, Call):
            return
        if outcome == "superseded":
            place, action = operation.place, operation.action
            wished = operation.record.next.filter if operation.record.next else None
            if action == "end" or record.open:
                self.follow(call, place, action, record, wished)
            else:
                call.answer(place, self.settled(action, record, wished))
            return
        view = self.view(record, operation)
        if outcome == "failed":
            problem = problem_of(Failed(operation.reason or ""), record.id)
            call.answer(operation.place, Answer(problem.status, view, problem))
        else:
            call.answer(operation.place, Answer(_ACTED[operation.action], view))

    def settled(self, action: Action, record: Record, wished: Any = None) -> Answer:
        """The answer that the state of a record gives, whoever brought it there.

        An update that somebody else took over and had to take back has not happened.
        """
        view = self.view(record)
        wanted = "removed" if action == "end" else "active"
        if action == "update" and record.reason and record.filter != wished:
            text = f"the filter of {record.id!r} is another one: {record.reason}; try again"
            problem = problem_of(Conflict(text), record.id)
            return Answer(problem.status, view, problem)
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

    def follow(
        self, call: Call, place: int, action: Action, record: Record, wished: Any = None
    ) -> None:
        """A record is in somebody else's hands: answer when it is settled."""
        call.written(place, record)
        follower = _Follower(call, place, action, wished)
        self._followed.setdefault(record.id, []).append(follower)
        if self._polling is None:
            self._polling = asyncio.create_task(self._poll(), name="follow records")
            self._polling.add_done_callback(self._polled)

    def _tell_followers(self, record: Record) -> None:
        if record.open:
            for call, place, _, _ in self._followed.get(record.id, ()):
                call.written(place, record)
        else:
            for call, place, action, wished in self._followed.pop(record.id, ()):
                call.answer(place, self.settled(action, record, wished))

    async def _poll(self) -> None:
        """Look after all records that are followed; rarely, if that goes on for long."""
        pause = _FIRST_POLL
        while self._followed:
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_POLL)
            for name, followers in list(self._followed.items()):
                left = [follower for follower in followers if not follower.call.over]
                if left:
                    self._followed[name] = left
                else:
                    del self._followed[name]
            names = list(self._followed)
            try:
                live = await read_many(self._etcd, names)
                gone = [name for name in names if name not in live]
                finished = await read_many(self._etcd, gone, finished=True)
            except StoreError as error:
                _log.warning("cannot read what has become of %d records: %s", len(names), error)
                continue
            for held in (live | finished).values():
                self._tell_followers(held.record)
            for name in gone:
                if name not in finished:
                    for call, place, _, _ in self._followed.pop(name, ()):
                        call.refuse(place, NotFound(f"there is no record {name!r} any more"))

    def _polled(self, task: "asyncio.Task[None]") -> None:
        self._polling = None
        if not task.cancelled() and (error := task.exception()):
            _log.error("records are no longer followed", exc_info=error)

    async def read(self, name: str) -> Record:
        """A record that there is, or was until lately; NotFound if not."""
        keys = (record_key(name), record_key(name, finished=True))
        for key in (*keys, keys[0]):  # it may be finished, or restored, in between
            stored = await self._etcd.get(key)
            if stored:
                return decode_record(stored.value)
        raise NotFound(f"there is no subscription or advertisement {name!r}")
