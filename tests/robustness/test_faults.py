"""Faults are the same for a seed, and the proxy does to connections what it says."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from tests.robustness.kinds import LAB, MOVES, PLANS, WHOLE, WIRED, Kind, plan_round
from tests.robustness.proxy import Proxy
from tests.socket_server import SocketServer, connected
from tests.support import until

TIMEOUT = 20.0


@pytest.mark.parametrize("kinds", [WHOLE, WIRED, LAB, WHOLE + MOVES + PLANS])
def test_a_seed_gives_the_same_faults(kinds: tuple[Kind, ...]) -> None:
    for seed in range(200):
        planned = plan_round(Random(seed), kinds)
        assert planned == plan_round(Random(seed), kinds)
        for each in planned:
            assert each.target in each.kind.targets
            assert each.kind.shortest <= each.lasts <= each.kind.longest
    drawn = {(p.kind.name, p.target) for s in range(2_000) for p in plan_round(Random(s), kinds)}
    assert drawn == {(kind.name, target) for kind in kinds for target in kind.targets}


@asynccontextmanager
async def echo() -> AsyncIterator[Proxy]:
    """A proxy before a server that echoes what it receives."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)

    async with SocketServer(answer) as server, Proxy(server.address) as proxy:
        yield proxy


@asynccontextmanager
async def saying(
    proxy: Proxy, text: bytes
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    async with connected(proxy.address) as (reader, writer):
        writer.write(text)
        yield reader, writer


async def test_the_proxy_passes_on_holds_and_cuts() -> None:
    async with asyncio.timeout(TIMEOUT), echo() as proxy:
        async with saying(proxy, b"one") as (reader, writer):
            assert await reader.readexactly(3) == b"one"
            proxy.hold()
            writer.write(b"two")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await reader.read(1)
            proxy.heal()
            assert await reader.readexactly(3) == b"two"
            proxy.cut()
            with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                await reader.readexactly(1)
        async with saying(proxy, b"three") as (refused, _):
            with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                await refused.readexactly(1)
        proxy.heal()
        async with saying(proxy, b"four") as (reader, _):
            assert await reader.readexactly(4) == b"four"


async def test_the_proxy_delays_and_keeps_the_order() -> None:
    async with asyncio.timeout(TIMEOUT), echo() as proxy:
        proxy.delay = 0.1
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with saying(proxy, b"a") as (reader, writer):
            await until(lambda: proxy.received)
            proxy.delay = 0.0
            writer.write(b"b")
            assert await reader.readexactly(2) == b"ab"
            assert loop.time() - began >= 0.1
