"""Subscriptions and advertisements: begun, ended, changed, renewed, listed."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Union

from msgspec import Meta
from starlette.responses import Response

from api.http.batches import answered, elements_of, longest_wait, single
from api.http.endpoints import Call, Link, Operation, Reply, Shown, once
from api.http.models import (
    Begin,
    ElementOut,
    End,
    EndQuery,
    In,
    ProblemOut,
    RecordId,
    RecordQuery,
    Update,
    given,
)
from api.http.problems import ApiProblem
from configurators.store.keys import LETTERS, is_record_id
from configurators.store.model import RecordKind
from dispatcher.calls import Page, RecordSpec
from dispatcher.errors import Problem, problem_of
from dispatcher.views import RecordView
from dzflow.errors import DzflowError

_READ_AT_ONCE = 100
_VERB: dict[RecordKind, str] = {"subscription": "subscribe", "advertisement": "advertise"}


# Begin and end, one or many


def _begin(kind: RecordKind) -> Callable[[Call], Any]:
    async def handler(call: Call) -> Reply | Response:
        elements, many = elements_of(call, Begin)
        specs: list[RecordSpec | Problem] = []
        for element in elements:
            if isinstance(element, Problem):
                specs.append(element)
            elif not call.caller.may_act_for(element.host):
                specs.append(_not_for(call, element.host))
            else:
                specs.append(
                    RecordSpec(
                        element.host, element.space, element.filter, element.label, element.ttl
                    )
                )
        answers = await call.dispatcher.begin(
            kind, specs, wait=longest_wait(call, elements), key=call.key, who=call.caller.name
        )
        return answered(call, answers, many)

    return handler


def _end(kind: RecordKind) -> Callable[[Call], Any]:
    async def handler(call: Call) -> Reply | Response:
        elements, many = elements_of(call, End)
        return await _remove(call, kind, elements, longest_wait(call, elements), many)

    return handler


def _delete(kind: RecordKind) -> Callable[[Call], Any]:
    async def handler(call: Call) -> Reply | Response:
        ending = End(_record_id(call, kind), call.query.wait)
        return await _remove(call, kind, [ending], call.wait(ending.wait), many=False)

    return handler


async def _remove(
    call: Call, kind: RecordKind, elements: Sequence[End | Problem], wait: float, many: bool
) -> Reply | Response:
    found = [_checked(kind, element) for element in elements]
    if call.caller.host is not None:
        found = await _own(call, kind, found)
    answers = await call.dispatcher.end(kind, found, wait=wait, key=call.key, who=call.caller.name)
    return answered(call, answers, many)


def _checked(kind: RecordKind, element: End | Problem) -> str | Problem:
    if isinstance(element, Problem):
        return element
    return _unknown_id(kind, element.id) or element.id


async def _own(call: Call, kind: RecordKind, ids: Sequence[str | Problem]) -> list[str | Problem]:
    """The ids, with a problem in place of those that the caller's host does not have."""

    async def own(item: str | Problem) -> str | Problem:
        try:
            if isinstance(item, str):
                await _must_own(call, kind, item)
        except ApiProblem as error:
            return error.problem
        except DzflowError as error:
            return problem_of(error)
        return item

    found: list[str | Problem] = []
    for at in range(0, len(ids), _READ_AT_ONCE):
        found += await asyncio.gather(*map(own, ids[at : at + _READ_AT_ONCE]))
    return found


async def _must_own(call: Call, kind: RecordKind, record_id: str) -> None:
    """Refuse (403) what belongs to another host; a record's host never changes."""
    if call.caller.host is not None:
        record = await call.dispatcher.record(record_id, kind)
        call.caller.must_act_for(record.host, "id")


def _not_for(call: Call, host: str) -> Problem:
    try:
        call.caller.must_act_for(host)
    except ApiProblem as error:
        return error.problem
    raise AssertionError(host)


# One record


def _record_id(call: Call, kind: RecordKind | None) -> str:
    """The id in the path; 404 if no record of the kind can have it."""
    record_id = call.path("id")
    if problem := _unknown_id(kind, record_id):
        raise ApiProblem("not-found", problem.detail)
    return record_id


