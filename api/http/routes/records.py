"""Subscriptions and advertisements: make, remove, change, renew, list."""

import asyncio
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Response

from api.http.batches import read_elements, respond_all, respond_one, wait_of
from api.http.border.route import ApiRequest, new_router
from api.http.dependencies import CallerDep, DispatcherDep, OnceDep
from api.http.problems import ApiProblem
from api.http.schema.models import Begin, ElementOut, End, ProblemOut, Update
from api.http.schema.msgspec_types import Json, JsonBody
from api.http.schema.openapi import Responses, answer, example, link, problems, reference
from api.http.schema.parameters import (
    AfterQuery,
    HostQuery,
    LimitQuery,
    RecordPath,
    SpaceQuery,
    StateQuery,
    WaitQuery,
)
from configurators.store.keys import LETTERS, is_record_id
from configurators.store.model import RecordKind
from dispatcher.calls import Page, RecordSpec
from dispatcher.errors import Problem, problem_of
from dispatcher.views import RecordView
from dzflow.errors import DzflowError

_READ_AT_ONCE = 100


# One or many, with msgspec only: the hot path of the service


async def _begin(request: ApiRequest, kind: RecordKind) -> Response:
    elements, many = await read_elements(request, Begin)
    caller = request.caller
    specs: list[RecordSpec | Problem] = []
    for element in elements:
        if isinstance(element, Problem):
            specs.append(element)
        elif not caller.may_act_for(element.host):
            specs.append(caller.refusal().problem)
        else:
            specs.append(
                RecordSpec(element.host, element.space, element.filter, element.label, element.ttl)
            )
    answers = await request.dispatcher.begin(
        kind,
        specs,
        wait=wait_of(request, elements),
        key=request.idempotency_key(),
        who=caller.name,
        restricted=not caller.is_operator,
        span=request.span,
    )
    return respond_all(request, answers, many)


async def _end(request: ApiRequest, kind: RecordKind) -> Response:
    elements, many = await read_elements(request, End)
    found = [_checked(kind, element) for element in elements]
    if request.caller.host is not None:
        found = await _own(request, kind, found)
    answers = await request.dispatcher.end(
        kind,
        found,
        wait=wait_of(request, elements),
        key=request.idempotency_key(),
        who=request.caller.name,
        span=request.span,
    )
    return respond_all(request, answers, many)


def _checked(kind: RecordKind, element: End | Problem) -> str | Problem:
    if isinstance(element, Problem):
        return element
    return element.id if _is_id(kind, element.id) else _unknown(kind, element.id).problem


async def _own(
    request: ApiRequest, kind: RecordKind, ids: Sequence[str | Problem]
) -> list[str | Problem]:
    """The ids, with a problem in place of each record that belongs to another host."""

    async def own(item: str | Problem) -> str | Problem:
        try:
            if isinstance(item, str):
                await _check_owner(request, kind, item)
        except ApiProblem as error:
            return error.problem
        except DzflowError as error:
            return problem_of(error)
        return item

    found: list[str | Problem] = []
    for at in range(0, len(ids), _READ_AT_ONCE):
        found += await asyncio.gather(*map(own, ids[at : at + _READ_AT_ONCE]))
    return found


# Checks of one record


async def _check_owner(request: ApiRequest, kind: RecordKind, record_id: str) -> None:
    """Refuse (403) a record that belongs to another host; a record's host never changes."""
    if request.caller.host is not None:
        host = await request.dispatcher.host_of(record_id, kind)
        request.caller.must_act_for(host, "id")


def _is_id(kind: RecordKind | None, record_id: str) -> bool:
    """Whether a record of this kind can have this id."""
    return is_record_id(record_id) and (kind is None or record_id[0] == LETTERS[kind])


def _check_id(kind: RecordKind | None, record_id: str) -> None:
    if not _is_id(kind, record_id):
        raise _unknown(kind, record_id)


def _unknown(kind: RecordKind | None, record_id: str) -> ApiProblem:
    return ApiProblem("not-found", f"there is no {kind or 'request'} {record_id[:40]!r}")


async def _read(
    dispatcher: DispatcherDep, caller: CallerDep, kind: RecordKind | None, record_id: str
) -> RecordView:
    _check_id(kind, record_id)
    record = await dispatcher.record(record_id, kind)
    caller.must_act_for(record.host, "id")
    return record


# The endpoints

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
_DONE = "Every switch has acknowledged."
_BATCH = {
    "description": "A batch: each element as the answer to the single request would have been.",
    "content": {
        "application/json": {
            "schema": {
                "type": "array",
                "items": {"anyOf": [reference(ElementOut), reference(ProblemOut)]},
            }
        }
    },
}


def _batch_body(kind: type[Begin | End], *examples: Any) -> dict[str, Any]:
    """The body of a hot endpoint, which FastAPI does not see in its signature."""
    one = reference(kind)
    # Elements of any form are allowed: one that is wrong gets a problem, the others are served.
    many = {"type": "array", "minItems": 1, "maxItems": 1_000, "items": {"anyOf": [one, {}]}}
    found = example(*examples)
    found["requestBody"]["required"] = True
    found["requestBody"]["content"]["application/json"]["schema"] = {"anyOf": [one, many]}
    return found


