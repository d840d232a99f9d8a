"""A TCP proxy that cuts connections, or holds back or delays what is sent."""

import asyncio
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.socket_server import SocketServer, connected

_CHUNK = 1 << 16


class Proxy:
    """Listens at its own port and forwards everything to `to`; an async context manager.

    `to` is a host and a port, or the path of a unix socket.
    """

    def __init__(self, to: tuple[str, int] | Path) -> None:
        self.delay = 0.0  # seconds by which everything is delayed, in each direction
        self.received = 0  # bytes so far, in both directions
        self._to = to
        self._refusing = False
        self._going = asyncio.Event()
        self._going.set()
        self._server = SocketServer(self._forward)

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        return self._server.address

    async def __aenter__(self) -> Self:
        await self._server.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._server.__aexit__(kind, error, trace)

    def cut(self) -> None:
        """Reset all connections, and each new one at once."""
        self._refusing = True
        self._server.cut()

    def hold(self) -> None:
        """Forward nothing, but keep connections open, like a cable that was pulled."""
        self._going.clear()

    def heal(self) -> None:
        """Forward everything again."""
        self._refusing, self.delay = False, 0.0
        self._going.set()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._refusing:
            try:
                async with connected(self._to) as (far_reader, far), asyncio.TaskGroup() as group:
                    group.create_task(self._pass(reader, far))
                    group.create_task(self._pass(far_reader, writer))
            except* OSError:
                pass  # one side has ended, so the other does, too
        writer.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(1_000)

        async def write() -> None:
            while True:
                due, data = await waiting.get()
                await asyncio.sleep(max(0.0, due - loop.time()))
                await self._going.wait()
                if not data:
                    raise ConnectionResetError
                writer.write(data)
                await writer.drain()

        async with asyncio.TaskGroup() as group:
            group.create_task(write())
            while True:
                data = await reader.read(_CHUNK)
                await waiting.put((loop.time() + self.delay, data))
                self.received += len(data)
                if not data:
                    return
