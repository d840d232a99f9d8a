"""What an operation of the API is, and how a call to it is taken: admitted, read, answered."""

import hashlib
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec
from fastapi import FastAPI, Request
from msgspec import Struct
from starlette.responses import Response

from api.http.app_settings import ApiSettings
from api.http.auth import ACCESS, Caller, Guard
from api.http.bodies import check_media_type, decode, read_body
from api.http.key_memory import KeyMemory
from api.http.live_stream import Streams
from api.http.metrics import Metrics
from api.http.models import In, NoQuery
from api.http.problems import ApiProblem, invalid, problem, respond
from api.http.request_ids import request_id
from dispatcher.dispatcher import Dispatcher
from dispatcher.errors import problem_of
from dispatcher.views import Part
from dzflow.errors import DzflowError

log = logging.getLogger("dzflow.api")

JSON = "application/json"
BYTES = "application/octet-stream"
MAX_KEY = 255

_KEY = re.compile(rf"[!-~]{{1,{MAX_KEY}}}")

T = TypeVar("T")


class Reply(Struct, frozen=True):
    """An answer in JSON."""

    status: int
    content: Any
    headers: dict[str, str] = {}


class Context(Struct, frozen=True, eq=False):
    """What every call can use."""

    settings: ApiSettings
    guard: Guard
    metrics: Metrics
    keys: KeyMemory
    streams: Streams
    more_parts: Callable[[], Awaitable[list[Part]]]


class Call(Struct, frozen=True, eq=False):
    """A call that was admitted and read."""

    request: Request
    context: Context
    dispatcher: Dispatcher
    caller: Caller
    query: Any
    raw: bytes
    body: Any
    key: str | None

    @property
    def settings(self) -> ApiSettings:
        """The limits."""
        return self.context.settings

    def path(self, name: str) -> str:
        """A parameter of the path."""
        return str(self.request.path_params[name])

    def read(self, kind: type[T]) -> T:
        """The body as this type; 422 names the field that does not fit."""
        return msgspec.convert(self.body, kind)

    def wait(self, given: bool | float) -> float:
        """How many seconds to wait for the switches."""
        if isinstance(given, bool):
            return self.settings.default_wait if given else 0.0
        return min(given, self.settings.max_wait)


Handler = Callable[[Call], Awaitable[Reply | Response]]


class Link(Struct, frozen=True):
    """What can be called next, with what of this answer (`$response.body#/id`)."""

    operation: str
    parameters: Mapping[str, str] = {}
    body: Any = None


class Shown(Struct, frozen=True):
    """What an answer looks like: its type (None: no JSON), and links to other operations."""

    type: Any
    description: str
    links: tuple[Link, ...] = ()
    location: bool = False
    media: str = JSON
    example: Any = None


class Operation(Struct, frozen=True):
    """One method of one path: who handles it, and how it is documented."""

    method: str
    path: str
    name: str
    tag: str
    summary: str
    handler: Handler
    answers: Mapping[int, Shown]
    problems: tuple[int, ...] = ()
    query: type[In] = NoQuery
    body: Any = None
    media: str = JSON
    examples: Mapping[str, Any] = {}
    parameters: Mapping[str, Any] = {}  # of the path: name -> type

    @property
    def route(self) -> str:
        """Method and path, as the table of roles has them."""
        return f"{self.method} {self.path}"


def register(app: FastAPI, operation: Operation, context: Context) -> None:
    """Add the operation to the app; KeyError if nobody has said who may call it."""
    access = ACCESS[operation.route]

    async def endpoint(request: Request) -> Response:
        request.scope["dzflow.route"] = operation.route
        try:
            caller = context.guard.admit(access, request.headers.get("authorization"))
            call = await _read(operation, context, caller, request)
            reply = await operation.handler(call)
        except ApiProblem as error:
            return respond(error.problem, error.headers)
        except msgspec.ValidationError as error:
            return respond(invalid(error))
        except DzflowError as error:
            found = problem_of(error)
            if found.status >= 500:
                log.warning("%s: %s", operation.route, error)
            return respond(found)
        if isinstance(reply, Response):
            return reply
        content = msgspec.json.encode(reply.content)
        return Response(content, reply.status, reply.headers, JSON)

    app.add_api_route(operation.path, endpoint, methods=[operation.method], include_in_schema=False)


async def _read(operation: Operation, context: Context, caller: Caller, request: Request) -> Call:
    settings = context.settings
    query = _query(operation.query, request)
    key = _key(request) if operation.method == "POST" else None
    raw, body = b"", None
    if operation.body is not None:
        check_media_type(request, operation.media)
        limit, timeout = settings.max_body, settings.body_timeout
        if operation.media == BYTES:
            limit, timeout = settings.max_backup, settings.backup_timeout
        raw = await read_body(request, limit, timeout)
        if operation.media == JSON:
            body = decode(raw, settings)
    dispatcher: Dispatcher = request.app.state.dispatcher
    return Call(request, context, dispatcher, caller, query, raw, body, key)


def _query(kind: type[In], request: Request) -> In:
    given: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name in given:
            raise ApiProblem("invalid", "the parameter is given twice", name[:64])
        given[name] = value
    return msgspec.convert(given, kind, strict=False)


def _key(request: Request) -> str | None:
    given = request.headers.getlist("idempotency-key")
    if not given:
        return None
    if len(given) > 1 or not _KEY.fullmatch(given[0]):
        text = f"an idempotency key has 1 to {MAX_KEY} printable ASCII characters, no blanks"
        raise ApiProblem("bad-header", text, "Idempotency-Key")
    return given[0]


async def once(call: Call, action: Callable[[], Awaitable[Reply]], keep: bool = True) -> Reply:
    """The reply of an action that a repeated idempotency key must not bring about again.

    For calls that leave no record behind; the dispatcher keeps the keys of those that do. Without
    `keep`, only what the key was used for is remembered.
    """
    if call.key is None:
        return await action()
    print_ = hashlib.sha256(f"{call.request.method} {call.request.url.path}\n".encode() + call.raw)
    name = (call.caller.name, call.key)
    return await call.context.keys.once(name, print_.digest(), action, keep)


def internal_error(error: Exception, route: str) -> Response:
    """The answer to a fault of ours: an id, and nothing about the fault itself."""
    log.error("%s failed", route, exc_info=error)
    text = "the log tells more under the request's id"
    return respond(problem("internal", text), request_id=request_id.get())
