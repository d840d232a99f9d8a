"""Signs of life of a connection, and how fast it is read."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import uvloop

from sdn.openflow.connections.arrivals import Arrival
from sdn.openflow.connections.connection import SwitchConnection
from sdn.openflow.options import Admission, DriverOptions
from sdn.openflow.protocol.constants import V1_3, Type
from sdn.openflow.protocol.events import Event
from sdn.openflow.protocol.wire import message
from tests.sdn.openflow import peer

WAIT = 20.0


class Owner:
    """Counts what a connection reports."""

    def __init__(self) -> None:
        self.events = 0

    def connection_made(self, connection: SwitchConnection) -> None:
        pass

    def event_received(self, connection: SwitchConnection, event: Event) -> None:  # noqa: ARG002
        self.events += 1

    def writing_resumed(self, connection: SwitchConnection) -> None:
        pass


class Switch:
    """The other end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def until(self, kind: Type) -> int:
        """Read until a message of a type comes; returns its xid."""
        async with asyncio.timeout(WAIT):
            while True:
                head = peer.header(data := await self.reader.readexactly(8))
                await self.reader.readexactly(head.length - len(data))
                if head.type == kind:
                    return head.xid


@asynccontextmanager
async def connected(rate: float = 5_000) -> AsyncIterator[tuple[SwitchConnection, Switch, Owner]]:
    """A connection that is ready, and its switch."""
    ours, theirs = socket.socketpair()
    owner = Owner()
    options = DriverOptions(admission=Admission(message_rate=rate))
    connection = SwitchConnection(owner, options, Arrival("here"))
    loop = asyncio.get_running_loop()
    await loop.connect_accepted_socket(lambda: connection, ours)
    switch = Switch(*await asyncio.open_connection(sock=theirs))
    switch.writer.write(peer.hello(V1_3))
    xid = await switch.until(Type.FEATURES_REQUEST)
    switch.writer.write(peer.features(V1_3, xid))
    xid = await switch.until(Type.MULTIPART_REQUEST)
    switch.writer.write(peer.port_desc(V1_3, xid))
    await connection.ready()
    try:
        yield connection, switch, owner
    finally:
        connection.close("the test ends")
        await connection.gone.wait()
        switch.writer.transport.abort()


async def test_the_answer_to_an_echo_is_a_sign_of_life() -> None:
    async with connected() as (connection, switch, _):
        alive = asyncio.create_task(connection.is_alive(WAIT))
        xid = await switch.until(Type.ECHO_REQUEST)
        switch.writer.write(message(V1_3, Type.ECHO_REPLY, xid))
        assert await alive


async def test_so_is_anything_else_that_a_slow_switch_sends_before_it() -> None:
    async with connected() as (connection, switch, _):
        alive = asyncio.create_task(connection.is_alive(WAIT))
        await switch.until(Type.ECHO_REQUEST)
        switch.writer.write(peer.barrier_reply(V1_3, 3))
        assert await alive


async def test_silence_is_none_nor_is_the_end_of_the_connection() -> None:
    async with connected() as (connection, switch, _):
        assert not await connection.is_alive(0.05)
        alive = asyncio.create_task(connection.is_alive(WAIT))
        await switch.until(Type.ECHO_REQUEST)
        switch.writer.transport.abort()
        assert not await alive
        assert not await connection.is_alive(WAIT)


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_an_answer_that_was_not_read_because_the_process_stood_still_counts(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def stand_still() -> None:
        async with connected() as (connection, switch, _):
            alive = asyncio.create_task(connection.is_alive(0.1))
            xid = await switch.until(Type.ECHO_REQUEST)
            switch.writer.write(message(V1_3, Type.ECHO_REPLY, xid))
            time.sleep(0.3)
            assert await alive

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(stand_still())


async def test_a_flood_is_read_more_slowly_and_counts_as_alive() -> None:
    async with connected(rate=100) as (connection, switch, owner):
        switch.writer.write(peer.packet_in(V1_3, 1, bytes(20)) * 100_000)
        async with asyncio.timeout(WAIT):
            while owner.events < 200:
                await asyncio.sleep(0)
        assert await connection.is_alive(WAIT)
        assert owner.events < 100_000
