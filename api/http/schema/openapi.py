"""The OpenAPI document: FastAPI's own, with what all endpoints have in common added to it."""

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from api.http.border.auth import ACCESS
from api.http.border.route import MAX_KEY
from api.http.problems import MEDIA_TYPE
from api.http.schema.models import Begin, ElementOut, End, ProblemOut
from api.http.schema.msgspec_types import STRUCTS

Responses = dict[int | str, dict[str, Any]]
"""Answers of an endpoint by status, as FastAPI takes them."""

_COMPONENTS = "#/components/schemas/"

TAGS = (
    ("records", "Subscriptions and advertisements."),
    ("spaces", "Event spaces, and how filters are indexed in them."),
    ("network", "Hosts, switches, links, trees and flow entries."),
    ("control", "Partitions, configurators, southbound processes and load."),
    ("service", "Health, metrics, a stream of changes, reports, backup."),
)

DESCRIPTION = """\
Tell the control plane what a host publishes (`POST /advertise`) and what it wants (`POST
/subscribe`). The switches then filter and forward events by themselves.

Errors are `application/problem+json`: `type` is stable, `detail` says what to do, `field` and
`errors` name the input that is wrong. Every answer has an `X-Request-ID`, which the logs have, too.
`Idempotency-Key` makes a POST safe to repeat.
"""

_REQUEST_ID = {
    "description": "The id of this request, as in the logs.",
    "required": True,
    "schema": {"type": "string"},
}
_LOCATION = {
    "description": "Where the progress of the request can be read.",
    "required": True,
    "schema": {"type": "string"},
}
_RETRY_AFTER = {
    "description": "Seconds after which to try again.",
    "required": True,
    "schema": {"type": "integer", "minimum": 1},
}
_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "Chosen by the caller. A request that is repeated with it has no second effect.",
    "schema": {"type": "string", "pattern": f"^[!-~]{{1,{MAX_KEY}}}$"},
}


def answer(
    description: str,
    model: Any = None,
    *,
    links: Mapping[str, Any] | None = None,
    location: bool = False,
    example: Any = None,
) -> dict[str, Any]:
    """One answer of an endpoint, as FastAPI takes it."""
    found: dict[str, Any] = {"description": description}
    if model is not None:
        found["model"] = model
    if links:
        found["links"] = dict(links)
    if location:
        found["headers"] = {"Location": _LOCATION}
    if example is not None:
        found["content"] = {"application/json": {"example": example}}
    return found


def link(operation: str, body: Any = None, **parameters: str) -> dict[str, Any]:
    """An operation that can be called next, with members of this answer (`id="/id"`)."""
    found: dict[str, Any] = {"operationId": operation}
    if parameters:
        members = {name: f"$response.body#{at}" for name, at in parameters.items()}
        found["parameters"] = members
    if body is not None:
        found["requestBody"] = body
    return {operation: found}


def reference(kind: type[msgspec.Struct]) -> dict[str, str]:
    """A reference to the component that describes a struct."""
    return {"$ref": f"{_COMPONENTS}{kind.__name__}"}


def example(*values: Any) -> dict[str, Any]:
    """Examples of a body in JSON, for `openapi_extra`."""
    shown = {str(number): {"value": value} for number, value in enumerate(values, 1)}
    return {"requestBody": {"content": {"application/json": {"examples": shown}}}}


def problems(*statuses: int) -> Responses:
    """The answers with these statuses, each a problem."""
    return {status: _problem(status) for status in statuses}


def _problem(status: int) -> dict[str, Any]:
    headers: dict[str, Any] = {}
    if status in (429, 503):
        headers["Retry-After"] = _RETRY_AFTER
    if status == 401:
        headers["WWW-Authenticate"] = {"required": True, "schema": {"type": "string"}}
    return {
        "description": HTTPStatus(status).phrase,
        "headers": headers,
        "content": {MEDIA_TYPE: {"schema": reference(ProblemOut)}},
    }


def make_document(app: FastAPI, guarded: bool) -> dict[str, Any]:
    """The document; it mentions tokens only if callers need one (`guarded`)."""
    found = get_openapi(
        title=app.title,
        version=app.version,
        description=DESCRIPTION,
        tags=[{"name": name, "description": text} for name, text in TAGS],
        routes=app.routes,
    )
    document: dict[str, Any] = _with_components(found, app)
    for path, item in document["paths"].items():
        for method, operation in item.items():
            _complete(operation, f"{method.upper()} {path}", guarded)
    if guarded:
        text = "The token of a host or of an operator."
        scheme = {"type": "http", "scheme": "bearer", "description": text}
        document["components"]["securitySchemes"] = {"bearer": scheme}
    return document


def _with_components(document: dict[str, Any], app: FastAPI) -> dict[str, Any]:
    """The document with all structs as components."""
    # Structs that only hot endpoints use are not in any signature.
    kinds = [Begin, End, ElementOut, ProblemOut, *_kinds(app)]
    _, components = msgspec.json.schema_components(kinds, ref_template=f"{_COMPONENTS}{{name}}")
    text = msgspec.json.encode(document).replace(STRUCTS.encode(), _COMPONENTS.encode())
    found: dict[str, Any] = msgspec.json.decode(text)
    found.setdefault("components", {})["schemas"] = components
    return found


# Endpoints that anyone may call, and that answer more to an operator.
_MORE_WITH_TOKEN = ("GET /readyz",)


def _kinds(app: FastAPI) -> Iterator[Any]:
    """The types of all bodies and answers."""
    for route in app.routes:
        if isinstance(route, APIRoute) and route.include_in_schema:
            fields = (route.body_field, route.response_field, *route.response_fields.values())
            for field in fields:
                if field is not None and field.field_info.annotation is not bytes:
                    yield field.field_info.annotation


def _complete(operation: dict[str, Any], route: str, guarded: bool) -> None:
    """Add the answers, headers and parameters that endpoints have in common."""
    statuses = {422, 500, 503}
    if route.startswith("POST "):
        statuses |= {400, 409}
        operation.setdefault("parameters", []).append(_KEY)
    if guarded:
        open_to_all = ACCESS[route] == "anyone"
        operation["security"] = [] if open_to_all else [{"bearer": []}]
        if route in _MORE_WITH_TOKEN:
            operation["security"] = [{}, {"bearer": []}]
        statuses |= set() if open_to_all else {401, 403}
    if "requestBody" in operation:
        statuses |= {400, 408, 413, 415}
    answers = operation["responses"]
    answers["422"] = _problem(422)  # instead of FastAPI's own form
    for status in statuses:
        answers.setdefault(str(status), _problem(status))
    for found in answers.values():
        found["headers"] = {"X-Request-ID": _REQUEST_ID, **found.get("headers", {})}
