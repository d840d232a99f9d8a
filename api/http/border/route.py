"""The route class of all endpoints: checks a request before FastAPI reads it."""

import asyncio
import re
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from starlette.responses import Response
from starlette.types import Receive, Scope

from api.http.border.auth import ACCESS, EVERYBODY, Access, Caller
from api.http.border.bodies import BYTES, JSON, check_media_type, check_no_body, decode, read_body
from api.http.border.edge import SPAN
from api.http.context import Backend, Context
from api.http.problems import ApiProblem
from api.http.schema.msgspec_types import JsonResponse
from configurators.tracing import Span
from dispatcher.dispatcher import Dispatcher
from monitor.monitor import Monitor

MAX_KEY = 255

_LARGE = 256 << 10  # bytes: a larger body is decoded in a thread, so that others are served

_KEY = re.compile(rf"[!-~]{{1,{MAX_KEY}}}")


class ApiRequest(Request):
    """A request that was admitted; its body is read within the limits of the service."""

    def __init__(self, scope: Scope, receive: Receive, access: Access, media: str) -> None:
        """Refuses (401, 403) a caller that lacks the role."""
        super().__init__(scope, receive)
        state = scope["app"].state
        self.context: Context = state.context
        backend: Backend = state.backend
        self.dispatcher: Dispatcher = backend.dispatcher
        self.monitor: Monitor = backend.monitor
        self.caller: Caller = EVERYBODY
        if self.context.guard.on:
            given = self.headers.get("authorization")
            self.caller = self.context.guard.admit(access, given)
        self.span: Span | None = scope.get(SPAN)
        self.raw = b""  # the body, once it was read
        self._media = media
        self._value: Any = None

    async def body(self) -> bytes:
        """The body; 408, 413 or 415 if it does not come in time, is too large, or of another type.

        If JSON is expected, 400 if it is something else.
        """
        settings = self.context.settings
        check_media_type(self, self._media)
        if self._media == BYTES:
            self.raw = await read_body(self, settings.max_backup, settings.backup_timeout)
        else:
            self.raw = await read_body(self, settings.max_body, settings.body_timeout)
            if len(self.raw) > _LARGE:
                self._value = await asyncio.to_thread(decode, self.raw, settings)
            else:
                self._value = decode(self.raw, settings)
        return self.raw

    async def json(self) -> Any:
        """The JSON value of the body that was read."""
        return self._value

    def idempotency_key(self) -> str | None:
        """The key that makes the request safe to repeat, if there is one."""
        given = self.headers.getlist("idempotency-key")
        if not given:
            return None
        if len(given) > 1 or not _KEY.fullmatch(given[0]):
            text = f"an idempotency key has 1 to {MAX_KEY} printable ASCII characters, no blanks"
            raise ApiProblem("bad-header", text, "Idempotency-Key")
        return given[0]

    def wait_seconds(self, wait: bool | float) -> float:
        """How many seconds to wait for the switches."""
        if isinstance(wait, bool):
            return self.context.settings.default_wait if wait else 0.0
        return min(wait, self.context.settings.max_wait)


class Route(APIRoute):
    """Checks the caller's role and the names of the parameters, before a body is read.

    FastAPI reads the body before it calls dependencies, so the role is checked here: callers
    without a token cannot make the service read and parse large bodies.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler, behind the checks; KeyError if the table of roles lacks the route."""
        handle = super().get_route_handler()
        name = f"{' '.join(sorted(self.methods or ()))} {self.path_format}"
        access = ACCESS[name]
        parameters = {field.alias for field in self.dependant.query_params}
        media = JSON
        if self.body_field is not None:
            media = getattr(self.body_field.field_info, "media_type", JSON)
        has_body = self.body_field is not None or "requestBody" in (self.openapi_extra or {})
        bodiless = not has_body and self.methods != {"GET"}

        async def check_and_handle(request: Request) -> Response:
            scope = request.scope
            scope["dzflow.route"] = name
            admitted = ApiRequest(scope, request.receive, access, media)
            if bodiless:
                check_no_body(admitted)
            if scope["query_string"]:
                _check_parameters(admitted, parameters)
            return await handle(admitted)

        return check_and_handle


def new_router(*tags: str) -> APIRouter:
    """A router of our routes. They have full paths, for `app.py` adds them without a prefix."""
    return APIRouter(
        tags=list(tags),
        route_class=Route,
        default_response_class=JsonResponse,
        generate_unique_id_function=_operation_id,
    )


def _operation_id(route: APIRoute) -> str:
    """The name of the endpoint's function in camel case: `put_host` becomes `putHost`."""
    first, *rest = route.name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _check_parameters(request: Request, known: set[str]) -> None:
    seen: set[str] = set()
    for name, _ in request.query_params.multi_items():
        if name in seen:
            raise ApiProblem("invalid", "the parameter is given twice", name[:64])
        if name not in known:
            raise ApiProblem("invalid", "there is no such parameter", name[:64])
        seen.add(name)