def _unknown_id(kind: RecordKind | None, record_id: str) -> Problem | None:
    """Why there cannot be a record of this kind with this id, if so."""
    if is_record_id(record_id) and (kind is None or record_id[0] == LETTERS[kind]):
        return None
    text = f"there is no {kind or 'request'} {record_id[:40]!r}"
    return Problem(404, "not-found", "Not found", text.encode(errors="backslashreplace").decode())


def _get(kind: RecordKind | None) -> Callable[[Call], Any]:
    async def handler(call: Call) -> Reply:
        record = await call.dispatcher.record(_record_id(call, kind), kind)
        call.caller.must_act_for(record.host, "id")
        return Reply(200, record)

    return handler


def _put(kind: RecordKind) -> Callable[[Call], Any]:
    async def handler(call: Call) -> Reply | Response:
        record_id = _record_id(call, kind)
        update = call.read(Update)
        await _must_own(call, kind, record_id)
        answer = await call.dispatcher.update(
            kind, record_id, update.filter, wait=call.wait(update.wait)
        )
        return single(answer)

    return handler


def _renew(kind: RecordKind) -> Callable[[Call], Any]:
    async def handler(call: Call) -> Reply:
        record_id = _record_id(call, kind)

        async def renew() -> Reply:
            return Reply(200, await call.dispatcher.renew(kind, record_id))

        await _must_own(call, kind, record_id)
        return await once(call, renew)

    return handler


def _list(kind: RecordKind) -> Callable[[Call], Any]:
    async def handler(call: Call) -> Reply:
        query: RecordQuery = call.query
        host = given(query.host)
        if call.caller.host is not None:
            host = host or call.caller.host
            call.caller.must_act_for(host)
        page = await call.dispatcher.records(
            kind,
            host=host,
            space=given(query.space),
            state=given(query.state),
            limit=query.limit,
            after=given(query.after),
        )
        return Reply(200, page)

    return handler


# The operations

_EXAMPLE: dict[RecordKind, dict[str, Any]] = {
    "subscription": {"host": "h2", "space": "stocks", "filter": {"price": {"gte": 420}}},
    "advertisement": {"host": "h1", "space": "stocks", "filter": "price >= 0", "ttl": 60},
}
_RECORD_EXAMPLE = {
    "id": "s1-6d1f0c2b7a9e4435",
    "kind": "subscription",
    "host": "h2",
    "space": "stocks",
    "filter": {"price": {"gte": 420}},
    "regions": ["1*01"],
    "partitions": ["1.0/0-1"],
    "state": "active",
    "created": 1_763_289_600.0,
    "acknowledged": 1_763_289_600.01,
    "flow_ops": 3,
    "timing": {
        "indexed_ms": 0.4,
        "journaled_ms": 1.6,
        "queued_ms": 5.1,
        "decided_ms": 0.3,
        "pushed_ms": 1.9,
        "committed_ms": 1.2,
        "total_ms": 10.5,
    },
    "label": None,
    "ttl": None,
    "expires": None,
    "reason": None,
    "updating": False,
}
_REFERENCE = "#/components/schemas/"
_BATCH = Annotated[
    list[Any],
    Meta(
        extra_json_schema={
            "items": {
                "anyOf": [{"$ref": f"{_REFERENCE}{t.__name__}"} for t in (ElementOut, ProblemOut)]
            }
        }
    ),
]


def _batch(kind: type[In]) -> Any:
    # An element that is wrong spoils no other: it is taken, and answered with a problem.
    items = {"anyOf": [{"$ref": f"{_REFERENCE}{kind.__name__}"}, {}]}
    many = Meta(min_length=1, max_length=1_000, extra_json_schema={"items": items})
    return Union[kind, Annotated[list[Any], many]]  # noqa: UP007 a value, not an annotation


