"""A TCP proxy that cuts connections, or holds back or delays what is sent."""

import asyncio
import contextlib
from pathlib import Path
from types import TracebackType
from typing import Self

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
        self._pairs: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()[:2]
        return host, port

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        await asyncio.gather(*self._pairs, return_exceptions=True)

    def cut(self) -> None:
        """Reset all connections, and each new one at once."""
        self._refusing = True
        for pair in self._pairs:
            pair.cancel()

    def hold(self) -> None:
        """Forward nothing, but keep connections open, like a cable that was pulled."""
        self._going.clear()

    def heal(self) -> None:
        """Forward everything again."""
        self._refusing, self.delay = False, 0.0
        self._going.set()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._pairs.add(task)
        task.add_done_callback(self._pairs.discard)
        far: asyncio.StreamWriter | None = None
        # When one side ends, the other side ends, too; no caller needs the error.
        with contextlib.suppress(OSError, asyncio.CancelledError, ExceptionGroup):
            try:
                if not self._refusing:
                    far_reader, far = await self._connect()
                    async with asyncio.TaskGroup() as group:
                        group.create_task(self._pass(reader, far))
                        group.create_task(self._pass(far_reader, writer))
            finally:
                for each in (writer, far):
                    if each is not None:
                        each.transport.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if isinstance(self._to, Path):
            return await asyncio.open_unix_connection(self._to)
        return await asyncio.open_connection(*self._to)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(1_000)

        async def write() -> None:
            while True:
                due, data = await waiting.get()
                await asyncio.sleep(max(0.0, due - loop.time()))
                await self._going.wait()
                if not data:
                    raise ConnectionResetError  # one side has ended, so the other does, too
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
