"""A peer that speaks just enough OpenFlow to claim a datapath id, and then does as it is told."""

import asyncio
import ssl
from types import TracebackType
from typing import Self

from sdn.openflow.protocol.constants import V1_3, Type
from sdn.openflow.protocol.wire import message
from tests.sdn.openflow import peer
from tests.sdn.southbound.support import WAIT


class RawPeer:
    """A connection to the driver's port; `received` has the types of messages that came."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self.received: list[int] = []
        self._port = port
        self._tls = tls

    async def __aenter__(self) -> Self:
        async with asyncio.timeout(WAIT):
            self.reader, self.writer = await asyncio.open_connection(
                "127.0.0.1", self._port, ssl=self._tls
            )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.writer.transport.abort()

    async def next(self) -> bytes:
        """The next message; raises IncompleteReadError or ConnectionError at the end."""
        async with asyncio.timeout(WAIT):
            head = await self.reader.readexactly(8)
            whole = head + await self.reader.readexactly(peer.header(head).length - 8)
        self.received.append(peer.header(whole).type)
        return whole

    async def introduce(self, dpid: int, auxiliary: int = 0) -> None:
        """Say hello, and answer what the driver asks first."""
        self.writer.write(peer.hello(V1_3))
        await self.next()
        features = peer.header(await self.next())
        self.writer.write(peer.features(V1_3, features.xid, dpid, aux=auxiliary))
        ports = peer.header(await self.next())
        self.writer.write(peer.port_desc(V1_3, ports.xid, peer.port(V1_3, 1)))

    async def until_closed(self) -> None:
        """Read until the driver has closed the connection, and answer its echo requests."""
        try:
            while received := await self.next():
                if self.received[-1] == Type.ECHO_REQUEST:
                    xid = peer.header(received).xid
                    self.writer.write(message(V1_3, Type.ECHO_REPLY, xid))
        except (asyncio.IncompleteReadError, ConnectionError):
            return


async def claim(port: int, dpid: int, tls: ssl.SSLContext | None = None) -> list[int]:
    """Claim a datapath id; returns the types of all messages until the driver has closed."""
    async with RawPeer(port, tls) as raw:
        await raw.introduce(dpid)
        await raw.until_closed()
        return raw.received
