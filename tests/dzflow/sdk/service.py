"""A small control plane for the SDK's tests: the REST interface before one engine per space.

The engine is the real one, and so are HTTP, sockets and the emulated switches; there is no store.
"""

import asyncio
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import cache
from types import TracebackType
from typing import Any, Self

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Send
from starlette.types import Scope as HttpScope

from configurators.engine.engine import Engine
from configurators.engine.partials import Kind, Partial
from dzflow.address import PREFIX, Scope
from dzflow.errors import BadInput, LossWarning
from dzflow.filters import parse_filter
from dzflow.index import Index, build_index
from dzflow.space import Space
from sdn.emulator import EmulatedNetwork
from sdn.flows import Batch, Change, FlowOp, GroupOp
from sdn.pipeline import Pipeline
from sdn.plans import make_plan
from sdn.routes import Routes
from sdn.topologies import topology
from sdn.trees import spanning_trees

LIMIT = 30.0
STOCKS = {
    "attributes": [
        {"name": "price", "type": "float", "min": 0, "max": 1000},
        {"name": "volume", "type": "int", "min": 0, "max": 1000},
    ]
}


class Version:
    """A space under one version of its index."""

    def __init__(self, service: "Service", name: str, number: int, version: int, schema: Any):
        self.space = Space.from_json(name, schema)
        self.index = _index(self.space, version)
        scope = Scope(number, version)
        self.engine = Engine(make_plan(service.routes, service.pipeline, scope))

    def partial(self, record: dict[str, Any], kind: Kind, source: Any) -> Partial:
        regions = self.index.regions(parse_filter(self.space, source))
        edge = regions if record["kind"] == "advertisement" else ()
        return Partial(kind, record["id"], record["host"], regions, edge)


