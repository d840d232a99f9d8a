"""The datagrams between applications and their host on the emulated network.

Each host has one UDP endpoint on 127.0.0.1. An application binds its own UDP socket on 127.0.0.1
and exchanges datagrams with the endpoint. Each datagram begins with a byte for the version of this
protocol, which is 1, and a byte for its type. The types are

- 1 JOIN (to the host): no content. From now on the application gets the events of the host. It
  repeats JOIN to stay a member.
- 2 LEAVE (to the host): no content.
- 3 SEND (to the host): 16 bytes with the destination, an IPv6 address; then the payload of at most
  1,200 bytes. An application that only sends need not join. A payload for ff1e::d2 does not leave
  the host: all its members get it, including the sender.
- 4 DELIVER (from the host): 16 bytes with the destination of the packet, which is ff1e::d2 if the
  switch works as it should; then the payload.
- 5 JOINED (from the host), the answer to JOIN: one byte that is 1, or 0 if the host has no room for
  more applications; two bytes (big-endian) with the seconds after which the host forgets a
  member that does not repeat JOIN.

A host does not deliver an event to its own applications when it sends the event into the network.
As on a real network, the publisher sends them a copy, to ff1e::d2. Datagrams may be lost, as always
with UDP. The host counts and drops datagrams that are malformed, too long or not from 127.0.0.1.

The protocol has no credentials: every program on the machine can send and receive as any host, and
take up the host's room for applications. The switch still checks what a host may publish, and other
machines do not reach the endpoints. The emulated network is for development and tests on a trusted
machine. On a real network, the port of its switch identifies a host.
"""

from struct import Struct
from typing import NamedTuple

from dzflow.address import DELIVERY

VERSION = 1
JOIN, LEAVE, SEND, DELIVER, JOINED = 1, 2, 3, 4, 5

MAX_PAYLOAD = 1200
MAX_MEMBERS = 64
FORGET_AFTER = 30.0

_HEADER = 2
_ADDRESS = 16
_JOINED = Struct("!BBBH")
_SEND = bytes((VERSION, SEND))
_DELIVERED = bytes((VERSION, DELIVER)) + DELIVERY.to_bytes(_ADDRESS, "big")

Peer = tuple[str, int]


class Send(NamedTuple):
    """A SEND datagram."""

    destination: int
    payload: bytes


def parse(datagram: bytes) -> Send | int | None:
    """Read a datagram from an application: an event, JOIN or LEAVE; None for anything else."""
    if len(datagram) < _HEADER or datagram[0] != VERSION:
        return None
    kind = datagram[1]
    if kind == SEND:
        payload = len(datagram) - _HEADER - _ADDRESS
        if not 0 <= payload <= MAX_PAYLOAD:
            return None
        destination = int.from_bytes(datagram[_HEADER : _HEADER + _ADDRESS], "big")
        return Send(destination, datagram[_HEADER + _ADDRESS :])
    return kind if kind in (JOIN, LEAVE) and len(datagram) == _HEADER else None


def send(destination: int, payload: bytes) -> bytes:
    """A SEND datagram."""
    return _SEND + destination.to_bytes(_ADDRESS, "big") + payload


def parse_delivery(datagram: bytes) -> bytes | bool | None:
    """Read a datagram from a host: the payload of an event, or whether the host accepted a JOIN.

    None for anything else, also for an event with another destination than ff1e::d2.
    """
    if datagram.startswith(_DELIVERED):
        return datagram[len(_DELIVERED) :]
    if len(datagram) == _JOINED.size and datagram[:_HEADER] == bytes((VERSION, JOINED)):
        return datagram[_HEADER] == 1
    return None


def deliver(destination: bytes, payload: bytes) -> bytes:
    """A DELIVER datagram."""
    return bytes((VERSION, DELIVER)) + destination + payload


def joined(accepted: bool) -> bytes:
    """The answer to JOIN."""
    return _JOINED.pack(VERSION, JOINED, accepted, int(FORGET_AFTER))


class Members:
    """The applications that receive a host's events; silent ones are forgotten."""

    def __init__(self) -> None:
        self._until: dict[Peer, float] = {}

    def join(self, peer: Peer, now: float) -> bool:
        """Add or keep an application; False if there is no room."""
        if peer not in self._until and len(self.present(now)) >= MAX_MEMBERS:
            return False
        self._until[peer] = now + FORGET_AFTER
        return True

    def leave(self, peer: Peer) -> None:
        """Remove an application, if it is a member."""
        self._until.pop(peer, None)

    def present(self, now: float) -> list[Peer]:
        """The members at this time."""
        for peer in [peer for peer, until in self._until.items() if until <= now]:
            del self._until[peer]
        return list(self._until)
