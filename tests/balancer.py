"""A load balancer for tests: forwards each connection to an API that says that it is ready."""

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

import httpx

from tests.socket_server import SocketServer, connected
from tests.support import WAIT

_LOOK_EVERY = 0.1
_CHUNK = 1 << 16


class Balancer:
    """Use as a context manager; `url` is where callers connect.

    Connections stay where they are until one side closes them, as with a balancer of TCP.
    """

    def __init__(self, urls: Sequence[str]) -> None:
        self.url = ""
        self._urls = list(urls)
        self._ready: list[str] = []
        self._turn = 0
        self._started = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="balancer", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(WAIT), "an API is ready"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        async with SocketServer(self._forward) as server, asyncio.TaskGroup() as group:
            self.url = server.url
            watching = group.create_task(self._watch())
            await self._stop.wait()
            watching.cancel()

    async def _watch(self) -> None:
        async with httpx.AsyncClient(trust_env=False, timeout=WAIT) as client:
            while True:
                self._ready = [url for url in self._urls if await _is_ready(client, url)]
                if self._ready:
                    self._started.set()
                await asyncio.sleep(_LOOK_EVERY)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._turn += 1
        while not self._ready:
            await asyncio.sleep(_LOOK_EVERY)
        to = httpx.URL(self._ready[self._turn % len(self._ready)])
        assert to.port is not None
        # If that fails, the connection closes: the caller sees that a request was lost.
        async with connected((to.host, to.port)) as (reader_there, writer_there):
            await asyncio.gather(_copy(reader, writer_there), _copy(reader_there, writer))


async def _is_ready(client: httpx.AsyncClient, url: str) -> bool:
    try:
        return (await client.get(f"{url}/readyz")).status_code == 200
    except httpx.TransportError:
        return False


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(_CHUNK):
            sink.write(data)
            await sink.drain()
    sink.close()
