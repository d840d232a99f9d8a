"""What the listener cleans up."""

import asyncio
import socket

import pytest

from dzflow.aio import BackgroundTasks
from sdn.openflow.connections.arrivals import Arrivals
from sdn.openflow.connections.connection import SwitchConnection
from sdn.openflow.connections.listener import SwitchListener
from sdn.openflow.options import Admission, DriverOptions
from tests.sdn.openflow.connections.quiet_owner import QuietOwner

WAIT = 20.0


async def read_to_end(reader: asyncio.StreamReader) -> None:
    try:
        while await reader.read(100):
            pass
    except ConnectionError:
        pass


async def test_connections_that_go_before_they_were_served_are_closed() -> None:
    limits = Admission(connections=2, address_connections=2, unfinished=2)
    options = DriverOptions(port=0, admission=limits)
    arrivals, tasks = Arrivals(limits, lambda: 0), BackgroundTasks()
    listener = SwitchListener(options, arrivals, QuietOwner(), tasks)
    port = await listener.start()
    # Without a turn of the event loop, so that many are accepted in one.
    clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(12)]
    ends = [await asyncio.open_connection(sock=client) for client in clients]
    try:
        async with asyncio.timeout(WAIT):
            for reader, _ in ends[:10]:
                await read_to_end(reader)
            for reader, _ in ends[10:]:
                assert await reader.read(100)  # a greeting
                assert not reader.at_eof()
    finally:
        await listener.stop()
        async with asyncio.timeout(WAIT):
            for reader, _ in ends[10:]:
                await read_to_end(reader)
        for _, writer in ends:
            writer.transport.abort()
        await tasks.cancel()


async def test_small_messages_are_sent_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """asyncio asks for that only for sockets that were made with the number of TCP."""
    transports: asyncio.Queue[asyncio.BaseTransport] = asyncio.Queue()
    made = SwitchConnection.connection_made

    def connection_made(connection: SwitchConnection, transport: asyncio.BaseTransport) -> None:
        made(connection, transport)
        transports.put_nowait(transport)

    monkeypatch.setattr(SwitchConnection, "connection_made", connection_made)
    options, tasks = DriverOptions(port=0), BackgroundTasks()
    arrivals = Arrivals(options.admission, lambda: 0)
    listener = SwitchListener(options, arrivals, QuietOwner(), tasks)
    port = await listener.start()
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(WAIT):
            transport = await transports.get()
        accepted = transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    finally:
        await listener.stop()
        writer.transport.abort()
        await tasks.cancel()
