"""The outermost layer: request ids, foreign pages, limits, slow readers, metrics, access log."""

import asyncio
import logging
from collections.abc import Callable
from time import perf_counter

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.http.app_settings import ApiSettings
from api.http.border.http_protocol import RESERVED
from api.http.border.request_ids import id_for, request_id
from api.http.border.sites import Sites
from api.http.metrics.registry import HttpMetrics
from api.http.problems import problem, respond, respond_internal
from configurators.tracing import Span, Tracer
from dispatcher.errors import Problem

access_log = logging.getLogger("dzflow.api.access")

SPAN = "dzflow.span"
"""Where the scope of a request has its span, if traces are on."""

_ALWAYS = ("/healthz", "/readyz")  # answered even when there are too many requests
_UNTRACED = (*_ALWAYS, "/metrics", "/stream")  # asked again and again; open for hours
_CLOSE = {"Connection": "close"}
# Browsers then keep answers from pages of other sites, and guess no other type.
_FOR_BROWSERS = (
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
)


class SlowReader(Exception):
    """A client did not read its answer in time; its connection is closed."""


class Edge:
    """ASGI middleware around the whole application."""

    def __init__(
        self,
        app: ASGIApp,
        settings: ApiSettings,
        metrics: HttpMetrics,
        tracer: Tracer | None = None,
        draining: Callable[[], bool] = lambda: False,
    ) -> None:
        """While it is `draining`, each answer closes its connection: callers go elsewhere."""
        self._app = app
        self._tracer = tracer
        self._settings = settings
        self._metrics = metrics
        self._sites = Sites(settings)
        self._draining = draining
        self._in_flight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = next((v for k, v in scope["headers"] if k == b"x-request-id"), None)
        name = id_for(given)
        reset = request_id.set(name)
        started = perf_counter()
        status = 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                # A copy: the message of a stream is always the same object.
                own = (b"x-request-id", name.encode())
                headers = [*message["headers"], own, *_FOR_BROWSERS]
                if self._draining() and counted:
                    headers.append((b"connection", b"close"))
                message = {**message, "headers": headers}
            try:
                async with asyncio.timeout(self._settings.send_timeout):
                    await send(message)
            except TimeoutError:
                raise SlowReader from None

        span = None
        if self._tracer is not None and scope["path"] not in _UNTRACED:
            span = scope[SPAN] = _begin_span(self._tracer, scope)
        counted = scope["path"] != "/stream"  # streams stay open, and have their own limit
        self._in_flight += counted
        self._metrics.in_flight.set(self._in_flight)
        try:
            refused = self._sites.refusal(scope) or self._overload(scope, counted)
            if refused is None:
                await self._app(scope, receive, answer)
            else:
                headers = _CLOSE if RESERVED in scope else None
                await respond(refused, headers)(scope, receive, answer)
        except SlowReader:
            access_log.warning("a client did not read its answer in time", extra=_fields(scope))
            raise  # for the server to close the connection
        except Exception as error:
            response = respond_internal(error, f"{scope['method']} {scope['path']!r}")
            if status:
                raise
            await response(scope, receive, answer)
        finally:
            self._in_flight -= counted
            self._metrics.in_flight.set(self._in_flight)
            seconds = perf_counter() - started
            self._metrics.answered(scope.get("dzflow.route", "other"), status, seconds)
            if span is not None:
                _end_span(span, scope, status)
            access_log.info(
                "%s %s %d %.1f ms",
                scope["method"],
                scope["path"][:200].encode("unicode_escape").decode(),
                status,
                seconds * 1_000,
                extra={**_fields(scope), "status": status, "ms": round(seconds * 1_000, 2)},
            )
            request_id.reset(reset)

    def _overload(self, scope: Scope, counted: bool) -> Problem | None:
        """Why a request finds no room, if it does not; questions about health always do."""
        too_many = counted and self._in_flight > self._settings.max_requests
        if not (too_many or RESERVED in scope) or scope["path"] in _ALWAYS:
            return None
        if too_many:
            return problem("overloaded", "too many requests are in progress; try again soon")
        text = (
            "too many connections are open, and all are in use: close some, try again soon, or"
            " raise http.connections and http.address_connections"
        )
        return problem("overloaded", text)


def _begin_span(tracer: Tracer, scope: Scope) -> Span | None:
    """The first span of a request, in the caller's trace if it has one; None if not sampled."""
    given = next((value for name, value in scope["headers"] if name == b"traceparent"), b"")
    return tracer.accept(scope["method"], given.decode("latin-1"))


def _end_span(span: Span, scope: Scope, status: int) -> None:
    route = scope.get("dzflow.route", "other")
    span.set(
        {
            "http.request.method": scope["method"],
            "http.route": route.partition(" ")[2] or route,
            "http.response.status_code": status,
        }
    )
    span.end("" if 0 < status < 500 else f"status {status}", route)


def _fields(scope: Scope) -> dict[str, object]:
    return {"route": scope.get("dzflow.route", "other"), "method": scope["method"]}
