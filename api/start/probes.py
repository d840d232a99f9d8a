"""Answers `/healthz` and `/readyz` for a process that has no API, so that it can be probed.

It runs on the event loop of the process: one that hangs does not answer.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from api.start.listening import bind
from api.start.settings.sections.processes import ProbeSettings
from dzflow.aio import BackgroundTasks

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 32
_MAX_HEAD = 8 * 1024  # bytes
_SECONDS = 5.0  # for a request and its answer


@asynccontextmanager
async def answer_probes(settings: ProbeSettings, ready: Callable[[], bool]) -> AsyncIterator[None]:
    """Answer probes while the context lasts, if the settings name a port.

    PortTaken if the address cannot be used.
    """
    if settings.port is None:
        yield
        return
    probes = _Probes(ready)
    (socket,) = bind(settings.host, settings.port, 1, "probes.port")
    server = await asyncio.start_server(probes.accept, sock=socket, limit=_MAX_HEAD)
    try:
        yield
    finally:
        server.close()
        await probes.close()
        await server.wait_closed()


class _Probes:
    def __init__(self, ready: Callable[[], bool]) -> None:
        self._ready = ready
        self._open = 0
        self._tasks = BackgroundTasks()
        self._closed = False

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request, and close the connection."""
        if self._closed:
            writer.close()
            return
        task = self._tasks.spawn(self._serve(reader, writer), "answer to a probe")
        # Not in the task itself: if it is cancelled before its first step, none of it runs.
        task.add_done_callback(lambda _: writer.close())

    async def close(self) -> None:
        """Close all connections."""
        self._closed = True
        await self._tasks.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= MAX_CONNECTIONS:
                async with asyncio.timeout(_SECONDS):
                    await self._answer(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as e:
            log.debug("a probe was not answered: %s", e)
        finally:
            self._open -= 1
            writer.close()
            with suppress(OSError):  # the client has gone
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        status, text = self._judge(head.split(b"\r\n", 1)[0].split(b" "))
        writer.write(
            f"HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: {len(text) + 1}\r\n"
            f"connection: close\r\n\r\n{text}\n".encode()
        )
        await writer.drain()

    def _judge(self, request: list[bytes]) -> tuple[str, str]:
        """The status line and the text for a request line."""
        if len(request) != 3 or request[0] != b"GET":
            return "405 Method Not Allowed", "only GET is answered here"
        match request[1].partition(b"?")[0]:
            case b"/healthz":
                return "200 OK", "alive"
            case b"/readyz" if self._ready():
                return "200 OK", "ready"
            case b"/readyz":
                return "503 Service Unavailable", "not ready"
        return "404 Not Found", "there are /healthz and /readyz"
