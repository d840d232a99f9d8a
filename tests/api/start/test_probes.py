"""`/healthz` and `/readyz` of processes without an API."""

import asyncio
from contextlib import AsyncExitStack, suppress

import httpx
import pytest

from api.start import probes
from api.start.listening import PortTaken
from api.start.probes import MAX_CONNECTIONS, answer_probes
from api.start.settings.sections.processes import ProbeSettings
from configurators.store.server.server import free_ports
from tests.socket_server import connected
from tests.support import WAIT, until


@pytest.fixture
def settings() -> ProbeSettings:
    return ProbeSettings(port=free_ports(1)[0])


async def test_readiness_follows_the_process(settings: ProbeSettings) -> None:
    state = {"ready": False}
    at = f"http://127.0.0.1:{settings.port}"
    async with answer_probes(settings, lambda: state["ready"]), httpx.AsyncClient() as client:
        assert (await client.get(f"{at}/healthz")).status_code == 200
        assert (await client.get(f"{at}/readyz")).status_code == 503
        state["ready"] = True
        assert (await client.get(f"{at}/readyz?verbose")).status_code == 200
        assert (await client.get(f"{at}/metrics")).status_code == 404
        assert (await client.post(f"{at}/readyz")).status_code == 405


async def test_what_is_no_probe_is_cut_off(settings: ProbeSettings) -> None:
    assert settings.port
    async with answer_probes(settings, lambda: True), asyncio.timeout(WAIT):
        where = (settings.host, settings.port)
        for nonsense in (b"\x00\r\n\r\n", b"GET /readyz", b"G" * 20_000):
            async with connected(where) as (reader, writer):
                writer.write(nonsense)
                writer.write_eof()
                with suppress(ConnectionResetError):  # cut off before all was read
                    assert b"200 OK" not in await reader.read()
        async with AsyncExitStack() as stack:
            for _ in range(MAX_CONNECTIONS):
                await stack.enter_async_context(connected(where))
            reader, _ = await stack.enter_async_context(connected(where))
            assert await reader.read() == b"", "there are too many connections"

        async def answered() -> bool:
            async with httpx.AsyncClient() as client:
                try:
                    found = await client.get(f"http://{settings.host}:{settings.port}/healthz")
                except httpx.TransportError:
                    return False
                return found.status_code == 200

        await until(answered)


async def test_connections_close_when_probes_are_no_longer_answered(
    settings: ProbeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert settings.port
    monkeypatch.setattr(probes, "_SECONDS", 10 * WAIT)
    where = (settings.host, settings.port)
    async with asyncio.timeout(WAIT), AsyncExitStack() as stack:
        async with answer_probes(settings, lambda: True), httpx.AsyncClient() as client:
            silent, _ = await stack.enter_async_context(connected(where))
            await client.get(f"http://{settings.host}:{settings.port}/healthz")  # it is accepted
            late, _ = await stack.enter_async_context(connected(where))
        for reader in (silent, late):
            with suppress(ConnectionResetError):
                assert await reader.read() == b""


async def test_a_port_in_use_is_named_with_its_setting(settings: ProbeSettings) -> None:
    async with answer_probes(settings, lambda: True):
        with pytest.raises(PortTaken, match=r"probes\.port"):
            async with answer_probes(settings, lambda: True):
                pass


async def test_without_a_port_nothing_listens() -> None:
    async with answer_probes(ProbeSettings(), lambda: True):
        pass
