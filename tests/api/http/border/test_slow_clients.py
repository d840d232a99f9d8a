"""Clients that are slow, silent or send too much lose their own connection, and nothing more."""

import asyncio
import json
import ssl
from pathlib import Path
from typing import Any

import pytest
import uvloop
from starlette.types import Receive, Scope, Send

from api.http.border.http_protocol import MAX_PIPELINED
from tests.api.http.border.bare import answer, ended, serving
from tests.certificates import Keys, make_keys
from tests.event_loop import TestLoop
from tests.support import WAIT, until

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"

LOOPS = pytest.mark.parametrize(
    "anyio_backend",
    [
        ("asyncio", {"loop_factory": TestLoop}),
        ("asyncio", {"loop_factory": uvloop.new_event_loop}),
    ],
    ids=["asyncio", "uvloop"],
)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    folder: Path = tmp_path_factory.mktemp("keys")
    return make_keys(folder)


async def short(_scope: Scope, _receive: Receive, send: Send) -> None:
    await answer(send, b"well")


async def long(_scope: Scope, _receive: Receive, send: Send) -> None:
    await answer(send, bytes(32 << 20))


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nHos", b"\r\n\r\n"])
async def test_a_head_that_never_arrives_is_a_timeout(said: bytes) -> None:
    async with serving(short, head_timeout=0.2) as bare, bare.connection(said) as (reader, _):
        assert (await ended(reader)).startswith(b"HTTP/1.1 408")
        await until(lambda: len(bare.server.table) == 0)


async def test_a_connection_without_further_requests_is_closed() -> None:
    async with serving(short, idle_timeout=1) as bare, bare.connection(GET) as (reader, _):
        assert (await ended(reader)).endswith(b"well")


async def test_the_rest_of_a_body_that_was_answered_must_arrive_in_time() -> None:
    settings: dict[str, Any] = {"body_timeout": 0.3, "idle_timeout": 1_000}
    async with serving(short, **settings) as bare, bare.connection(POST) as (reader, writer):
        assert await reader.readuntil(b"well")
        writer.write(b"a byte, which shows that the client is there")
        assert await ended(reader) == b""


@LOOPS
async def test_an_answer_that_is_not_read_is_given_up() -> None:
    settings: dict[str, Any] = {"send_timeout": 0.3, "idle_timeout": 1_000}
    async with serving(long, **settings) as bare, bare.connection(GET) as (_, writer):
        writer.transport.pause_reading()
        await until(lambda: len(bare.server.table) == 1)
        await until(lambda: len(bare.server.table) == 0)


@LOOPS
async def test_an_answer_that_is_read_slowly_arrives() -> None:
    """The client reads a little more than it must within each timeout."""
    async with serving(long, send_timeout=4.0) as bare, bare.connection(GET) as (reader, _):
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"content-length: 33554432" in head
        left = 32 << 20
        async with asyncio.timeout(WAIT):
            while left:
                left -= len(await reader.readexactly(min(left, 2 << 20)))
                await asyncio.sleep(0.4)  # in all longer than the timeout, each time shorter


async def test_requests_that_wait_for_another_ones_answer_are_few() -> None:
    calls = []
    go = asyncio.Event()

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        calls.append(1)
        await go.wait()
        await answer(send)

    async with serving(app) as bare:
        async with bare.connection(GET * (MAX_PIPELINED + 1)) as (reader, _):
            await until(lambda: calls)
            go.set()
            for _ in range(MAX_PIPELINED + 1):
                assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        calls.clear()
        go.clear()
        async with bare.connection(GET * 5_000) as (reader, _):
            assert await ended(reader) == b""
        go.set()
    assert len(calls) == 1


async def test_bytes_after_a_request_in_progress_do_not_answer_it() -> None:
    go, inside = asyncio.Event(), asyncio.Event()

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        inside.set()
        await go.wait()
        await answer(send)

    async with serving(app) as bare, bare.connection(GET) as (reader, writer):
        await inside.wait()
        writer.write(b"this is not HTTP\r\n\r\n")
        assert await ended(reader) == b""
        go.set()


