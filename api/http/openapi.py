"""The OpenAPI document, made from the operations and the types that they take and give."""

import re
from collections.abc import Iterable, Iterator, Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from api.http.auth import ACCESS
from api.http.endpoints import JSON, MAX_KEY, Link, Operation, Shown
from api.http.models import ElementOut, ProblemOut
from api.http.problems import MEDIA_TYPE

_PLACE = re.compile(r"{(\w+)}")
_REFERENCE = "#/components/schemas/{name}"

TAGS = (
    ("records", "Subscriptions and advertisements."),
    ("spaces", "Event spaces, and what filters come to in them."),
    ("network", "Hosts, switches, links, trees and flow entries."),
    ("control", "Partitions and configurators."),
    ("service", "Health, metrics, changes as they happen, reports, backup."),
)

DESCRIPTION = """\
Say what a host publishes (`POST /advertise`) and what it wants (`POST /subscribe`); the switches
then filter and forward events by themselves.

Errors are `application/problem+json`: `type` is stable, `detail` says what to do, `field` and
`errors` name what is wrong with the input. Every answer has `X-Request-ID`, which the logs have,
too. `Idempotency-Key` on a POST makes it safe to repeat.
"""


class _Schemas:
    """Schemas of types, with references to those that have names."""

    def __init__(self, types: Iterable[Any]) -> None:
        self._types = list(types)
        found, self.components = msgspec.json.schema_components(
            self._types, ref_template=_REFERENCE
        )
        self._found = list(found)

    def of(self, kind: Any) -> dict[str, Any]:
        return dict(self._found[self._types.index(kind)])


def make_document(operations: Sequence[Operation], version: str, guarded: bool) -> dict[str, Any]:
    """The document; it speaks of tokens only if they are asked for."""
    schemas = _Schemas(_types(operations))
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        item = paths.setdefault(operation.path, {})
        item[operation.method.lower()] = _operation(operation, schemas, guarded)
    components: dict[str, Any] = {"schemas": schemas.components}
    if guarded:
        components["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer", "description": "A host's or operator's."}
        }
    return {
        "openapi": "3.1.0",
        "info": {"title": "dzflow", "version": version, "description": DESCRIPTION},
        "tags": [{"name": name, "description": text} for name, text in TAGS],
        "paths": paths,
        "components": components,
    }


def _types(operations: Iterable[Operation]) -> Iterator[Any]:
    yield ProblemOut
    yield ElementOut
    for operation in operations:
        yield operation.query
        if operation.body is not None and operation.media == JSON:
            yield operation.body
        yield from operation.parameters.values()
        for shown in operation.answers.values():
            if shown.type is not None:
                yield shown.type


def _operation(operation: Operation, schemas: _Schemas, guarded: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": operation.name,
        "tags": [operation.tag],
        "summary": operation.summary,
        "parameters": [*_path(operation, schemas), *_query(operation, schemas)],
        "responses": {
            **{str(status): _answer(s, schemas) for status, s in operation.answers.items()},
            **{str(status): _problem(status, schemas) for status in _problems(operation, guarded)},
        },
    }
    if operation.method == "POST":
        found["parameters"].append(_KEY_HEADER)
    if operation.body is not None:
        content: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}
        if operation.media == JSON:
            content = {"schema": schemas.of(operation.body)}
        if operation.examples:
            shown = {name: {"value": value} for name, value in operation.examples.items()}
            content["examples"] = shown
        found["requestBody"] = {"required": True, "content": {operation.media: content}}
    if guarded:
        open_to_all = ACCESS[operation.route] == "anyone"
        found["security"] = [] if open_to_all else [{"bearer": []}]
    return found


_KEY_HEADER = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "Of the caller's choice; a call that is repeated with it has no second effect.",
    "schema": {"type": "string", "pattern": f"^[!-~]{{1,{MAX_KEY}}}$"},
}


def _path(operation: Operation, schemas: _Schemas) -> Iterator[dict[str, Any]]:
    for name in _PLACE.findall(operation.path):
        schema = schemas.of(operation.parameters[name])
        yield {"name": name, "in": "path", "required": True, "schema": schema}


def _query(operation: Operation, schemas: _Schemas) -> Iterator[dict[str, Any]]:
    reference = schemas.of(operation.query)["$ref"]
    struct = schemas.components.pop(reference.rpartition("/")[2], None)
    # Several operations may share a query; its schema stands with the parameters.
    struct = struct or msgspec.json.schema(operation.query)["$defs"][operation.query.__name__]
    for name, schema in struct["properties"].items():
        yield {"name": name, "in": "query", "required": False, "schema": schema}


def _answer(shown: Shown, schemas: _Schemas) -> dict[str, Any]:
    found: dict[str, Any] = {"description": shown.description, "headers": dict(_HEADERS)}
    if shown.type is not None:
        content: dict[str, Any] = {"schema": schemas.of(shown.type)}
        if shown.example is not None:
            content["example"] = shown.example
        found["content"] = {shown.media: content}
    elif shown.media != JSON:
        found["content"] = {shown.media: {"schema": {"type": "string"}}}
    if shown.location:
        text = "Where to look how it goes on."
        location = {"description": text, "required": True, "schema": {"type": "string"}}
        found["headers"]["Location"] = location
    if shown.links:
        found["links"] = {link.operation: _link(link) for link in shown.links}
    return found


def _link(link: Link) -> dict[str, Any]:
    found: dict[str, Any] = {"operationId": link.operation}
    if link.parameters:
        found["parameters"] = dict(link.parameters)
    if link.body is not None:
        found["requestBody"] = link.body
    return found


_HEADERS = {
    "X-Request-ID": {
        "description": "The id of this request, in the logs, too.",
        "required": True,
        "schema": {"type": "string"},
    }
}


def _problems(operation: Operation, guarded: bool) -> list[int]:
    """What can go wrong with a call, whatever it is about, and what this one adds."""
    found = {422, 500, 503, *operation.problems}
    if guarded and ACCESS[operation.route] != "anyone":
        found |= {401, 403}
    if operation.method == "POST":
        found |= {400, 409}
    if operation.body is not None:
        found |= {400, 408, 413, 415}
    return sorted(found - set(operation.answers))


def _problem(status: int, schemas: _Schemas) -> dict[str, Any]:
    headers: dict[str, Any] = dict(_HEADERS)
    if status in (429, 503):
        text = "Seconds after which to try again."
        headers["Retry-After"] = {
            "description": text,
            "required": True,
            "schema": {"type": "integer", "minimum": 1},
        }
    if status == 401:
        headers["WWW-Authenticate"] = {"required": True, "schema": {"type": "string"}}
    return {
        "description": HTTPStatus(status).phrase,
        "headers": headers,
        "content": {MEDIA_TYPE: {"schema": schemas.of(ProblemOut)}},
    }
