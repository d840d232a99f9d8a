"""The REST interface before a `FakeControlPlane`, with faults, in a thread of its own.

Engine, HTTP, sockets and emulated switches are the real ones.
"""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from dzflow.errors import BadInput
from sdn.emulator import EmulatedNetwork
from sdn.network.topology import Topology
from sdn.tables.flows import Batch, Change, FlowOp, GroupOp
from sdn.tables.pipeline import Pipeline
from tests.dzflow.sdk.fake_control_plane import Answer, DataPlane, FakeControlPlane, not_found
from tests.support import WAIT

STOCKS = {
    "attributes": [
        {"name": "price", "type": "float", "min": 0, "max": 1000},
        {"name": "volume", "type": "int", "min": 0, "max": 1000},
    ]
}

_KIND = {"subscribe": "subscription", "advertise": "advertisement"}
Fault = Callable[[str, str], str | None]
"""Takes method and path; "busy", "lost", "odd", or None for no fault."""


class EmulatedPlane:
    """Emulated switches and hosts."""

    def __init__(self) -> None:
        self.network: EmulatedNetwork

    async def open(self, network: Topology, pipeline: Pipeline) -> None:
        self.network = EmulatedNetwork(network)
        await self.network.__aenter__()
        for name, switch in self.network.switches.items():
            for group in pipeline.base_groups(network, name):
                switch.change_group(GroupOp(Change.ADD, group))
            for entry in pipeline.base_entries(network, name):
                switch.change(FlowOp(Change.ADD, entry))

    async def close(self) -> None:
        await self.network.__aexit__(None, None, None)

    def apply(self, batch: Batch) -> None:
        for name, ops in batch.items():
            for op in ops:
                self.network.switches[name].change(op)

    def endpoint(self, host: str) -> str | None:
        address, port = self.network.endpoints()[host]
        return f"{address}:{port}"


