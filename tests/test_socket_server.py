"""The servers of tests leave nothing behind, whenever they end."""

import asyncio
import gc
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop

from configurators.streams.tls import StreamTls
from tests.certificates import make_keys
from tests.event_loop import TestLoop
from tests.socket_server import SocketServer, connected
from tests.support import WAIT, until


@pytest.fixture(params=[TestLoop, uvloop.new_event_loop], ids=["asyncio", "uvloop"], autouse=True)
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": request.param}


@pytest.fixture(autouse=True)
def garbage_collected() -> Iterator[None]:
    """What a test leaves open fails it: a warning of the garbage collector is an error."""
    yield
    gc.collect()


class Tls:
    """What a server and its callers use; nothing without TLS."""

    server: ssl.SSLContext | None = None
    client: ssl.SSLContext | None = None


@pytest.fixture(params=["plain", "tls"])
def tls(request: pytest.FixtureRequest, tmp_path: Path) -> Tls:
    found = Tls()
    if request.param == "tls":
        keys = make_keys(tmp_path)
        made = StreamTls(keys.certificate, keys.key, keys.authority)
        found.server, found.client = made.server, made.client
    return found


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(100):
        writer.write(data)
        await writer.drain()


async def forever(*_: object) -> None:
    await asyncio.get_running_loop().create_future()


async def test_a_connection_closes_when_its_handler_returns(tls: Tls) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(3))

    async with (
        asyncio.timeout(WAIT),
        SocketServer(answer, tls=tls.server) as server,
        connected(server.address, tls.client) as (reader, writer),
    ):
        writer.write(b"one")
        assert await reader.read() == b"one"


async def test_it_listens_at_unix_sockets_and_at_sockets_that_are_bound(tmp_path: Path) -> None:
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    path = tmp_path / "socket"
    async with asyncio.timeout(WAIT), SocketServer(echo, bound) as one, SocketServer(echo, path):
        assert one.url == f"http://127.0.0.1:{bound.getsockname()[1]}"
        for address in (one.address, path):
            async with connected(address) as (reader, writer):
                writer.write(b"one")
                assert await reader.readexactly(3) == b"one"


@pytest.mark.parametrize("turns", range(8))
async def test_it_may_end_at_any_moment_of_a_connection(turns: int, tls: Tls) -> None:
    """After so many turns of the event loop: not accepted, no handler yet, or a handler runs."""
    with socket.socket() as caller:
        caller.setblocking(False)
        async with asyncio.timeout(WAIT):
            async with SocketServer(forever, tls=tls.server) as server:
                await asyncio.get_running_loop().sock_connect(caller, server.address)
                for _ in range(turns):
                    await asyncio.sleep(0)


async def test_it_may_end_while_a_handler_cannot_send(tls: Tls) -> None:
    filled = asyncio.Event()

    async def fill(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(bytes(1 << 24))
        filled.set()  # and return: it closes when all is sent

    async with asyncio.timeout(WAIT):
        server = await SocketServer(fill, tls=tls.server).__aenter__()
        async with connected(server.address, tls.client):
            await filled.wait()
            await server.__aexit__(None, None, None)


async def test_connections_that_are_cut_end_with_their_handlers(tls: Tls) -> None:
    handlers: list[bool] = []

    async def count(*_: object) -> None:
        handlers.append(True)
        try:
            await forever()
        finally:
            handlers.pop()

    async with asyncio.timeout(WAIT), SocketServer(count, tls=tls.server) as server:
        for _ in range(2):  # it goes on
            async with connected(server.address, tls.client) as (reader, _):
                await until(lambda: handlers)
                server.cut()
                await until(lambda: not handlers)
                with suppress(ConnectionError):
                    assert await reader.read() == b""


async def test_a_connection_that_breaks_is_no_error() -> None:
    ended = asyncio.Event()

    async def need(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        try:
            await reader.readexactly(100)
        finally:
            ended.set()

    async with asyncio.timeout(WAIT), SocketServer(need) as server:
        async with connected(server.address) as (_, writer):
            writer.write(b"one")
        await ended.wait()


async def test_a_handler_that_fails_is_an_error() -> None:
    async def fail(*_: object) -> None:
        raise RuntimeError("on purpose")

    async def call() -> None:
        async with SocketServer(fail) as server, connected(server.address) as (reader, _):
            assert await reader.read() == b""

    with pytest.raises(ExceptionGroup) as raised:
        await asyncio.wait_for(call(), WAIT)
    assert raised.group_contains(RuntimeError, match="on purpose")