CHUNKED = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"


async def read_all(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the names of the headers once the body is complete."""
    while (await receive()).get("more_body"):
        pass
    await answer(send, b",".join(name for name, _ in scope["headers"]))


async def test_trailers_are_not_headers() -> None:
    said = CHUNKED + b"1\r\nx\r\n0\r\nAuthorization: Bearer me\r\n\r\n"
    async with serving(read_all) as bare, bare.connection(said) as (reader, _):
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"content-length: 22\r\n" in head
        assert await reader.readexactly(22) == b"host,transfer-encoding"


@pytest.mark.parametrize(
    ("first", "piece"),
    [
        (b"0\r\n", b"X-A: b\r\n"),  # endless trailers
        (b"0\r\nX-A: ", b"bbbbbbbb"),  # an endless trailer
        (b"1;", b"extended"),  # the endless extension of a chunk
    ],
)
async def test_what_is_not_part_of_a_body_is_not_endless(first: bytes, piece: bytes) -> None:
    async with serving(read_all) as bare, bare.connection(CHUNKED + first) as (reader, writer):
        for _ in range(100):
            writer.write(piece * 1_000)
        assert await ended(reader) == b""
        await until(lambda: len(bare.server.table) == 0)


@LOOPS
async def test_tls_handshakes_that_never_end_make_room_for_others(keys: Keys) -> None:
    trusted = ssl.create_default_context(cafile=keys.authority)
    settings: dict[str, Any] = {"max_address_connections": 10, "head_timeout": 1_000}
    async with serving(short, keys, **settings) as bare:
        silent = [await asyncio.open_connection("127.0.0.1", bare.port) for _ in range(30)]
        for reader, _ in silent[:20]:
            assert await ended(reader) == b""
        reader, writer = await asyncio.open_connection("127.0.0.1", bare.port, ssl=trusted)
        writer.write(GET)
        assert await reader.readuntil(b"well")
        assert len(bare.server.table) == 10
        for _, other in (*silent, (reader, writer)):
            other.transport.abort()
        await until(lambda: len(bare.server.table) == 0)


@LOOPS
async def test_a_tls_handshake_that_takes_too_long_is_given_up(keys: Keys) -> None:
    async with serving(short, keys, head_timeout=0.2) as bare, bare.connection() as (reader, _):
        assert await ended(reader) == b""
        await until(lambda: len(bare.server.table) == 0)


async def test_the_server_stops_while_a_tls_handshake_is_in_progress(keys: Keys) -> None:
    async with serving(short, keys) as bare:
        reader, writer = await asyncio.open_connection("127.0.0.1", bare.port)
        await until(lambda: len(bare.server.table) == 1)
    assert await ended(reader) == b""
    writer.close()


# Reverse proxies

FORWARDED = b"X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: https\r\nConnection: close\r\n\r\n"


async def tell_client(scope: Scope, _receive: Receive, send: Send) -> None:
    await answer(send, json.dumps([scope["client"][0], scope["scheme"]]).encode())


@pytest.mark.parametrize(
    ("proxies", "seen"),
    [
        ((), ["127.0.0.1", "http"]),
        (("198.51.100.7",), ["127.0.0.1", "http"]),
        (("127.0.0.0/8",), ["192.0.2.1", "https"]),
    ],
)
async def test_only_proxies_that_are_named_may_speak_for_others(
    proxies: tuple[str, ...], seen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")  # uvicorn's own variable does not count
    request = GET.replace(b"\r\n\r\n", b"\r\n") + FORWARDED
    async with (
        serving(tell_client, proxies=proxies) as bare,
        bare.connection(request) as (reader, _),
    ):
        _, _, content = (await ended(reader)).partition(b"\r\n\r\n")
    assert json.loads(content) == seen
