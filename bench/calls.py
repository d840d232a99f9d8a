"""A bare HTTP/1.1 client: little but requests and answers of known length, kept-alive connections.

A full client costs as much processor time per call as the service that is measured beside it.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import NamedTuple, Self, cast
from urllib.parse import urlsplit

from dzflow.errors import DzflowError

CONNECT = 10.0  # seconds for a connection
ANSWER = 120.0  # seconds for an answer
IDLE = 2.0  # seconds; a connection that rests longer might be closed just when it is used again


class CallFailed(DzflowError):
    """The service has closed the connection, or answers in a way that is not understood here."""


class Reply(NamedTuple):
    """An answer."""

    status: int
    body: bytes


class _Connection(asyncio.Protocol):
    """One connection; it carries one call at a time."""

    def __init__(self) -> None:
        self.closed = False
        self._rests_since = 0.0  # by the clock of the loop
        self._transport: asyncio.Transport | None = None
        self._reply: asyncio.Future[Reply] | None = None
        self._received = bytearray()
        self._status = 0
        self._head = 0
        self._length = -1  # of the answer with its head; not known before the head is here

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._rests_since = asyncio.get_running_loop().time()
        # uvloop's are not instances of it by name.
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._fail(f"the service has closed the connection: {exc or 'without a reason'}")

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._length < 0:
            end = self._received.find(b"\r\n\r\n")
            if end < 0:
                return
            head = bytes(self._received[:end]).lower()
            place = head.find(b"\r\ncontent-length:")
            if place < 0:
                self._fail("an answer without Content-Length")
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
        """Whether a call may be sent."""
        rests = asyncio.get_running_loop().time() - self._rests_since
        return not self.closed and rests < IDLE

    async def call(self, request: bytes) -> Reply:
        """Send a request and wait for its answer."""
        assert self._transport
        if self.closed:
            raise CallFailed("the connection is closed")
        self._reply = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            async with asyncio.timeout(ANSWER):
                return await self._reply
        except TimeoutError:
            self.close()  # a late answer must not be taken for that of the next call
            raise CallFailed(f"no answer within {ANSWER:g} s") from None
        finally:
            self._rests_since = asyncio.get_running_loop().time()

    def close(self) -> None:
        """End it; a call under way gets no answer any more."""
        self.closed = True
        if self._transport:
            self._transport.close()

    def _fail(self, reason: str) -> None:
        if self._reply and not self._reply.done():
            self._reply.set_exception(CallFailed(reason))
        self.close()


class Client:
    """Calls on at most so many connections at a time; the others wait for one to be free."""

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
        """Send a request and wait for its answer, whatever its status.

        A call that is repeated under its idempotency key does nothing new.
        """
        named = f"Idempotency-Key: {key}\r\n" if key else ""
        length = f"Content-Length: {len(body)}\r\n\r\n"
        head = f"{method} {path}{self._tail}{named}{length}".encode()
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
                async with asyncio.timeout(CONNECT):
                    _, connection = await loop.create_connection(
                        _Connection, self._host, self._port
                    )
                self._all.append(connection)
            yield connection
        finally:
            self._free.put_nowait(connection)