def _operations(kind: RecordKind) -> tuple[Operation, ...]:
    name = kind.capitalize()
    plural = f"/{kind}s"
    own = {"id": "$response.body#/id"}
    first = {"id": "$response.body#/items/0/id"}
    on_record = (
        Link(f"get{name}", own),
        Link(f"update{name}", own),
        Link(f"delete{name}", own),
        Link(f"renew{name}", own),
        Link("getRequest", own),
        Link(f"un{_VERB[kind]}", body={"id": "$response.body#/id"}),
    )
    done = Shown(RecordView, "Acknowledged by every switch.", on_record, example=_RECORD_EXAMPLE)
    later = Shown(RecordView, "Durable, but not at its end yet.", on_record, location=True)
    many = Shown(_BATCH, "A batch: each element as the single call would have answered.")
    gone = Shown(RecordView, "Removed from every switch.", (Link("getRequest", own),))
    changed = Shown(RecordView, "Acknowledged by every switch.", on_record)
    example = _EXAMPLE[kind]
    operation = Operation
    return (
        operation(
            "POST",
            f"/{_VERB[kind]}",
            _VERB[kind],
            "records",
            f"Make {_a(kind)}, or up to 1,000 of them",
            _begin(kind),
            {201: Shown(**_as(done), location=True), 202: later, 207: many},
            (404, 429, 502),
            body=_batch(Begin),
            examples={"one": example, "batch": [example, {**example, "wait": False}]},
        ),
        operation(
            "POST",
            f"/un{_VERB[kind]}",
            f"un{_VERB[kind]}",
            "records",
            f"Remove {_a(kind)}, or up to 1,000 of them",
            _end(kind),
            {200: gone, 202: later, 207: many},
            (404, 429, 502),
            body=_batch(End),
            examples={"one": {"id": _RECORD_EXAMPLE["id"]}},
        ),
        operation(
            "GET",
            plural,
            f"list{name}s",
            "records",
            f"List {kind}s, page by page",
            _list(kind),
            {
                200: Shown(
                    Page, "A page.", (Link(f"get{name}", first), Link(f"update{name}", first))
                )
            },
            (404,),
            query=RecordQuery,
        ),
        operation(
            "GET",
            f"{plural}/{{id}}",
            f"get{name}",
            "records",
            f"Look at {_a(kind)}",
            _get(kind),
            {200: Shown(RecordView, "As it is now.", example=_RECORD_EXAMPLE)},
            (404,),
            parameters={"id": RecordId},
        ),
        operation(
            "PUT",
            f"{plural}/{{id}}",
            f"update{name}",
            "records",
            "Replace the filter in one step; what both filters want is never interrupted",
            _put(kind),
            {200: changed, 202: later},
            (404, 409, 429, 502),
            body=Update,
            examples={"one": {"filter": {"price": {"gte": 500}}}},
            parameters={"id": RecordId},
        ),
        operation(
            "DELETE",
            f"{plural}/{{id}}",
            f"delete{name}",
            "records",
            f"Remove {_a(kind)}",
            _delete(kind),
            {200: gone, 202: later},
            (404, 409, 429, 502),
            query=EndQuery,
            parameters={"id": RecordId},
        ),
        operation(
            "POST",
            f"{plural}/{{id}}/renew",
            f"renew{name}",
            "records",
            "Say that a record with a ttl is still wanted",
            _renew(kind),
            {200: Shown(RecordView, "With its new end.")},
            (404, 409),
            parameters={"id": RecordId},
        ),
    )


def _a(kind: RecordKind) -> str:
    return f"{'an' if kind[0] == 'a' else 'a'} {kind}"


def _as(shown: Shown) -> dict[str, Any]:
    return {name: getattr(shown, name) for name in shown.__struct_fields__ if name != "location"}


OPERATIONS = (
    *_operations("subscription"),
    *_operations("advertisement"),
    Operation(
        "GET",
        "/requests/{id}",
        "getRequest",
        "records",
        "How it goes with a request: the record, also some time after it was removed or has failed",
        _get(None),
        {200: Shown(RecordView, "As it is now.", example=_RECORD_EXAMPLE)},
        (404,),
        parameters={"id": RecordId},
    ),
)
