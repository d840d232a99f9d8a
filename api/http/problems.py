"""Errors as callers see them: `application/problem+json` (RFC 9457), with stable types."""

import logging
import re
from collections.abc import Mapping
from math import ceil

import msgspec
from fastapi.exceptions import RequestValidationError
from msgspec.structs import replace
from starlette.exceptions import HTTPException
from starlette.responses import Response

from api.http.border.request_ids import request_id
from api.http.schema.models import FieldProblem, ProblemOut
from dispatcher.errors import Problem

log = logging.getLogger("dzflow.api")

MEDIA_TYPE = "application/problem+json"

KINDS: Mapping[str, tuple[int, str]] = {
    "bad-json": (400, "The body is not acceptable JSON"),
    "bad-header": (400, "A header is not acceptable"),
    "no-token": (401, "A token is needed"),
    "forbidden": (403, "Not allowed"),
    "foreign-name": (403, "The API does not have this name"),
    "foreign-origin": (403, "Not allowed for pages of other sites"),
    "not-found": (404, "Not found"),
    "no-method": (405, "Method not allowed"),
    "timeout": (408, "The request arrived too slowly"),
    "key-reused": (409, "The idempotency key belongs to another request"),
    "too-large": (413, "The body is too large"),
    "media-type": (415, "The body has an unsupported media type"),
    "invalid": (422, "The input is not valid"),
    "internal": (500, "Internal error"),
    "overloaded": (503, "The service is overloaded"),
}
"""The kinds of problems that the API finds; the dispatcher has more. `type` in the answer is
`/problems/KIND`."""

_AT = re.compile(r" - at `(?:key in )?\$(.*)`$", re.DOTALL)
_NAMED = re.compile(r"([a-z_]+): ")  # at the beginning of what a body itself found wrong
_MEMBER = re.compile(r"field `([^`]*)`")


class ApiProblem(HTTPException):
    """Raised to answer with a problem, and with `headers` if there are any."""

    def __init__(
        self,
        kind: str,
        detail: str,
        field: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.problem = problem(kind, detail, field)
        super().__init__(self.problem.status, detail, dict(headers or {}))

    @classmethod
    def of(cls, found: Problem) -> "ApiProblem":
        """Carries a problem that was found."""
        return cls(found.type, found.detail, found.field)


def problem(kind: str, detail: str, field: str | None = None) -> Problem:
    """A problem of one of our own kinds."""
    status, title = KINDS[kind]
    return Problem(status, kind, title, printable(detail), field and printable(field))


def invalid(text: str) -> Problem:
    """The problem that msgspec found with a value; its message names the field."""
    at = _AT.search(text)
    path = at[1].lstrip(".") if at else ""
    detail = text[: at.start()] if at else text
    if member := _MEMBER.search(detail):
        path = f"{path}.{member[1]}" if path else member[1]
    elif not path and (member := _NAMED.match(detail)):
        path = member[1]
    return problem("invalid", detail, path or "body")


def invalid_request(error: RequestValidationError) -> Problem:
    """The first problem that was found with the parameters or the body of a request."""
    found = error.errors()[0]
    place, *path = found["loc"]
    detail = str(found.get("ctx", {}).get("error", found["msg"]))
    return invalid(detail) if place == "body" else problem("invalid", detail, str(path[0]))


def naming(found: Problem, otherwise: str) -> Problem:
    """The problem; if it concerns the input and names no field, it names `otherwise`."""
    if found.field is not None or found.status != 422:
        return found
    return replace(found, field=otherwise)


def document(found: Problem, request_id: str | None = None) -> ProblemOut:
    """The problem as it is sent."""
    field = found.field
    return ProblemOut(
        type=f"/problems/{found.type}",
        title=found.title,
        status=found.status,
        detail=printable(found.detail),
        field=field,
        errors=[FieldProblem(field, printable(found.detail))] if field is not None else None,
        id=found.id,
        ids=list(found.ids) or None,
        request_id=request_id,
        retry_after=found.retry_after,
        position=found.position,
    )


def respond(
    found: Problem, headers: Mapping[str, str] | None = None, request_id: str | None = None
) -> Response:
    """The answer that carries a problem."""
    headers = dict(headers or {})
    if found.status in (429, 503):
        headers.setdefault("Retry-After", str(max(1, ceil(found.retry_after or 1))))
    if found.status == 401:
        headers.setdefault("WWW-Authenticate", 'Bearer realm="dzflow"')
    content = msgspec.json.encode(document(found, request_id))
    return Response(content, found.status, headers, MEDIA_TYPE)


def respond_internal(error: Exception, route: str) -> Response:
    """The answer to an error of the service itself: an id, and nothing about the error."""
    log.error("%s failed", route, exc_info=error)
    text = "the service's log has the error under this request's id"
    return respond(problem("internal", text), request_id=request_id.get())


def printable(text: str) -> str:
    """The text with lone surrogates escaped, which UTF-8 cannot encode."""
    return text.encode(errors="backslashreplace").decode()
