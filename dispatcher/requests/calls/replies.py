"""Answers callers: when their operation has ended, goes on, or is another dispatcher's."""

from collections.abc import Mapping
from typing import Any

from configurators.store.model import Record
from dispatcher.calls import Answer
from dispatcher.errors import Conflict, Failed, NotFound, problem_of
from dispatcher.requests.calls.followed import FollowedRecords
from dispatcher.requests.calls.pending_reply import PendingReply
from dispatcher.requests.calls.record_view import RecordViews
from dispatcher.requests.operation import Action, Ending, Operation, WaitingCaller

_DONE: Mapping[Action, int] = {"begin": 201, "end": 200, "update": 200}


class Replies:
    """Answers callers."""

    def __init__(self, views: RecordViews, followed: FollowedRecords) -> None:
        self._views = views
        self._followed = followed

    def ended(self, operation: Operation, record: Record, ending: Ending) -> None:
        """Tell all callers that wait for an operation that it has ended."""
        self._followed.tell(record)
        caller = operation.caller
        if caller is None:
            return
        if ending is Ending.SUPERSEDED:
            action = operation.action
            wished = operation.record.next.filter if operation.record.next else None
            if action == "end" or record.open:
                self.follow(caller, action, record, wished)
            else:
                caller.answer(self.answer_for(action, record, wished))
            return
        view = self._views.view(record, operation)
        if ending is Ending.FAILED:
            problem = problem_of(Failed(operation.rollout.refusal or ""), record.id)
            caller.answer(Answer(problem.status, view, problem))
        else:
            caller.answer(Answer(_DONE[operation.action], view))

    def answer_for(self, action: Action, record: Record, wished: Any = None) -> Answer:
        """The answer that a record's state gives, whichever dispatcher has carried it out.

        An update that another dispatcher took over, and had to take back, has not happened.
        """
        view = self._views.view(record)
        wanted = "removed" if action == "end" else "active"
        if action == "update" and record.reason and record.filter != wished:
            text = f"{record.id!r} has another filter, not the new one: {record.reason}; try again"
            problem = problem_of(Conflict(text), record.id)
            return Answer(problem.status, view, problem)
        if record.state == wanted:
            return Answer(_DONE[action], view)
        if record.open:
            return Answer(202, view)
        if record.state == "failed" or action == "end":
            problem = problem_of(Failed(record.reason or "a switch refused it"), record.id)
        else:
            problem = problem_of(Conflict(f"another call has removed {record.id!r}"), record.id)
        return Answer(problem.status, view, problem)

    def of(self, reply: PendingReply) -> list[Answer]:
        """The answers to a call; elements that go on are answered with how they are now."""
        found = []
        for answer, current in zip(reply.answers, reply.current, strict=True):
            if answer is None:
                assert current is not None
                if isinstance(current, Operation):
                    answer = Answer(202, self._views.view(current.record, current))
                else:
                    answer = Answer(202, self._views.view(current))
            found.append(answer)
        return found

    def follow(
        self, caller: WaitingCaller, action: Action, record: Record, wished: Any = None
    ) -> None:
        """Answer when a record is settled that another operation is about to change."""
        caller.written(record)
        follower = _Follower(self, caller, action, record.id, wished)
        self._followed.follow(record.id, follower)


class _Follower:
    """A caller that waits for a record; `wished` is the filter of an update."""

    def __init__(
        self, replies: Replies, caller: WaitingCaller, action: Action, id: str, wished: Any
    ) -> None:
        self._replies = replies
        self._caller = caller
        self._action: Action = action
        self._id = id
        self._wished = wished

    @property
    def over(self) -> bool:
        return self._caller.over

    def is_now(self, record: Record) -> bool:
        if record.open:
            self._caller.written(record)
            return False
        self._caller.answer(self._replies.answer_for(self._action, record, self._wished))
        return True

    def gone(self) -> None:
        self._caller.refuse(NotFound(f"there is no record {self._id!r} any more"))
