"""The hosts of an emulated network: each a UDP endpoint that its applications talk to."""

import asyncio
from collections.abc import Callable
from ipaddress import IPv6Address
from socket import SO_RCVBUF, SOL_SOCKET
from typing import cast

from msgspec import Struct

from dzflow import host_protocol
from dzflow.address import DELIVERY
from dzflow.host_protocol import Members, Peer, Send
from sdn.emulator import frames
from sdn.network.topology import Host

LOOPBACK = "127.0.0.1"

_ROOM = 4 << 20  # bytes of events that may wait to be sent
_DELIVERY_BYTES = DELIVERY.to_bytes(16, "big")


class HostCounters(Struct):
    """The counters of a host."""

    sent: int = 0  # events of its applications
    received: int = 0  # frames from its switch
    delivered: int = 0  # datagrams to its applications
    dropped: int = 0  # malformed or too long datagrams, from elsewhere, or without room


class EmulatedHost:
    """One host; frames that it sends go to `send`."""

    def __init__(self, host: Host, number: int, send: Callable[[Host, bytes], None]) -> None:
        self._number = number
        self.move(host)
        self.counters = HostCounters()
        self._send = send
        self._members = Members()
        self._wire: _Wire | None = None

    def move(self, host: Host) -> None:
        """Be at another port, or have another address, from now on."""
        self.host = host
        self.mac = _mac(host.mac, self._number)
        self.address = int(IPv6Address(host.ipv6)) if host.ipv6 else frames.link_local(self.mac)

    @property
    def endpoint(self) -> Peer | None:
        """Where its applications reach it; None while it is closed."""
        return self._wire.address if self._wire else None

    async def open(self, port: int = 0) -> None:
        """Open the endpoint, on this port if it can be had, else on a free one."""
        loop = asyncio.get_running_loop()
        for trial in (port, 0) if port else (0,):
            try:
                _, self._wire = await loop.create_datagram_endpoint(
                    lambda: _Wire(self._heard, self.counters), (LOOPBACK, trial)
                )
                return
            except OSError:
                if not trial:
                    raise

    async def close(self, timeout: float) -> None:
        """Close the endpoint."""
        if self._wire is not None:
            wire, self._wire = self._wire, None
            wire.transport.abort()
            async with asyncio.timeout(timeout):
                await wire.closed.wait()

    def publish(self, destination: int, payload: bytes) -> None:
        """Send an event."""
        self.counters.sent += 1
        self._send(self.host, frames.event(self.mac, self.address, destination, payload))

    def announce(self) -> None:
        """Announce the host's address, as hosts do when they come up."""
        self._send(self.host, frames.neighbour_advertisement(self.mac, self.address))

    def inject(self, frame: bytes) -> None:
        """Send any frame."""
        self._send(self.host, frame)

    def receive(self, frame: bytes) -> None:
        """Take a frame from the switch; events go to all applications that have joined."""
        self.counters.received += 1
        event = frames.read_event(frame)
        if event is not None:
            self._deliver(*event)
        elif (asker := frames.asks_all(frame)) is not None:
            # It would answer, if it knew the MAC of the sender.
            self._send(self.host, frames.neighbour_solicitation(self.mac, self.address, asker))

    def _deliver(self, destination: bytes, payload: bytes) -> None:
        if self._wire is None:
            return
        datagram = host_protocol.deliver(destination, payload)
        for peer in self._members.present(asyncio.get_running_loop().time()):
            if self._wire.tell(datagram, peer):
                self.counters.delivered += 1

    def _heard(self, said: Send | int, peer: Peer) -> None:
        if isinstance(said, Send):
            if said.destination == DELIVERY:
                self._deliver(_DELIVERY_BYTES, said.payload)
            else:
                self.publish(said.destination, said.payload)
        elif said == host_protocol.LEAVE:
            self._members.leave(peer)
        elif self._wire is not None:
            accepted = self._members.join(peer, asyncio.get_running_loop().time())
            self._wire.tell(host_protocol.joined(accepted), peer)


class _Wire(asyncio.DatagramProtocol):
    """The endpoint of a host."""

    transport: asyncio.DatagramTransport
    address: Peer

    def __init__(self, heard: Callable[[Send | int, Peer], None], counters: HostCounters) -> None:
        self.closed = asyncio.Event()
        self._heard = heard
        self._counters = counters
        self._full = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not an instance of it by name in every version of Python.
        self.transport = cast("asyncio.DatagramTransport", transport)
        self.address = transport.get_extra_info("sockname")[:2]
        # Applications publish in bursts; the kernel gives as much room as the machine allows.
        transport.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_RCVBUF, _ROOM)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.closed.set()

    def datagram_received(self, data: bytes, peer: Peer) -> None:
        said = host_protocol.parse(data) if peer[0] == LOOPBACK else None
        if said is None:
            self._counters.dropped += 1
        else:
            self._heard(said, peer)

    def error_received(self, exc: Exception) -> None:  # noqa: ARG002
        self._counters.dropped += 1

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False

    def tell(self, datagram: bytes, peer: Peer) -> bool:
        """Send a datagram, unless too many wait to be sent already."""
        if self._full:
            self._counters.dropped += 1
            return False
        self.transport.sendto(datagram, peer)
        return True


def _mac(given: str | None, number: int) -> bytes:
    if given is not None:
        return bytes.fromhex(given.replace(":", ""))
    return b"\x02\xd2" + number.to_bytes(4, "big")
