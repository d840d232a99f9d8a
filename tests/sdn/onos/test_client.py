"""Whatever answers at ONOS's address, a call ends in time and says what is wrong."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from dzflow.errors import BadInput
from sdn.onos.client import (
    OnosAccess,
    OnosBroken,
    OnosClient,
    OnosError,
    OnosNotFound,
    OnosRefused,
    OnosUnauthorized,
    OnosUnreachable,
    parsed,
)
from sdn.onos.wire import Devices
from tests.socket_server import SocketServer

DEVICES = b'{"devices": [{"id": "of:0000000000000001", "mfr": "x"}]}'
parse = parsed(Devices)


class Peer:
    """Sends the same answer to every request."""

    def __init__(self, said: bytes, drip: bool) -> None:
        self.said = said
        self.drip = drip
        self.requests: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.requests.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(self.said)
        await writer.drain()
        while self.drip:
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.01)


@asynccontextmanager
async def talking_to(
    said: bytes, drip: bool = False, path: str = "", **changes: Any
) -> AsyncIterator[tuple[OnosClient, Peer]]:
    peer = Peer(said, drip)
    async with SocketServer(peer.serve) as server:
        url = f"{server.url}{path}"
        quick = OnosAccess(url, "onos", "rocks", connect=5.0, read=5.0, attempts=1, retry=0.001)
        client = OnosClient(replace(quick, **changes))
        try:
            yield client, peer
        finally:
            await client.close()


def answer(status: int, body: bytes = b"", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    head = f"HTTP/1.1 {status} x\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


async def outcome(said: bytes, drip: bool = False, **changes: Any) -> Devices | OnosError:
    """The devices that are read from an answer, or the error."""
    async with talking_to(said, drip, **changes) as (client, _):
        try:
            return await client.get("devices", parse=parse)
        except OnosError as error:
            return error


async def test_an_answer_is_read_and_what_is_not_known_in_it_is_passed_over() -> None:
    found = await outcome(answer(200, DEVICES))
    assert isinstance(found, Devices)
    assert [device.id for device in found.devices] == ["of:0000000000000001"]


@pytest.mark.parametrize("path", ["", "/", "/onos/v1", "/onos/v1/"])
async def test_the_address_may_or_may_not_end_in_the_path_of_the_interface(path: str) -> None:
    async with talking_to(answer(200, DEVICES), path=path) as (client, peer):
        await client.get("devices", parse=parse)
    assert peer.requests[0].startswith(b"GET /onos/v1/devices ")


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (301, OnosBroken),
        (400, OnosRefused),
        (401, OnosUnauthorized),
        (403, OnosUnauthorized),
        (404, OnosNotFound),
        (415, OnosRefused),
        (500, OnosBroken),
        (503, OnosBroken),
    ],
)
async def test_each_status_has_its_error_with_what_onos_says(
    status: int, error: type[OnosError]
) -> None:
    found = await outcome(answer(status, b'{"code": 1, "message": "the reason"}'))
    assert type(found) is error
    assert "the reason" in str(found)
    assert str(status) in str(found)


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b"{}", b'{"devices": 7}', b'{"devices": [{}]}', b"\xff\xfe"]
)
async def test_answers_that_make_no_sense_are_onoss_fault(body: bytes) -> None:
    assert type(await outcome(answer(200, body))) is OnosBroken
    assert type(await outcome(answer(500, body))) is OnosBroken


@pytest.mark.parametrize("said", [b"", b"nonsense\r\n\r\n", answer(200, DEVICES, 999)])
async def test_connections_that_break_are_no_answer(said: bytes) -> None:
    assert type(await outcome(said)) is OnosUnreachable


async def test_an_answer_that_drips_in_for_ever_ends_in_time() -> None:
    found = await outcome(answer(200, b"{", 10**9), drip=True, whole=0.2)
    assert type(found) is OnosUnreachable
    assert "more than 0.2 s" in str(found)


async def test_an_answer_without_end_is_cut_off() -> None:
    found = await outcome(answer(200, b" " * 200_000), largest=100_000)
    assert type(found) is OnosBroken
    assert "more than 100000 bytes" in str(found)


async def test_questions_are_repeated_as_often_as_is_said() -> None:
    async with talking_to(answer(500), attempts=3) as (client, peer):
        with pytest.raises(OnosBroken):
            await client.get("devices", parse=parse)
        assert len(peer.requests) == 3
    async with talking_to(answer(404), attempts=3) as (client, peer):
        with pytest.raises(OnosNotFound):
            await client.get("devices", parse=parse)
        assert len(peer.requests) == 1


async def test_changes_are_sent_once_with_credentials_and_only_if_the_gate_is_open() -> None:
    def shut() -> None:
        raise KeyError("shut")

    async with talking_to(answer(500), attempts=3) as (client, peer):
        for gate, error in ((lambda: None, OnosBroken), (shut, KeyError)):
            with pytest.raises(error):
                await client.write(
                    "POST", "flows", body=b"{}", gate=gate, owner="p", params={"appId": "a b"}
                )
        [request] = peer.requests
        assert request.startswith(b"POST /onos/v1/flows?appId=a+b HTTP/1.1\r\n")
        assert b"Authorization: Basic b25vczpyb2Nrcw==\r\n" in request
        await client.settled("p")


async def test_names_cannot_lead_elsewhere() -> None:
    async with talking_to(answer(200, DEVICES)) as (client, peer):
        await client.get("flows", "of:1/../../x?y#z", parse=parse)
        assert peer.requests[0].startswith(b"GET /onos/v1/flows/of:1%2F..%2F..%2Fx%3Fy%23z ")


@pytest.mark.parametrize("wrong", [{"url": "onos:8181"}, {"calls": 0}, {"attempts": 0}])
def test_access_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        replace(OnosAccess("http://127.0.0.1:8181", "onos", "rocks"), **wrong)
