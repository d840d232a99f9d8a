"""How applications take part in the emulated network: datagrams between them and their host.

Each host has one UDP endpoint on 127.0.0.1, its wire. An application binds a UDP socket of its own
on 127.0.0.1 and exchanges datagrams with the endpoint. Each datagram begins with a byte for the
version of this protocol, which is 1, and a byte for its type. Then follow, for

- 1 JOIN (to the host): nothing. From now on the application gets what the host gets. It is repeated
  to stay; JOINED tells after how many seconds without it an application is forgotten.
- 2 LEAVE (to the host): nothing.
- 3 SEND (to the host): 16 bytes with the destination, an IPv6 address; then the payload of at most
  1,200 bytes. Who only sends need not have joined. What is sent to ff1e::d2 does not leave the
  host: all its applications that have joined get it, the sender too.
- 4 DELIVER (from the host): 16 bytes with the destination as it arrives, which is ff1e::d2 if the
  switch delivers as it should; then the payload.
- 5 JOINED (from the host), the answer to JOIN: one byte that is 1, or 0 if the host has no room for
  more applications; two bytes (big-endian) with the seconds after which it is forgotten.

What a host sends to an event's address does not come back to its own applications: they get a copy
of their own, sent to ff1e::d2, as on a real network. Datagrams may be lost, as with UDP always.
Those that are malformed, too long or not from 127.0.0.1 are counted and dropped.
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
    """An event that an application wants to be sent."""

    destination: int
    payload: bytes


def parse(datagram: bytes) -> Send | int | None:
    """What an application says: an event, JOIN or LEAVE; None if it is none of these."""
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
    """A datagram that sends an event."""
    return _SEND + destination.to_bytes(_ADDRESS, "big") + payload


def parse_delivery(datagram: bytes) -> bytes | bool | None:
    """What a host says: an event's payload, or whether it took the application in.

    None if it is neither, or was delivered to another address than ff1e::d2.
    """
    if datagram.startswith(_DELIVERED):
        return datagram[len(_DELIVERED) :]
    if len(datagram) == _JOINED.size and datagram[:_HEADER] == bytes((VERSION, JOINED)):
        return datagram[_HEADER] == 1
    return None


def deliver(destination: bytes, payload: bytes) -> bytes:
    """A datagram that delivers an event."""
    return bytes((VERSION, DELIVER)) + destination + payload


def joined(accepted: bool) -> bytes:
    """The answer to JOIN."""
    return _JOINED.pack(VERSION, JOINED, accepted, int(FORGET_AFTER))


class Members:
    """The applications of a host that want its events; those that are silent are forgotten."""

    def __init__(self) -> None:
        self._until: dict[Peer, float] = {}

    def join(self, peer: Peer, now: float) -> bool:
        """Take an application in, or keep it; False if there is no room."""
        if peer not in self._until and len(self.present(now)) >= MAX_MEMBERS:
            return False
        self._until[peer] = now + FORGET_AFTER
        return True

    def leave(self, peer: Peer) -> None:
        """Forget an application, if it is known."""
        self._until.pop(peer, None)

    def present(self, now: float) -> list[Peer]:
        """Those that are there now."""
        for peer in [peer for peer, until in self._until.items() if until <= now]:
            del self._until[peer]
        return list(self._until)
