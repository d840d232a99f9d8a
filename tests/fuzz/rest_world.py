"""A REST service in memory: the real application, dispatcher, configurator and southbound process.

They run on the virtual clock of the simulation, with its models of etcd, streams and switches.
Bytes go into the HTTP protocol class of the service as if they came from a socket.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AsyncExitStack, contextmanager, nullcontext
from typing import Any, TypeVar, cast

import uvicorn
from msgspec import Struct
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from api.http.app import make_app
from api.http.app_settings import ApiSettings, Token
from api.http.border.http_protocol import Protocol
from api.http.context import Backend
from dzflow.process.connections import ConnectionLimits, ConnectionTable
from monitor.monitor import Monitor
from tests.fuzz.target import Broken
from tests.fuzz.transport import FakeTransport
from tests.simulation.loop import VirtualLoop
from tests.simulation.world import LoggedErrors, Shape, World

T = TypeVar("T")

TOKENS = (Token("op-secret", "operator"), Token("h1-secret", "host", "h1"))
_SETTINGS = ApiSettings(
    max_body=64 * 1024,
    max_backup=256 * 1024,
    max_batch=40,
    default_wait=1.0,
    max_wait=2.0,
    keep_alive=0.5,
)
_READY = 30.0  # virtual seconds for the start
_ANSWER = 5.0  # virtual seconds that an input waits for its answers
_END = 600.0  # virtual seconds after which no request may be in progress
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) [^\r\n]*\r\n((?:[^\r\n]+\r\n)*)\r\n")
_ALLOWED = 503  # the only status from 500 on that an input may lead to
_LEFT = 500  # finished tasks that the loop keeps


class Exchange(Struct, frozen=True):
    """What came back for some bytes: the statuses of all answers, and everything that was sent."""

    statuses: tuple[int, ...]
    written: bytes


class _InPlace(ThreadPoolExecutor):
    """Carries out work for threads at once: no thread can wake a loop on a virtual clock."""

    def submit(self, work: Callable[..., Any], /, *args: Any, **more: Any) -> "Future[Any]":
        done: Future[Any] = Future()
        try:
            done.set_result(work(*args, **more))
        except Exception as error:
            done.set_exception(error)
        return done


class RestWorld:
    """One service; use `opened`."""

    def __init__(self, loop: VirtualLoop, world: World, errors: LoggedErrors) -> None:
        self.world = world
        self._loop = loop
        self._errors = errors
        self._stack = AsyncExitStack()
        self._state = ServerState()
        self._config: uvicorn.Config
        self._settings = _SETTINGS
        self._table: ConnectionTable[Protocol] = ConnectionTable(ConnectionLimits(16, 16, 4))
        (self._dispatcher,) = world.of("dispatcher")

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something in the process of the dispatcher."""
        context = self._dispatcher.node.context.copy()
        return self._loop.run_until_complete(self._loop.create_task(work, context=context))

    async def start(self) -> None:
        """Start all processes, and wait until they are ready."""
        self.world.start()
        while self.world.busy():
            await asyncio.sleep(0.05)
            if self._loop.now > 1000.0 + _READY:
                raise Broken(f"the service does not start: {self.world.busy()}")

    async def serve(self, tokens: Sequence[Token]) -> None:
        """Start the application."""
        dispatcher = self._dispatcher.main
        self._settings = _with(tokens)
        monitor = Monitor(dispatcher, self.world.environment)
        await self._stack.enter_async_context(monitor)
        app = make_app(self._settings, lambda: nullcontext(Backend(dispatcher, monitor)))
        await self._stack.enter_async_context(app.router.lifespan_context(app))
        context = self._dispatcher.node.context

        async def in_process(scope: Scope, receive: Receive, send: Send) -> None:
            # uvicorn begins each request in an empty context, which belongs to no process.
            serving = self._loop.create_task(app(scope, receive, send), context=context.copy())
            await serving

        self._config = uvicorn.Config(
            in_process, ws="none", lifespan="off", log_config=None, access_log=False
        )
        self._config.load()

    async def stop(self) -> None:
        """End the application."""
        await self._stack.aclose()

    def send(self, *parts: bytes) -> Exchange:
        """Send bytes on a new connection, in these parts; Broken if something went wrong."""
        self._loop.steps = 0
        if len(self._loop.made) > _LEFT:
            self._loop.made[:] = [task for task in self._loop.made if not task.done()]
        found = self.run(self._exchange(parts))
        if self._errors.found:
            text = "; ".join(self._errors.found)
            self._errors.found.clear()
            raise Broken(f"an error was logged: {text[:1_000]}")
        return found

    async def _exchange(self, parts: Sequence[bytes]) -> Exchange:
        state = self._state
        protocol = Protocol(self._config, state, {}, self._settings, self._table)
        self._table.admit(protocol, "127.0.0.1")
        transport = FakeTransport(protocol)
        protocol.connection_made(cast(asyncio.Transport, transport))
        for part in parts:
            if not transport.is_closing():
                protocol.data_received(part)
                await asyncio.sleep(0)
        until = self._loop.now + _ANSWER
        while state.tasks and self._loop.now < until:
            await asyncio.sleep(0.01)
        written = transport.take()
        if not transport.is_closing():
            protocol.eof_received()
            transport.close()
        await self._end(transport)
        return Exchange(_statuses(written), written)

    async def _end(self, transport: FakeTransport) -> None:
        until = self._loop.now + _END
        pause = 0.01
        while self._state.tasks or not transport.lost:
            await asyncio.sleep(pause)
            pause *= 1.5
            if self._loop.now > until:
                raise Broken("a request goes on for ever after its connection was lost")


def _with(tokens: Sequence[Token]) -> ApiSettings:
    return ApiSettings(
        **{
            name: getattr(_SETTINGS, name)
            for name in _SETTINGS.__struct_fields__
            if name != "tokens"
        },
        tokens=tuple(tokens),
    )


def _statuses(written: bytes) -> tuple[int, ...]:
    """The statuses of all answers; Broken if one is an internal error or not a problem."""
    found = []
    for match in _STATUS.finditer(written):
        status = int(match[1])
        found.append(status)
        if status >= 500 and status != _ALLOWED:
            raise Broken(f"status {status}: {written[match.start() : match.end() + 500]!r}")
        if status >= 400 and b"content-type: application/problem+json" not in match[2].lower():
            raise Broken(f"status {status} without a problem: {match[0]!r}")
    if written and not written.startswith(b"HTTP/1.1 "):
        raise Broken(f"this is not an answer: {written[:200]!r}")
    return tuple(found)


@contextmanager
def opened(tokens: Sequence[Token] = ()) -> Iterator[RestWorld]:
    """A service that is ready, with the space `box` and no records."""
    loop = VirtualLoop(1)
    loop.set_default_executor(_InPlace())
    errors = LoggedErrors()
    root = logging.getLogger()
    root.addHandler(errors)
    asyncio.set_event_loop(loop)

    def note(_: object, context: dict[str, Any]) -> None:
        errors.found.append(f"{context.get('message')}: {context.get('exception')!r}")

    loop.set_exception_handler(note)
    try:
        world = World(loop, Shape(configurators=1, dispatchers=1), errors)
        service = RestWorld(loop, world, errors)
        loop.run_until_complete(service.start())
        service.run(service.serve(tokens))
        try:
            yield service
        finally:
            loop.steps = 0
            service.run(service.stop())
    finally:
        root.removeHandler(errors)
        loop.finish()
        asyncio.set_event_loop(None)
