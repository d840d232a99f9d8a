"""The application: all routers behind one edge, with a backend that lives as long as it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from fastapi.telemetry import TelemetryConfig
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.routing import Match

from api.http.app_settings import ApiSettings
from api.http.border.auth import Guard
from api.http.border.edge import Edge
from api.http.border.key_memory import KeyMemory
from api.http.context import Backend, Context
from api.http.live_stream import Streams
from api.http.metrics.registry import HttpMetrics
from api.http.problems import (
    KINDS,
    ApiProblem,
    invalid_request,
    log,
    problem,
    respond,
    respond_internal,
)
from api.http.readiness import Readiness
from api.http.routes import (
    about,
    event_keys,
    host_proposals,
    load,
    network,
    partitions,
    publishing,
    records,
    service,
    spaces,
    workers,
)
from api.http.schema.openapi import make_document
from api.http.schema.pages import add_pages
from api.http.schema.service import SettingsOut
from configurators.tracing import Tracer
from dispatcher.errors import problem_of
from dispatcher.views import Part
from dzflow.aio import BackgroundTasks
from dzflow.errors import DzflowError

# Routes are tried in order: the hot ones come first.
ROUTERS = (
    *records.ROUTERS,
    spaces.router,
    event_keys.router,
    network.router,
    host_proposals.router,
    publishing.router,
    partitions.router,
    load.router,
    workers.router,
    service.router,
    about.router,
)

_KIND_OF_STATUS = {status: kind for kind, (status, _) in reversed(list(KINDS.items()))}


# FastAPI itself sends nothing anywhere, whatever the environment says: our own traces
# (`api/start/telemetry.py`) say more, and are off unless a setting turns them on.
_NO_TELEMETRY: TelemetryConfig = {
    "tracing": False,
    "metrics": False,
    "logs": False,
    "operation_spans": False,
    "auto_configure": False,
}


async def _no_more_parts() -> list[Part]:
    return []


def make_app(
    settings: ApiSettings,
    open_backend: Callable[[], AbstractAsyncContextManager[Backend]],
    more_parts: Callable[[], Awaitable[list[Part]]] = _no_more_parts,
    tracer: Tracer | None = None,
    configured: SettingsOut | None = None,
) -> FastAPI:
    """The application. `more_parts` reports parts that the dispatcher does not know, such as Ray.

    `configured` is what `GET /settings` answers.

    `app.state.context.streams.stop()` ends all streams, so that a server can stop without delay.
    """
    streams = Streams(settings.max_streams, settings.max_host_streams, settings.keep_alive)
    metrics, readiness = HttpMetrics(settings.max_series), Readiness(more_parts)
    keys = KeyMemory(settings.max_kept_answers)
    guard, configured = Guard(settings.tokens), configured or SettingsOut([])
    context = Context(settings, guard, metrics, keys, streams, readiness, configured)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with open_backend() as backend:
            app.state.backend = backend
            metrics.watch(backend.dispatcher)
            metrics.watch_ray(lambda: readiness.is_up("ray"))
            background = BackgroundTasks()
            background.spawn(readiness.observe(backend.dispatcher), "observe readiness")
            yield
            streams.stop()
            await background.cancel()

    app = FastAPI(
        title="dzflow",
        version=version("dzflow"),
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry=_NO_TELEMETRY,
    )
    app.state.context = context
    for router in ROUTERS:
        # `include_router` would match each request twice: 6 to 10 % of a single request's cost.
        app.router.routes.extend(router.routes)
    add_pages(app)
    if settings.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.origins),
            allow_methods=["GET", "POST", "PUT", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "Idempotency-Key", "X-Request-Id"],
            expose_headers=["Location", "Retry-After", "X-Request-Id"],
        )
    app.add_middleware(
        Edge,
        settings=settings,
        metrics=metrics,
        tracer=tracer,
        draining=lambda: readiness.draining,
    )
    app.add_exception_handler(ApiProblem, _api_problem)
    app.add_exception_handler(DzflowError, _dispatcher_problem)
    app.add_exception_handler(RequestValidationError, _invalid_request)
    app.add_exception_handler(HTTPException, _framework_problem)
    document = make_document(app, context.guard.on)
    app.openapi = lambda: document  # type: ignore[method-assign]
    return app


async def _api_problem(_request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiProblem)
    return respond(error.problem, error.headers)


async def _dispatcher_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, DzflowError)
    found = problem_of(error)
    if found.status >= 500:
        log.warning("%s: %s", request.scope.get("dzflow.route"), error)
    return respond(found)


async def _invalid_request(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return respond(invalid_request(error))


async def _framework_problem(request: Request, error: Exception) -> Response:
    """The answer to what the framework refuses, such as a path that does not exist."""
    assert isinstance(error, HTTPException)
    cause = error.__cause__
    if (
        error.status_code == 400
        and isinstance(cause, Exception)
        and not isinstance(cause, ApiProblem)
    ):
        # FastAPI blames the caller for every error while it reads a body. The caller's own mistakes
        # are found by `ApiRequest.body`, so this one is ours.
        return respond_internal(cause, f"{request.method} {request.url.path!r}")
    if error.status_code == 405:
        allowed = ", ".join(_allowed(request))
        text = f"this path takes {allowed}"
        return respond(problem("no-method", text), {"Allow": allowed})
    if error.status_code == 404:
        text = f"there is nothing at {request.url.path[:100]!r}; see /docs"
        return respond(problem("not-found", text))
    kind = _KIND_OF_STATUS.get(error.status_code, "internal")
    return respond(ApiProblem(kind, str(error.detail)).problem, error.headers)


def _allowed(request: Request) -> list[str]:
    """The methods of all endpoints at this path."""
    found: set[str] = set()
    routes: list[Any] = request.app.routes
    for route in routes:
        if route.matches(request.scope)[0] is not Match.NONE:
            found |= (route.methods if isinstance(route, APIRoute) else None) or {"GET", "HEAD"}
    return sorted(found)