def _router(kind: RecordKind, verb: str, request_example: dict[str, Any]) -> APIRouter:
    """The endpoints of one kind of records."""
    router = new_router("records")
    name = kind.capitalize()
    links = {
        **link(f"get{name}", id="/id"),
        **link(f"update{name}", id="/id"),
        **link(f"delete{name}", id="/id"),
        **link(f"renew{name}", id="/id"),
        **link("getRequest", id="/id"),
        **link(f"un{verb}", {"id": "$response.body#/id"}),
    }
    later: Responses = {
        202: answer("Stored, but not finished yet.", Json[RecordView], links=links, location=True)
    }
    removed = answer("Removed from every switch.", links=link("getRequest", id="/id"))

    @router.post(
        f"/{verb}",
        name=verb,
        status_code=201,
        response_model=Json[RecordView],
        responses={
            201: answer(_DONE, links=links, location=True, example=_RECORD_EXAMPLE),
            **later,
            207: _BATCH,
            **problems(404, 429, 502),
        },
        openapi_extra=_batch_body(
            Begin, request_example, [request_example, {**request_example, "wait": False}]
        ),
    )
    async def begin(request: ApiRequest) -> Response:
        """Make one, or a batch of up to 1,000."""
        return await _begin(request, kind)

    @router.post(
        f"/un{verb}",
        name=f"un{verb}",
        response_model=Json[RecordView],
        responses={200: removed, **later, 207: _BATCH, **problems(404, 429, 502)},
        openapi_extra=_batch_body(End, {"id": _RECORD_EXAMPLE["id"]}),
    )
    async def end(request: ApiRequest) -> Response:
        """Remove one, or a batch of up to 1,000."""
        return await _end(request, kind)

    @router.get(
        f"/{kind}s",
        name=f"list_{kind}s",
        responses={
            200: answer(
                "A page.",
                links={
                    **link(f"get{name}", id="/items/0/id"),
                    **link(f"update{name}", id="/items/0/id"),
                },
            ),
            **problems(404),
        },
    )
    async def list_records(
        dispatcher: DispatcherDep,
        caller: CallerDep,
        host: HostQuery = None,
        space: SpaceQuery = None,
        state: StateQuery = None,
        limit: LimitQuery = 100,
        after: AfterQuery = None,
    ) -> Json[Page]:
        """All of one kind, page by page; a host's token lists those of that host."""
        if caller.host is not None:
            host = host or caller.host
            caller.must_act_for(host)
        return await dispatcher.records(
            kind, host=host, space=space, state=state, limit=limit, after=after
        )

    @router.get(
        f"/{kind}s/{{id}}",
        name=f"get_{kind}",
        responses={200: answer("The record.", example=_RECORD_EXAMPLE), **problems(404)},
    )
    async def get_record(
        id: RecordPath, dispatcher: DispatcherDep, caller: CallerDep
    ) -> Json[RecordView]:
        """One of them, as it is now."""
        return await _read(dispatcher, caller, kind, id)

    @router.put(
        f"/{kind}s/{{id}}",
        name=f"update_{kind}",
        response_model=Json[RecordView],
        responses={200: answer(_DONE, links=links), **later, **problems(404, 409, 429, 502)},
        openapi_extra=example({"filter": {"price": {"gte": 500}}}),
    )
    async def update(id: RecordPath, asked: JsonBody[Update], request: ApiRequest) -> Response:
        """Replace the filter in one step; events that both filters want are never interrupted."""
        _check_id(kind, id)
        await _check_owner(request, kind, id)
        wait = request.wait_seconds(asked.wait)
        restricted = not request.caller.is_operator
        return respond_one(
            await request.dispatcher.update(
                kind, id, asked.filter, wait=wait, restricted=restricted, span=request.span
            )
        )

    @router.delete(
        f"/{kind}s/{{id}}",
        name=f"delete_{kind}",
        response_model=Json[RecordView],
        responses={200: removed, **later, **problems(404, 409, 429, 502)},
    )
    async def delete(id: RecordPath, request: ApiRequest, wait: WaitQuery = True) -> Response:
        """Remove one."""
        _check_id(kind, id)
        await _check_owner(request, kind, id)
        seconds = request.wait_seconds(wait)
        (found,) = await request.dispatcher.end(
            kind, [id], wait=seconds, key=None, who=request.caller.name, span=request.span
        )
        return respond_one(found)

    @router.post(
        f"/{kind}s/{{id}}/renew",
        name=f"renew_{kind}",
        responses={200: answer("The record with its new time of expiry."), **problems(404, 409)},
    )
    async def renew(id: RecordPath, request: ApiRequest, once: OnceDep) -> Json[RecordView]:
        """Keep a record that has a `ttl` from expiring."""
        _check_id(kind, id)
        await _check_owner(request, kind, id)
        return await once(lambda: request.dispatcher.renew(kind, id))

    return router


_requests = new_router("records")


@_requests.get(
    "/requests/{id}",
    responses={200: answer("The record.", example=_RECORD_EXAMPLE), **problems(404)},
)
async def get_request(
    id: RecordPath, dispatcher: DispatcherDep, caller: CallerDep
) -> Json[RecordView]:
    """The progress of a request: its record, also for a while after it was removed or failed."""
    return await _read(dispatcher, caller, None, id)


ROUTERS = (
    _router(
        "subscription",
        "subscribe",
        {"host": "h2", "space": "stocks", "filter": {"price": {"gte": 420}}},
    ),
    _router(
        "advertisement",
        "advertise",
        {"host": "h1", "space": "stocks", "filter": "price >= 0", "ttl": 60},
    ),
    _requests,
)
