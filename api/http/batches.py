"""Batches: elements are read one by one, and answered in order; the hot path of the service."""

from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

import msgspec
from starlette.responses import Response

from api.http.endpoints import Call, Reply
from api.http.models import Begin, ElementOut, End, In, ProblemOut
from api.http.problems import ApiProblem, document, invalid, naming, respond
from dispatcher.calls import Answer
from dispatcher.errors import Problem
from dispatcher.views import RecordView

_MEMBERS = RecordView.__struct_fields__

T = TypeVar("T", bound=In)


def elements_of(call: Call, kind: type[T]) -> tuple[list[T | Problem], bool]:
    """What the body asks for: each element, or what is wrong with it; and whether it is a batch."""
    body = call.body
    if not isinstance(body, list):
        return [msgspec.convert(body, kind)], False
    if not 1 <= len(body) <= call.settings.max_batch:
        text = f"a batch has 1 to {call.settings.max_batch} elements, got {len(body)}"
        raise ApiProblem("invalid", text, "body")
    try:
        return list(msgspec.convert(body, list[kind])), True  # type: ignore[valid-type]
    except msgspec.ValidationError:
        return [_element(item, kind) for item in body], True


def _element(item: object, kind: type[T]) -> T | Problem:
    try:
        return msgspec.convert(item, kind)
    except msgspec.ValidationError as error:
        return invalid(error)


def longest_wait(call: Call, elements: Sequence[Begin | End | Problem]) -> float:
    """A batch is answered as a whole, so that the element with the most patience decides."""
    waits = (call.wait(e.wait) for e in elements if not isinstance(e, Problem))
    return max(waits, default=0.0)


def answered(call: Call, answers: Sequence[Answer], many: bool) -> Reply | Response:
    """The answer to a call with one element, or with many."""
    if not many:
        return single(answers[0])
    content: list[ElementOut | ProblemOut] = []
    counts: Counter[int] = Counter()
    for answer in answers:
        counts[answer.status] += 1
        if answer.problem is not None:
            content.append(document(naming(answer.problem, "filter")))
        else:
            record = answer.record
            content.append(
                ElementOut(*[getattr(record, name) for name in _MEMBERS], status=answer.status)
            )
    call.context.metrics.elements(call.request.scope["dzflow.route"], counts)
    return Reply(207, content)


def single(answer: Answer) -> Reply | Response:
    """The answer to a call about one record."""
    if answer.problem is not None:
        return respond(naming(answer.problem, "filter"))
    assert answer.record is not None
    headers = {}
    if answer.status in (201, 202):
        headers["Location"] = f"/requests/{answer.record.id}"
    return Reply(answer.status, answer.record, headers)
