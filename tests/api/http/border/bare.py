"""The HTTP server with an application of the test's own, on the test's own event loop."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from api.http.app_settings import ApiSettings
from api.http.border.server import Server
from tests.certificates import Keys
from tests.support import WAIT

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Bare:
    """A running server."""

    def __init__(self, server: Server, port: int) -> None:
        self.server = server
        self.port = port

    @asynccontextmanager
    async def connection(self, said: bytes = b"", address: str = "127.0.0.1") -> AsyncIterator[Any]:
        """A connection from an address of this machine, over which something was sent."""
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, local_addr=(address, 0)
        )
        try:
            writer.write(said)
            yield reader, writer
        finally:
            writer.transport.abort()


async def ended(reader: asyncio.StreamReader) -> bytes:
    """What the server still says until it closes the connection."""
    async with asyncio.timeout(WAIT):
        found = b""
        try:
            while piece := await reader.read(65_536):
                found += piece
        except ConnectionResetError:
            pass
        return found


@asynccontextmanager
async def serving(app: ASGIApp, keys: Keys | None = None, **settings: Any) -> AsyncIterator[Bare]:
    """Serve an application that knows nothing of its lifespan."""

    async def whole(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            for phase in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{phase}.complete"})
        else:
            await app(scope, receive, send)

    there = asyncio.Event()
    cert, key = (keys.certificate, keys.key) if keys else (None, None)
    server = Server(whole, ApiSettings(**settings), cert, key, there.set)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        task = asyncio.create_task(server.serve([listener]))
        try:
            async with asyncio.timeout(WAIT):
                await there.wait()
            yield Bare(server, listener.getsockname()[1])
        finally:
            server.should_exit = True
            async with asyncio.timeout(WAIT):
                await task


async def answer(send: Send, content: bytes = b"", status: int = 200) -> None:
    """Send a whole answer."""
    length = (b"content-length", str(len(content)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [length]})
    await send({"type": "http.response.body", "body": content})
