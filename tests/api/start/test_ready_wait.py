"""`dzflow up` waits until requests are served, and a while longer for what is impaired."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from api.start import ready_wait
from api.start.ready_wait import ReadyWait, StartFailed
from tests.socket_server import SocketServer

ALL = {
    "switches_up": 1,
    "switches": 1,
    "partitions_ready": 1,
    "partitions": 1,
    "impaired": [],
    "impaired_counts": {"processes": 0},
}
NO_SWITCH = ALL | {"switches_up": 0}
NO_RAY = ALL | {"impaired": [{"kind": "process", "id": "ray", "reason": "it is away"}]}
NOT_READY = {"reasons": ["no configurator"]}


@asynccontextmanager
async def answering(status: int, body: dict[str, Any]) -> AsyncIterator[str]:
    """A service that gives one answer to all requests; its URL."""
    data = json.dumps(body).encode()
    head = f"HTTP/1.1 {status} x\r\ncontent-length: {len(data)}\r\nconnection: close\r\n\r\n"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head.encode() + data)

    async with SocketServer(answer) as server:
        yield server.url


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Switches have more time than the first answer, as when the service is ready late."""
    monkeypatch.setattr(ready_wait, "START_SECONDS", 0.3)
    monkeypatch.setattr(ready_wait, "_ALONE_SECONDS", 0.3)
    monkeypatch.setattr(ready_wait, "_WHOLE_SECONDS", 0.6)


@pytest.mark.parametrize(
    ("body", "alone", "impaired"),
    [
        (ALL, False, ""),
        (NO_SWITCH, False, "0 of 1 switches are up"),
        (NO_RAY, False, "ray: it is away"),
        (NO_RAY, True, "ray: it is away"),
    ],
)
async def test_a_service_that_is_impaired_for_long_has_started_nevertheless(
    body: dict[str, Any], alone: bool, impaired: str
) -> None:
    async with answering(200, body) as url:
        wait = ReadyWait(url, [], lambda _: None, own_switches=not alone, alone=alone)
        assert await wait.wait() == impaired


async def test_a_service_that_serves_no_request_in_time_has_not_started() -> None:
    async with answering(503, NOT_READY) as url:
        whole = ReadyWait(url, [], lambda _: None, own_switches=True)
        with pytest.raises(StartFailed, match=r"not ready within 0 s: no configurator"):
            await whole.wait()
        part = ReadyWait(url, [], lambda _: None, own_switches=False, alone=True)
        assert await part.wait() == "not ready yet, see /readyz: no configurator"
