"""Servers and clients of sockets for async tests, which leave no connection behind."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self, cast

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

_BACKLOG = 100


class SocketServer:
    """Calls `handle` for each connection; use as an async context manager.

    `at` is a host and a port, a socket that is bound, or the path of a unix socket.

    A connection closes when its handler returns, and is aborted when its handler fails. At the end,
    all connections are aborted, and their handlers are cancelled and awaited. A handler may fail
    because a connection broke; any other error of a handler is raised at the end.

    `asyncio.start_server` leaves connections open that no handler closes, and a handler whose task
    is cancelled before its first step closes none.
    """

    def __init__(
        self,
        handle: Handler,
        at: tuple[str, int] | socket.socket | Path = ("127.0.0.1", 0),
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.address: tuple[str, int]  # host and port, for what does not listen at a unix socket
        self._handle = handle
        self._at = at
        self._tls = tls
        self._listening: socket.socket
        self._connections: set[asyncio.Task[None]] = set()
        self._failed: list[BaseException] = []

    @property
    def url(self) -> str:
        """Where it listens, for callers over HTTP."""
        return f"http://{self.address[0]}:{self.address[1]}"

    async def __aenter__(self) -> Self:
        self._listening = _bound(self._at)
        self._listening.listen(_BACKLOG)
        self._listening.setblocking(False)
        self.address = self._listening.getsockname()[:2]
        asyncio.get_running_loop().add_reader(self._listening, self._accept)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        asyncio.get_running_loop().remove_reader(self._listening)
        self._listening.close()
        self.cut()
        if self._connections:
            await asyncio.wait(self._connections)
        if self._failed:
            raise BaseExceptionGroup("handlers of connections failed", self._failed)

    def cut(self) -> None:
        """Abort all connections, and cancel their handlers; new ones are accepted."""
        for connection in self._connections:
            connection.cancel()

    def _accept(self) -> None:
        try:
            accepted, _ = self._listening.accept()
        except (BlockingIOError, ConnectionAbortedError):  # the caller has gone
            return
        accepted.setblocking(False)
        connection = asyncio.get_running_loop().create_task(self._serve(accepted))
        self._connections.add(connection)
        # Not in the task itself: if it is cancelled before its first step, none of it runs.
        connection.add_done_callback(partial(self._ended, accepted))

    async def _serve(self, accepted: socket.socket) -> None:
        # A connection that breaks ends its handler. TimeoutError and errors of TLS are OSErrors.
        with suppress(OSError, asyncio.IncompleteReadError):
            async with _closing(await self._connect(accepted)) as (reader, writer):
                await self._handle(reader, writer)

    async def _connect(self, accepted: socket.socket) -> "_Streams":
        loop = asyncio.get_running_loop()
        streams = _Streams()
        connecting = loop.create_task(
            loop.connect_accepted_socket(lambda: streams, accepted, ssl=self._tls)
        )
        try:
            await asyncio.shield(connecting)
        except asyncio.CancelledError:
            # asyncio does not close a transport whose handshake is cancelled before it begins.
            with suppress(OSError):
                accepted.shutdown(socket.SHUT_RDWR)
            await asyncio.wait([connecting])
            if connecting.exception() is None:
                await streams.abort()
            raise
        return streams

    def _ended(self, accepted: socket.socket, connection: asyncio.Task[None]) -> None:
        accepted.close()
        self._connections.remove(connection)
        if not connection.cancelled() and (error := connection.exception()):
            self._failed.append(error)


@asynccontextmanager
async def connected(
    to: tuple[str, int] | Path, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection to a server, which is closed when the block ends, and aborted if it fails."""
    loop = asyncio.get_running_loop()
    streams = _Streams()
    if isinstance(to, Path):
        await loop.create_unix_connection(lambda: streams, str(to), ssl=tls)
    else:
        await loop.create_connection(lambda: streams, *to, ssl=tls)
    async with _closing(streams) as (reader, writer):
        yield reader, writer


class _Streams(asyncio.StreamReaderProtocol):
    """A connection's reader and writer, and when the connection is closed."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.reader = asyncio.StreamReader(loop=loop)
        super().__init__(self.reader, loop=loop)
        self.writer: asyncio.StreamWriter
        self._lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Make the writer."""
        super().connection_made(transport)
        loop = asyncio.get_running_loop()
        sending = cast(asyncio.WriteTransport, transport)  # uvloop's are none by their class
        self.writer = asyncio.StreamWriter(sending, self, self.reader, loop)

    def connection_lost(self, error: Exception | None) -> None:
        """Note that the connection is closed."""
        super().connection_lost(error)
        self._lost.set()

    async def close(self) -> None:
        """Send what is not sent yet, and close the connection."""
        if not self.writer.is_closing():  # a transport with TLS that is closed twice cannot abort
            self.writer.close()
        await self._lost.wait()

    async def abort(self) -> None:
        """Close the connection at once."""
        self.writer.transport.abort()
        await self._lost.wait()


@asynccontextmanager
async def _closing(
    streams: _Streams,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    try:
        yield streams.reader, streams.writer
        await streams.close()
    finally:
        await streams.abort()


def _bound(at: tuple[str, int] | socket.socket | Path) -> socket.socket:
    if isinstance(at, socket.socket):
        return at
    if isinstance(at, tuple):
        return socket.create_server(at)
    listening = socket.socket(socket.AF_UNIX)
    try:
        listening.bind(str(at))
    except OSError:
        listening.close()
        raise
    return listening
