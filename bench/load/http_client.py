"""A minimal HTTP/1.1 client: requests and answers of known length on kept-alive connections.

A full client would take as much processor time per call as the service that is measured.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import NamedTuple, Self, cast
from urllib.parse import urlsplit

from dzflow.errors import DzflowError

CONNECT_TIMEOUT = 10.0  # seconds
ANSWER_TIMEOUT = 120.0  # seconds
IDLE = 2.0  # seconds; the service might close a connection that is idle for longer


class CallFailed(DzflowError):
    """The service closed the connection, did not answer in time, or sent an unusable answer."""


class Reply(NamedTuple):
    """The status and body of an answer."""

    status: int
    body: bytes


class _Connection(asyncio.Protocol):
    """One connection, which carries one call at a time."""

    def __init__(self) -> None:
        self.closed = False
        self._idle_since = 0.0  # by the clock of the loop
        self._transport: asyncio.Transport | None = None
        self._reply: asyncio.Future[Reply] | None = None
        self._received = bytearray()
        self._status = 0
        self._head = 0
        self._length = -1  # of head and body; -1 until the head has arrived

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._idle_since = asyncio.get_running_loop().time()
        # uvloop's transports are not instances of asyncio.Transport.
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._fail(f"the service closed the connection: {exc or 'no reason given'}")

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._length < 0:
            end = self._received.find(b"\r\n\r\n")
            if end < 0:
                return
            head = bytes(self._received[:end]).lower()
            place = head.find(b"\r\ncontent-length:")
            if place < 0:
                self._fail("the answer has no Content-Length")
                return
            self._status = int(head[9:12])
            self._head = end + 4
            self._length = self._head + int(head[place + 17 :].partition(b"\r\n")[0])
        if len(self._received) >= self._length:
            body = bytes(self._received[self._head : self._length])
            del self._received[: self._length]
            self._length = -1
            if self._reply and not self._reply.done():
                self._reply.set_result(Reply(self._status, body))

    @property
    def usable(self) -> bool:
        """Whether the connection can carry another call."""
        idle = asyncio.get_running_loop().time() - self._idle_since
        return not self.closed and idle < IDLE

    async def call(self, request: bytes) -> Reply:
        """Send a request and return its answer."""
        assert self._transport
        if self.closed:
            raise CallFailed("the connection is closed")
        self._reply = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT):
                return await self._reply
        except TimeoutError:
            self.close()  # a late answer must not become the answer of the next call
            raise CallFailed(f"no answer within {ANSWER_TIMEOUT:g} s") from None
        finally:
            self._idle_since = asyncio.get_running_loop().time()

    def close(self) -> None:
        """Close the connection. A call in progress gets no answer."""
        self.closed = True
        if self._transport:
            self._transport.close()

    def _fail(self, reason: str) -> None:
        if self._reply and not self._reply.done():
            self._reply.set_exception(CallFailed(reason))
        self.close()


class HttpClient:
    """Sends calls on a limited number of connections; further calls wait for a free one."""

    def __init__(self, url: str, connections: int) -> None:
        parts = urlsplit(url)
        self._host = parts.hostname or "127.0.0.1"
        self._port = parts.port or 80
        self._free: asyncio.LifoQueue[_Connection | None] = asyncio.LifoQueue()
        for _ in range(connections):
            self._free.put_nowait(None)
        self._all: list[_Connection] = []
        self._tail = f" HTTP/1.1\r\nHost: {self._host}\r\nContent-Type: application/json\r\n"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for connection in self._all:
            connection.close()

    async def call(self, method: str, path: str, body: bytes = b"", key: str = "") -> Reply:
        """Send a request and return its answer, whatever its status.

        The service executes a call only once, however often it is sent under its idempotency key.
        """
        key_header = f"Idempotency-Key: {key}\r\n" if key else ""
        length = f"Content-Length: {len(body)}\r\n\r\n"
        head = f"{method} {path}{self._tail}{key_header}{length}".encode()
        async with self._connection() as connection:
            return await connection.call(head + body)

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[_Connection]:
        connection = await self._free.get()
        try:
            if connection is None or not connection.usable:
                if connection is not None:
                    connection.close()
                loop = asyncio.get_running_loop()
                async with asyncio.timeout(CONNECT_TIMEOUT):
                    _, connection = await loop.create_connection(
                        _Connection, self._host, self._port
                    )
                self._all.append(connection)
            yield connection
        finally:
            self._free.put_nowait(connection)
