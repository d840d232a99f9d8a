"""Calls over a unix socket, with an etcd that dies or ends, and with servers that misbehave."""

import asyncio
from asyncio import Task
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from socket import AF_UNIX, socket
from struct import pack

import grpc
import pytest
from aetcd import rpc

from configurators.store.etcd.client import Etcd, Put, StoreUnavailable, absent
from configurators.store.etcd.direct_calls import DirectCalls
from configurators.store.etcd.endpoints import ReachableSocket
from configurators.store.etcd.errors import judge
from configurators.store.etcd.headers import encode
from tests.configurators.store.etcd.test_http2 import (
    DATA,
    END_HEADERS,
    END_STREAM,
    GO_AWAY,
    HEADERS,
    SETTINGS,
    frame,
)
from tests.etcd import running
from tests.socket_server import SocketServer


@pytest.mark.parametrize("how", ["kill", "stop"])
async def test_nothing_is_lost_or_doubled_while_etcd_ends_and_comes_back(
    how: str, tmp_path: Path
) -> None:
    """Ended with SIGTERM, etcd lets calls in progress finish, and refuses new ones."""
    writers, each = 4, 60
    uncertain: list[StoreUnavailable] = []

    async def write(etcd: Etcd, writer: int) -> None:
        for number in range(each):
            key = f"w/{writer}-{number}"
            sure = True
            while True:
                try:
                    done = await etcd.transact([absent(key)], [Put(key, b"")])
                except StoreUnavailable as error:
                    uncertain.append(error)
                    sure = False
                    continue  # the compare makes it safe
                assert done.succeeded or not sure
                break
            progress.set()

    async def fault() -> None:
        for _ in range(3):
            progress.clear()
            await progress.wait()
            await asyncio.to_thread(getattr(server, how))
            await asyncio.to_thread(server.start)

    progress = asyncio.Event()
    with running(tmp_path) as server:
        async with asyncio.timeout(120), Etcd(server.access(timeout=60)) as etcd:
            writing = asyncio.gather(*(write(etcd, writer) for writer in range(writers)))
            faults = asyncio.create_task(fault())
            await writing
            progress.set()
            while not faults.done():  # what was written is followed by more, so that all faults are
                await etcd.get("x")
                progress.set()
            await faults
            page = await etcd.range("w/")
            assert len(page.items) == writers * each
            assert all(item.revision == item.created for item in page.items)
            assert all(error.maybe_applied for error in uncertain)


@asynccontextmanager
async def serving(folder: Path, *answers: bytes) -> AsyncIterator[DirectCalls]:
    """Calls to a server that sends these bytes on its connections, one after the other."""
    left = list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"/etcdserverpb.KV/Range")
        if left:
            writer.write(frame(SETTINGS, 0, 0) + left.pop(0))

    path = folder / "socket"
    async with SocketServer(serve, path):
        calls = DirectCalls(ReachableSocket(path), 1 << 20)
        try:
            yield calls
        finally:
            calls.close()


def answer(status: str, message: str = "", body: bytes = b"") -> bytes:
    end = encode((("grpc-status", status), ("grpc-message", message)))
    return (
        frame(HEADERS, END_HEADERS, 1, encode(((":status", "200"),)))
        + frame(DATA, 0, 1, body)
        + frame(HEADERS, END_HEADERS | END_STREAM, 1, end)
    )


NOTHING = pack("!BI", 0, 0)  # an empty message


async def test_an_answer_may_come_at_once(tmp_path: Path) -> None:
    async with serving(tmp_path, answer("0", body=NOTHING)) as calls:
        assert await calls.Range(rpc.RangeRequest(), timeout=30) == rpc.RangeResponse()


@pytest.mark.parametrize(
    ("sent", "code", "outcome", "reason"),
    [
        (b"", grpc.StatusCode.UNAVAILABLE, "perhaps", "closed|lost"),
        (frame(DATA, 0, 1, bytes(20_000)), grpc.StatusCode.UNAVAILABLE, "perhaps", "HTTP/2"),
        (frame(GO_AWAY, 0, 0, bytes(8)), grpc.StatusCode.UNAVAILABLE, "never", "closes"),
        (answer("0"), grpc.StatusCode.INTERNAL, "perhaps", "one message"),
        (answer("0", body=NOTHING * 2), grpc.StatusCode.INTERNAL, "perhaps", "one message"),
        (answer("3", "50%25 of it"), grpc.StatusCode.INVALID_ARGUMENT, "final", "50% of it"),
        (answer("99", "strange"), grpc.StatusCode.UNKNOWN, "perhaps", "strange"),
        (
            frame(HEADERS, END_HEADERS | END_STREAM, 1, encode(((":status", "503"),))),
            grpc.StatusCode.UNKNOWN,
            "perhaps",
            "503",
        ),
    ],
)
async def test_what_is_no_answer_is_an_error(
    sent: bytes, code: grpc.StatusCode, outcome: str, reason: str, tmp_path: Path
) -> None:
    async with serving(tmp_path, sent) as calls:
        with pytest.raises(grpc.aio.AioRpcError, match=reason) as caught:
            await calls.Range(rpc.RangeRequest(), timeout=30)
    assert caught.value.code() is code
    assert judge(code, caught.value.details()).outcome == outcome


async def test_the_next_call_connects_again(tmp_path: Path) -> None:
    async with serving(tmp_path, b"", answer("0", body=NOTHING)) as calls:
        with pytest.raises(grpc.aio.AioRpcError):
            await calls.Range(rpc.RangeRequest(), timeout=30)
        assert not calls.connected
        await calls.Range(rpc.RangeRequest(), timeout=30)


async def test_without_a_socket_nothing_was_sent(tmp_path: Path) -> None:
    calls = DirectCalls(ReachableSocket(tmp_path / "none"), 1 << 20)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await calls.Range(rpc.RangeRequest(), timeout=30)
    assert judge(caught.value.code(), caught.value.details()).outcome == "never"


@asynccontextmanager
async def connecting(folder: Path) -> AsyncIterator[tuple[DirectCalls, socket, Task[object]]]:
    """A call that has just connected to a listener, which answers nothing."""
    path = folder / "socket"
    with socket(AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        listener.setblocking(False)
        calls = DirectCalls(ReachableSocket(path), 1 << 20)
        call = asyncio.create_task(calls.Range(rpc.RangeRequest(), timeout=30))
        await asyncio.sleep(0)
        try:
            yield calls, listener, call
        finally:
            calls.close()


async def test_a_connection_that_is_lost_before_it_is_used_has_sent_nothing(tmp_path: Path) -> None:
    async with connecting(tmp_path) as (_, listener, call):
        listener.close()
        with pytest.raises(grpc.aio.AioRpcError, match="lost") as caught:
            await call
    assert judge(caught.value.code(), caught.value.details()).outcome == "never"


async def test_a_call_that_connects_ends_when_all_connections_are_closed(tmp_path: Path) -> None:
    async with connecting(tmp_path) as (calls, listener, call):
        calls.close()
        with pytest.raises(grpc.aio.AioRpcError, match="closed"):
            await call
        with pytest.raises(grpc.aio.AioRpcError, match="closed"):
            await calls.Range(rpc.RangeRequest(), timeout=30)
        loop = asyncio.get_running_loop()
        connection, _ = await loop.sock_accept(listener)
        with connection:
            while await loop.sock_recv(connection, 1 << 16):
                pass  # what was sent before the end