class FakeService:
    """A context manager. Only its own thread touches its state: see `call` and `run`."""

    def __init__(
        self, network: str = "line:3", trees: int = 1, plane: DataPlane | None = None
    ) -> None:
        self.emulated = EmulatedPlane()
        self.control = FakeControlPlane(network, trees, plane or self.emulated)
        self.calls: list[tuple[str, str, str | None]] = []  # method, path, idempotency key
        self.bodies: list[tuple[str, Any]] = []
        self.reports: list[Any] = []
        self.faults: list[Fault] = []
        self.refuse_streams = False
        self.mute_streams = False
        self.connected = threading.Event()  # set when a client follows the stream
        self._answers: dict[str, Answer] = {}  # by idempotency key
        self._streams: set[asyncio.Queue[bytes | None]] = set()
        self._thread = threading.Thread(target=self._serve, name="service")
        self._started = threading.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(WAIT)
        self.put_space("stocks", STOCKS)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.cut_streams()
        self._server.should_exit = True
        self._thread.join(WAIT)
        assert not self._thread.is_alive()

    # For tests, from any thread

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def records(self) -> dict[str, dict[str, Any]]:
        return dict(self.control.records)

    def call(self, work: Callable[[], Any]) -> Any:
        """Call a function in the service's thread."""

        async def task() -> Any:
            return work()

        return self.run(task())

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine in the service's thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT)

    def count(self, method: str, path: str) -> int:
        """How often a path was called."""
        return sum(1 for call in list(self.calls) if call[:2] == (method, path))

    def put_space(self, name: str, schema: Any) -> None:
        self.call(lambda: self._announce(self.control.put_space(name, schema)))

    def set_trees(self, name: str, numbers: list[int]) -> None:
        self.call(lambda: self._announce(self.control.set_trees(name, numbers)))

    def drop_version(self, name: str, version: int) -> None:
        self.call(lambda: self.control.drop_version(name, version))

    def expire(self, record: str) -> None:
        """End a record as if its ttl were over."""
        self.call(lambda: self.control.end(record))

    def cut_streams(self) -> None:
        def cut() -> None:
            for queue in self._streams:
                queue.put_nowait(None)

        self.call(cut)

    def addresses_sent_by(self, host: str) -> list[int]:
        """A list that grows with the addresses to which a host publishes from now on."""
        seen: list[int] = []
        emulated = self.emulated.network.hosts[host]
        publish = emulated.publish

        def noted(destination: int, payload: bytes) -> None:
            seen.append(destination)
            publish(destination, payload)

        self.call(lambda: setattr(emulated, "publish", noted))
        return seen

    # In the service's thread

    def _announce(self, space: Any) -> None:
        if self.mute_streams:
            return
        text = b"event: space\ndata: %b\n\n" % msgspec.json.encode(space)
        for queue in self._streams:
            queue.put_nowait(text)

    async def _answer(self, request: Request) -> Response:
        path, method = request.url.path, request.method
        key = request.headers.get("idempotency-key")
        raw = await request.body()
        body = msgspec.json.decode(raw) if raw else None
        self.calls.append((method, path, key))
        self.bodies.append((path, body))
        fault = next((found for each in self.faults if (found := each(method, path))), None)
        if fault == "busy":
            problem = {"title": "Too many", "status": 429, "detail": "wait a little"}
            return _json(429, problem, {"Retry-After": "0"})
        if fault == "odd":
            return _json(200, [], {})
        if key is None:
            answer = self._carry_out(request, body)
        else:
            if key not in self._answers:
                self._answers[key] = self._carry_out(request, body)
            answer = self._answers[key]
        return _Broken() if fault == "lost" else _json(*answer, {})

    def _carry_out(self, request: Request, body: Any) -> Answer:
        try:
            return self._route(request.method, request.url.path, body, {**request.query_params})
        except BadInput as error:
            return 422, {"title": "Invalid", "status": 422, "detail": str(error)}

    def _route(self, method: str, path: str, body: Any, query: dict[str, str]) -> Answer:
        control = self.control
        match method, *path.strip("/").split("/"):
            case "GET", "hosts":
                hosts = [
                    {
                        "id": host.id,
                        "switch": host.switch,
                        "port": host.port,
                        "wire": control.plane.endpoint(host.id),
                    }
                    for host in control.topology.hosts
                ]
                return 200, {"items": hosts, "next": None}
            case "GET", "spaces":
                return 200, {"items": list(control.spaces.values()), "next": None}
            case "GET", "spaces", name:
                found = control.spaces.get(name)
                return (200, found) if found else not_found(f"there is no space {name}")
            case "PUT", "spaces", name:
                made = control.put_space(name, body)
                self._announce(made)
                return 200, made
            case "POST", ("subscribe" | "advertise") as verb:
                return control.begin(body, _KIND[verb])
            case "POST", ("unsubscribe" | "unadvertise"):
                if isinstance(body, list):
                    answers = [control.end(item["id"]) for item in body]
                    return 207, [{**answer, "status": status} for status, answer in answers]
                return control.end(body["id"])
            case "GET", ("subscriptions" | "advertisements") as plural:
                return 200, {"items": control.select(plural[:-1], query), "next": None}
            case "PUT", ("subscriptions" | "advertisements"), name:
                return control.update(name, body["filter"])
            case "POST", ("subscriptions" | "advertisements"), name, "renew":
                return control.renew(name)
            case "GET", "requests", name:
                return 200, control.records[name]
            case "POST", "reports":
                self.reports.append(body)
                return 202, {"events": len(body["events"])}
            case "POST", "explain":
                return 200, {"regions": [], "cells": [], "false_share": 0.0, "flows": []}
        return not_found(path)

    async def _stream(self, _: Request) -> Response:
        self.calls.append(("GET", "/stream", None))
        if self.refuse_streams:
            return _json(503, {"title": "Too many", "detail": "no stream is left"}, {})
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._streams.add(queue)

        async def changes() -> AsyncIterator[bytes]:
            try:
                yield b": hello\n\n"
                self.connected.set()
                while (text := await queue.get()) is not None:
                    yield text
            finally:
                self._streams.discard(queue)

        return StreamingResponse(changes(), media_type="text/event-stream")

    # The thread

    def _serve(self) -> None:
        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            await self.control.plane.open(self.control.topology, self.control.pipeline)
            try:
                yield
            finally:
                await self.control.plane.close()

        routes = [
            Route("/stream", self._stream),
            Route("/{path:path}", self._answer, methods=["GET", "POST", "PUT", "DELETE"]),
        ]
        app = Starlette(routes=routes, lifespan=lifespan)
        config = uvicorn.Config(app, "127.0.0.1", 0, log_config=None, ws="none", loop="asyncio")
        self._server = _Server(config, self._listens)
        self._server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        asyncio.run(self._server.serve())

    def _listens(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.port = self._server.servers[0].sockets[0].getsockname()[1]
        self._started.set()


class _Server(uvicorn.Server):
    """A server that says when it listens."""

    def __init__(self, config: uvicorn.Config, listens: Callable[[], None]) -> None:
        super().__init__(config)
        self._listens = listens

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._listens()


class _Broken(Response):
    """An answer that breaks off after its head."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        head = [(b"content-length", b"100")]
        await send({"type": "http.response.start", "status": 200, "headers": head})


def _json(status: int, content: Any, headers: dict[str, str]) -> Response:
    kind = "application/problem+json" if status >= 400 else "application/json"
    return Response(msgspec.json.encode(content), status, headers, kind)
