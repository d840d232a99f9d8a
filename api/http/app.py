"""The application: all operations behind one edge, with a dispatcher that lives as long as it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI, Request
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match

from api.http.app_settings import ApiSettings
from api.http.auth import Guard
from api.http.edge import Edge
from api.http.endpoints import Context, register
from api.http.key_memory import KeyMemory
from api.http.live_stream import Streams
from api.http.metrics import Metrics
from api.http.openapi import make_document
from api.http.pages import add_pages
from api.http.problems import KINDS, ApiProblem, problem, respond
from api.http.routes import network, records, service, spaces
from dispatcher.dispatcher import Dispatcher
from dispatcher.views import Part

OPERATIONS = (
    *records.OPERATIONS,
    *spaces.OPERATIONS,
    *network.OPERATIONS,
    *service.OPERATIONS,
)

_KIND_OF_STATUS = {status: kind for kind, (status, _) in reversed(list(KINDS.items()))}


async def _no_more_parts() -> list[Part]:
    return []


def make_app(
    settings: ApiSettings,
    open_dispatcher: Callable[[], AbstractAsyncContextManager[Dispatcher]],
    more_parts: Callable[[], Awaitable[list[Part]]] = _no_more_parts,
) -> FastAPI:
    """The application. `more_parts` tells of parts that the dispatcher does not know, such as Ray.

    `app.state.streams.stop()` ends all streams, so that a server can stop without delay.
    """
    metrics = Metrics()
    streams = Streams(settings.max_streams, settings.max_host_streams, settings.keep_alive)
    guard = Guard(settings.tokens)
    context = Context(settings, guard, metrics, KeyMemory(), streams, more_parts)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with open_dispatcher() as dispatcher:
            app.state.dispatcher = dispatcher
            metrics.watch(dispatcher)
            yield
            streams.stop()

    app = FastAPI(
        title="dzflow",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.streams = streams
    for operation in OPERATIONS:
        register(app, operation, context)
    add_pages(app)
    app.add_middleware(Edge, settings=settings, metrics=metrics)
    app.add_exception_handler(HTTPException, _framework_problem)
    document = make_document(OPERATIONS, version("dzflow"), guard.on)
    app.openapi = lambda: document  # type: ignore[method-assign]
    return app


async def _framework_problem(request: Request, error: Exception) -> Response:
    """What the framework refuses by itself: paths and methods that there are not."""
    assert isinstance(error, HTTPException)
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
    """The methods of all operations at this path."""
    found: set[str] = set()
    routes: list[Any] = request.app.routes
    for route in routes:
        if route.matches(request.scope)[0] is not Match.NONE:
            found |= (route.methods if isinstance(route, APIRoute) else None) or {"GET", "HEAD"}
    return sorted(found)