class Service:
    """The control plane; a context manager. Its state is touched by its own thread only."""

    def __init__(self, network: str = "line:3", trees: int = 1, spaces: bool = True) -> None:
        self.topology = topology(network)
        self.pipeline = Pipeline().extended(self.topology)
        self.trees = dict(enumerate(spanning_trees(self.topology, trees)))
        self.routes = Routes(self.topology, self.trees)
        self.network: EmulatedNetwork
        self.usable = sorted(self.trees)
        self.spaces: dict[str, dict[str, Any]] = {}
        self.versions: dict[str, dict[int, Version]] = {}
        self.records: dict[str, dict[str, Any]] = {}
        self.keys: dict[str, tuple[int, Any]] = {}
        self.calls: list[tuple[str, str, str | None]] = []  # method, path, idempotency key
        self.bodies: list[tuple[str, Any]] = []
        self.reports: list[Any] = []
        self.faults: list[Callable[[str, str], str | None]] = []
        self.slow = 0  # how many begins are answered with 202 from now on
        self.refuse_records = ""
        self.refuse_streams = False
        self.connected = threading.Event()  # set when somebody follows the stream
        self._streams: set[asyncio.Queue[bytes | None]] = set()
        self._thread = threading.Thread(target=self._run, name="service")
        self._started = threading.Event()
        self._with_space = spaces

    # For tests

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(LIMIT)
        if self._with_space:
            self.do(lambda: self.put_space("stocks", STOCKS))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.do(self.cut_streams)
        self._server.should_exit = True
        self._thread.join(LIMIT)
        assert not self._thread.is_alive()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def do(self, work: Callable[[], Any]) -> Any:
        """Do something in the service's thread."""

        async def task() -> Any:
            return work()

        return self.run(task())

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine in the service's thread."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(LIMIT)

    def wire(self, host: str) -> str | None:
        address, port = self.network.endpoints()[host]
        return f"{address}:{port}"

    def count(self, method: str, path: str) -> int:
        return sum(1 for call in list(self.calls) if call[:2] == (method, path))

    def entries(self) -> int:
        """How many entries beyond the base the switches have."""

        def count() -> int:
            engines = [v.engine for versions in self.versions.values() for v in versions.values()]
            return sum(len(found) for engine in engines for found in engine.entries().values())

        return int(self.do(count))

    # Spaces

    def put_space(self, name: str, schema: Any) -> None:
        """Make a space, or a new version of it: installed beside the old one, then announced."""
        known = self.spaces.get(name)
        number = known["number"] if known else len(self.spaces) + 1
        version = (known["version"] + 1) % 4 if known else 0
        made = Version(self, name, number, version, schema)
        for record in self.records.values():
            if record["space"] == name:
                kind = Kind.SUBSCRIBE if record["kind"] == "subscription" else Kind.ADVERTISE
                self._decide(made, made.partial(record, kind, record["filter"]))
        self.versions.setdefault(name, {})[version] = made
        self.spaces[name] = {
            "name": name,
            "number": number,
            "version": version,
            "prefix": PREFIX,
            "trees": self.usable,
            **made.space.to_json(),
        }
        self.tell("space", self.spaces[name])

    def drop_version(self, name: str, version: int) -> None:
        dropped = self.versions[name].pop(version)
        for partial in dropped.engine.active():
            kind = Kind.UNADVERTISE if partial.kind is Kind.ADVERTISE else Kind.UNSUBSCRIBE
            self._decide(dropped, Partial(kind, partial.id, partial.host, (), ()))

    def use_trees(self, name: str, numbers: list[int]) -> None:
        self.spaces[name] = {**self.spaces[name], "trees": numbers}
        self.tell("space", self.spaces[name])

    # The stream

    def tell(self, kind: str, data: Any) -> None:
        said = b"event: %b\ndata: %b\n\n" % (kind.encode(), msgspec.json.encode(data))
        for queue in self._streams:
            queue.put_nowait(said)

    def cut_streams(self) -> None:
        for queue in self._streams:
            queue.put_nowait(None)

    # Records

    def begin(self, body: Any, kind: str) -> tuple[int, Any]:
        letter, request = ("s", Kind.SUBSCRIBE) if kind == "subscription" else ("a", Kind.ADVERTISE)
        if body["space"] not in self.spaces:
            return 404, {"title": "Not found", "detail": f"there is no space {body['space']}"}
        number = self.spaces[body["space"]]["number"]
        record = {
            "id": f"{letter}{number:x}-{len(self.bodies):016x}",
            "kind": kind,
            "state": "active",
            "host": body["host"],
            "space": body["space"],
            "filter": body["filter"],
            "label": body.get("label"),
            "ttl": body.get("ttl"),
            "renewed": 0,
            "reason": None,
            "updating": False,
        }
        if self.refuse_records:
            return 502, {"title": "Failed", "status": 502, "detail": self.refuse_records}
        for version in self.versions[body["space"]].values():
            self._decide(version, version.partial(record, request, body["filter"]))
        self.records[record["id"]] = record
        if self.slow:
            self.slow -= 1
            return 202, {**record, "state": "pending"}
        return 201, record

    def end(self, body: Any, kind: str) -> tuple[int, Any]:
        record = self.records.get(body["id"])
        if record is None:
            return 404, {"title": "Not found", "detail": f"there is no {body['id']}"}
        request = Kind.UNSUBSCRIBE if kind == "subscription" else Kind.UNADVERTISE
        for version in self.versions[record["space"]].values():
            self._decide(version, Partial(request, record["id"], record["host"], (), ()))
        del self.records[record["id"]]
        return 200, {**record, "state": "removed"}

    def update(self, name: str, source: Any) -> tuple[int, Any]:
        record = self.records[name]
        for version in self.versions[record["space"]].values():
            self._decide(version, version.partial(record, Kind.UPDATE, source))
        record["filter"] = source
        return 200, record

    def forget(self, name: str) -> None:
        """End a record as if its time were over."""
        self.end({"id": name}, self.records[name]["kind"])

    def _decide(self, version: Version, partial: Partial) -> None:
        decision = version.engine.decide([partial])
        for batch in decision.rounds:
            self._apply(batch)
        version.engine.commit(decision)

    def _apply(self, batch: Batch) -> None:
        for name, ops in batch.items():
            for op in ops:
                self.network.switches[name].change(op)

    # HTTP

    async def _answer(self, request: HttpRequest) -> Response:
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
        if key is not None and key in self.keys:
            status, answer = self.keys[key]
        else:
            try:
                status, answer = self._carry_out(method, path, body, request)
            except BadInput as error:
                status, answer = 422, {"title": "Invalid", "status": 422, "detail": str(error)}
            if key is not None:
                self.keys[key] = status, answer
        if fault == "lost":
            return _Broken()
        return _json(status, answer, {})

    def _carry_out(
        self, method: str, path: str, body: Any, request: HttpRequest
    ) -> tuple[int, Any]:
        words = path.strip("/").split("/")
        match method, *words:
            case "GET", "hosts":
                hosts = [
                    {
                        "id": host.id,
                        "switch": host.switch,
                        "port": host.port,
                        "wire": self.wire(host.id),
                    }
                    for host in self.topology.hosts
                ]
                return 200, {"items": hosts, "next": None}
            case "GET", "spaces":
                return 200, {"items": list(self.spaces.values()), "next": None}
            case "GET", "spaces", name:
                if name not in self.spaces:
                    return 404, {"title": "Not found", "detail": f"there is no space {name}"}
                return 200, self.spaces[name]
            case "PUT", "spaces", name:
                self.put_space(name, body)
                return 200, self.spaces[name]
            case "POST", ("subscribe" | "advertise") as verb:
                return self.begin(body, _KIND[verb])
            case "POST", ("unsubscribe" | "unadvertise") as verb:
                kind = _KIND[verb.removeprefix("un")]
                if isinstance(body, list):
                    both = [self.end(item, kind) for item in body]
                    return 207, [{**answer, "status": status} for status, answer in both]
                return self.end(body, kind)
            case "GET", ("subscriptions" | "advertisements") as plural:
                wanted = {**request.query_params}
                found = [
                    record
                    for record in self.records.values()
                    if record["kind"] + "s" == plural
                    and all(record[n] == wanted.get(n, record[n]) for n in ("host", "space"))
                ]
                return 200, {"items": found, "next": None}
            case "PUT", ("subscriptions" | "advertisements"), name:
                return self.update(name, body["filter"])
            case "POST", ("subscriptions" | "advertisements"), name, "renew":
                if name not in self.records:
                    return 404, {"title": "Not found", "detail": f"there is no {name}"}
                self.records[name]["renewed"] += 1
                return 200, self.records[name]
            case "GET", "requests", name:
                return 200, self.records[name]
            case "POST", "reports":
                self.reports.append(body)
                return 202, {"events": len(body["events"])}
            case "POST", "explain":
                return 200, {"regions": [], "cells": [], "false_share": 0.0, "flows": []}
        return 404, {"title": "Not found", "detail": path}

    async def _stream(self, _: HttpRequest) -> Response:
        self.calls.append(("GET", "/stream", None))
        if self.refuse_streams:
            return _json(503, {"title": "Too many", "detail": "no stream is left"}, {})
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._streams.add(queue)

        async def changes() -> AsyncIterator[bytes]:
            try:
                yield b": hello\n\n"
                self.connected.set()
                while (said := await queue.get()) is not None:
                    yield said
            finally:
                self._streams.discard(queue)

        return StreamingResponse(changes(), media_type="text/event-stream")

    # Life

    def _run(self) -> None:
        @asynccontextmanager
        async def life(_: Starlette) -> AsyncIterator[None]:
            async with EmulatedNetwork(self.topology) as self.network:
                self._give_base()
                yield

        routes = [
            Route("/stream", self._stream),
            Route("/{path:path}", self._answer, methods=["GET", "POST", "PUT", "DELETE"]),
        ]
        app = Starlette(routes=routes, lifespan=life)
        config = uvicorn.Config(app, "127.0.0.1", 0, log_config=None, ws="none", loop="asyncio")
        self._server = uvicorn.Server(config)
        self._server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        serving = asyncio.ensure_future(self._server.serve())
        while not self._server.started:
            assert not serving.done()
            await asyncio.sleep(0.005)
        self.port = self._server.servers[0].sockets[0].getsockname()[1]
        self._started.set()
        await serving

    def _give_base(self) -> None:
        for name, switch in self.network.switches.items():
            for group in self.pipeline.base_groups(self.topology, name):
                switch.change_group(GroupOp(Change.ADD, group))
            for entry in self.pipeline.base_entries(self.topology, name):
                switch.change(FlowOp(Change.ADD, entry))


@cache
def _index(space: Space, version: int) -> Index:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LossWarning)
        return build_index(space, version)


_KIND = {"subscribe": "subscription", "advertise": "advertisement"}


class _Broken(Response):
    """An answer that breaks off after its head."""

    async def __call__(self, scope: HttpScope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        head = [(b"content-length", b"100")]
        await send({"type": "http.response.start", "status": 200, "headers": head})


def _json(status: int, content: Any, headers: dict[str, str]) -> Response:
    kind = "application/problem+json" if status >= 400 else "application/json"
    return Response(msgspec.json.encode(content), status, headers, kind)
