"""Many connections from one address, idle or at work, do not keep others out."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from api.http.app_settings import ApiSettings
from api.http.border.edge import Edge
from api.http.metrics.registry import HttpMetrics
from tests.api.http.border.bare import Bare, answer, ended, serving
from tests.rest import problem_of, subscription
from tests.stack import Stack
from tests.support import WAIT, until, until_sync

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
OTHERS = ("127.0.0.2", "127.0.0.3", "127.0.0.4")


@contextmanager
def silent(url: str, count: int, address: str = "127.0.0.1") -> Iterator[list[socket.socket]]:
    """Connections that say nothing."""
    parts = urlsplit(url)
    with ExitStack() as opened:
        yield [
            opened.enter_context(
                socket.create_connection(
                    (parts.hostname or "", parts.port or 0), WAIT, (address, 0)
                )
            )
            for _ in range(count)
        ]


def is_closed(connection: socket.socket) -> bool:
    connection.settimeout(WAIT)
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


# The whole service


def test_4100_idle_connections_keep_nobody_out(stack: Stack, quiet: str) -> None:
    """What a review did to the service: without a token, from one address, with default limits."""
    with stack.serving(head_timeout=600.0) as url, silent(url, 4_100) as opened:
        for client in (
            httpx.Client(base_url=url, timeout=WAIT),
            httpx.Client(
                base_url=url,
                timeout=WAIT,
                transport=httpx.HTTPTransport(local_address="127.0.0.9"),
            ),
        ):
            with client:
                assert client.get("/healthz").status_code == 200
                made = client.post("/subscribe", json=subscription(quiet))
                assert made.status_code == 201
                client.delete(f"/subscriptions/{made.json()['id']}").raise_for_status()
        # The oldest had to go.
        assert all(map(is_closed, opened[:3_000]))


def test_full_of_streams_the_service_still_tells_its_health(stack: Stack) -> None:
    settings = {"max_address_connections": 20, "keep_alive": 0.2}
    with stack.serving(**settings) as url, ExitStack() as opened:
        streams = []  # which would be closed if they were forgotten
        client = opened.enter_context(httpx.Client(base_url=url, timeout=WAIT))
        for _ in range(20):
            stream = opened.enter_context(client.stream("GET", "/stream"))
            streams.append(stream.iter_lines())
            assert next(streams[-1]) == ": dzflow"
        # From the same address: only what a prober asks.
        for _ in range(100):
            assert httpx.get(f"{url}/healthz", timeout=WAIT).status_code == 200
        assert httpx.get(f"{url}/readyz", timeout=WAIT).status_code == 200
        refused = httpx.get(f"{url}/spaces", timeout=WAIT)
        assert "http.address_connections" in problem_of(refused, 503)["detail"]
        assert refused.headers["connection"] == "close"
        assert refused.headers["retry-after"]
        # From another one: everything.
        transport = httpx.HTTPTransport(local_address="127.0.0.9")
        with httpx.Client(base_url=url, timeout=WAIT, transport=transport) as other:
            assert other.get("/spaces").status_code == 200
            metrics = other.get("/metrics").text
        assert "dzflow_http_connections 2" in metrics
        # A stream ends, and there is room again.
        opened.close()
        until_sync(lambda: httpx.get(f"{url}/spaces", timeout=WAIT).status_code == 200)


# The server alone


@asynccontextmanager
async def edge(**settings: Any) -> AsyncIterator[tuple[Bare, asyncio.Event]]:
    """A server whose application answers at /, and at every other path when the event is set."""
    go = asyncio.Event()

    async def app(scope: Scope, _receive: Receive, send: Send) -> None:
        if scope["path"] not in ("/", "/healthz"):
            await go.wait()
        await answer(send, b"well")

    outermost = Edge(app, ApiSettings(), HttpMetrics())
    async with serving(outermost, **settings) as bare:
        try:
            yield bare, go
        finally:
            go.set()


async def say(stack: AsyncExitStack, bare: Bare, said: bytes, address: str) -> asyncio.StreamReader:
    reader, _ = await stack.enter_async_context(bare.connection(said, address))
    assert isinstance(reader, asyncio.StreamReader)
    return reader


async def test_the_longest_idle_connection_goes_first() -> None:
    async with (
        edge(max_address_connections=3, idle_timeout=600) as (bare, _),
        AsyncExitStack() as stack,
    ):
        opened = []
        for _ in range(3):
            reader, writer = await stack.enter_async_context(bare.connection(GET))
            assert await reader.readuntil(b"well")
            opened.append((reader, writer))
        (one, first), (two, _), _ = opened
        first.write(GET)  # from now on, the second one is idle for longest
        assert await one.readuntil(b"well")
        four = await say(stack, bare, GET, "127.0.0.1")
        assert await four.readuntil(b"well")
        assert await ended(two) == b""
        assert bare.server.table.evicted == 1
        other = await say(stack, bare, GET, "127.0.0.2")
        assert await other.readuntil(b"well")
        assert bare.server.table.evicted == 1


async def test_a_request_in_progress_is_not_disturbed() -> None:
    async with (
        edge(max_address_connections=3, max_connections=5) as (bare, go),
        AsyncExitStack() as stack,
    ):
        working = await say(stack, bare, GET.replace(b"/ ", b"/slow "), "127.0.0.1")
        body = b"POST /slow HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nab"
        sending = await say(stack, bare, body, "127.0.0.1")
        await until(lambda: len(bare.server.server_state.tasks) == 2)
        for address in ("127.0.0.1", *OTHERS):
            for _ in range(10):
                await say(stack, bare, b"", address)
        await until(lambda: bare.server.table.evicted >= 30)
        go.set()
        for reader in (working, sending):
            assert await reader.readuntil(b"well")


async def test_beyond_the_limit_in_total_an_idle_one_of_anybody_goes() -> None:
    async with edge(max_connections=10) as (bare, _), AsyncExitStack() as stack:
        opened = [
            await say(stack, bare, b"", f"127.0.1.{number}")  # each from an address of its own
            for number in range(1, 31)
        ]
        await until(lambda: bare.server.table.evicted == 20)
        for reader in opened[:20]:
            assert await ended(reader) == b""
        last = await say(stack, bare, GET, "127.0.0.9")
        assert await last.readuntil(b"well")
        assert len(bare.server.table) == 10


async def test_when_all_are_at_work_the_reserve_answers_questions_about_health() -> None:
    async with (
        edge(max_connections=4, reserve=2, head_timeout=600.0) as (bare, go),
        AsyncExitStack() as stack,
    ):
        slow = GET.replace(b"/ ", b"/slow ")
        working = [await say(stack, bare, slow, "127.0.0.1") for _ in range(4)]
        await until(lambda: len(bare.server.server_state.tasks) == 4)
        # Silent connections cannot use the reserve up.
        for _ in range(20):
            await say(stack, bare, b"", "127.0.0.1")
        prober = await say(stack, bare, HEALTH, "127.0.0.2")
        assert (await prober.readuntil(b"well")).startswith(b"HTTP/1.1 200")
        other = await say(stack, bare, GET, "127.0.0.2")
        refused = await ended(other)
        assert refused.startswith(b"HTTP/1.1 503")
        assert b"/problems/overloaded" in refused
        go.set()
        for reader in working:
            assert await reader.readuntil(b"well")
        again = await say(stack, bare, GET, "127.0.0.2")
        assert await again.readuntil(b"well")


@pytest.mark.parametrize(("proxies", "kept"), [(("127.0.0.2",), 20), ((), 5)])
async def test_connections_of_a_proxy_are_not_limited_by_its_address(
    proxies: tuple[str, ...], kept: int
) -> None:
    settings = {"max_address_connections": 5, "proxies": proxies, "idle_timeout": 600}
    async with edge(**settings) as (bare, _), AsyncExitStack() as stack:
        for _ in range(20):
            reader = await say(stack, bare, GET, "127.0.0.2")
            assert await reader.readuntil(b"well")
        assert len(bare.server.table) == kept
