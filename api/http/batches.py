"""Batches: elements are read one by one, and answered in order; the hot path of the service."""

from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

import msgspec
from starlette.responses import Response

from api.http.border.bodies import JSON
from api.http.border.route import ApiRequest
from api.http.problems import ApiProblem, document, invalid, naming, respond
from api.http.schema.models import Begin, ElementOut, End, In, ProblemOut
from dispatcher.calls import Answer
from dispatcher.errors import Problem
from dispatcher.views import RecordView

_MEMBERS = RecordView.__struct_fields__

T = TypeVar("T", bound=In)


async def read_elements(request: ApiRequest, kind: type[T]) -> tuple[list[T | Problem], bool]:
    """Each element of the body, or what is wrong with it; and whether the body is a batch."""
    await request.body()
    body = await request.json()
    if not isinstance(body, list):
        try:
            return [msgspec.convert(body, kind)], False
        except msgspec.ValidationError as error:
            raise ApiProblem.of(invalid(str(error))) from None
    most = request.context.settings.max_batch
    if not 1 <= len(body) <= most:
        text = f"a batch has 1 to {most} elements, got {len(body)}"
        raise ApiProblem("invalid", text, "body")
    if request.span is not None:
        request.span.set({"dzflow.elements": len(body)})
    try:
        return list(msgspec.convert(body, list[kind])), True  # type: ignore[valid-type]
    except msgspec.ValidationError:
        return [_element(item, kind) for item in body], True


def _element(item: object, kind: type[T]) -> T | Problem:
    try:
        return msgspec.convert(item, kind)
    except msgspec.ValidationError as error:
        return invalid(str(error))


def wait_of(request: ApiRequest, elements: Sequence[Begin | End | Problem]) -> float:
    """The longest wait of all elements: a batch is answered as a whole."""
    waits = (request.wait_seconds(e.wait) for e in elements if not isinstance(e, Problem))
    return max(waits, default=0.0)


def respond_all(request: ApiRequest, answers: Sequence[Answer], many: bool) -> Response:
    """The answer to a request with one element, or to a batch."""
    if not many:
        return respond_one(answers[0])
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
    request.context.metrics.elements(request.scope["dzflow.route"], counts)
    return Response(msgspec.json.encode(content), 207, media_type=JSON)


def respond_one(answer: Answer) -> Response:
    """The answer to a request about one record."""
    if answer.problem is not None:
        return respond(naming(answer.problem, "filter"))
    assert answer.record is not None
    headers = {}
    if answer.status in (201, 202):
        headers["Location"] = f"/requests/{answer.record.id}"
    return Response(msgspec.json.encode(answer.record), answer.status, headers, JSON)
