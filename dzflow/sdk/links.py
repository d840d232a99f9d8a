"""How events leave and reach an application: by the host's interface, or the emulated one's wire.

Links send from any thread; one thread receives.
"""

import array
import fcntl
import socket
import struct
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, suppress

from dzflow import event_wire
from dzflow.address import DELIVERY, EVENT_PORT
from dzflow.errors import BadInput
from dzflow.sdk.errors import HostFull, NoInterface, Unreachable

HOP_LIMIT = 64  # switches do not count it down; routers, if there are any, do

_BUFFER = 4 << 20  # bytes of events that may wait in the kernel
_MOST_AT_ONCE = 256  # datagrams that are read before others get their turn
_LONGEST = 2_048
_GROUP = DELIVERY.to_bytes(16, "big")
_GROUP_TEXT = socket.inet_ntop(socket.AF_INET6, _GROUP)
_MULTICAST_ALL = 29  # IPV6_MULTICAST_ALL, which Python has no name for
_SIOCGIFFLAGS = 0x8913
_UP, _LOOPBACK, _MULTICAST = 0x1, 0x8, 0x1000


class Link(ABC):
    """A way for events out and in."""

    def __init__(self) -> None:
        self.joined = False  # whether events are received
        self.trouble = False  # whether the other end seems to have moved; who mends it resets it

    @abstractmethod
    def send(self, address: int, payload: bytes) -> None:
        """Send an event into the network."""

    @abstractmethod
    def copy(self, payload: bytes) -> None:
        """Send an event to the applications of the own host, this one too."""

    @abstractmethod
    def join(self) -> None:
        """Begin to receive, or say again that it is wanted; `joined` tells when it is so."""

    @abstractmethod
    def receive(self) -> Iterator[bytes | None]:
        """Payloads that have come, at most some hundred at a time; None for what is not ours."""

    @abstractmethod
    def fileno(self) -> int:
        """What becomes readable when events have come; after `join`."""

    @abstractmethod
    def close(self) -> None:
        """Close it."""


class EmulatedLink(Link):
    """The way by the wire of an emulated host; see `dzflow/event_wire.py`."""

    def __init__(self, wire: str) -> None:
        super().__init__()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._socket.bind(("127.0.0.1", 0))
            _enlarge(self._socket)
            self.connect(wire)
        except BaseException:
            self._socket.close()
            raise

    def connect(self, wire: str) -> None:
        """Use this wire from now on."""
        self._socket.connect(_wire_address(wire))
        self.wire = wire
        self.trouble = False

    def send(self, address: int, payload: bytes) -> None:
        """Send an event into the network."""
        self._tell(event_wire.send(address, payload))

    def copy(self, payload: bytes) -> None:
        """Send an event to the applications of the own host, this one too."""
        self._tell(event_wire.send(DELIVERY, payload))

    def join(self) -> None:
        """Begin to receive, or say again that it is wanted; `joined` tells when it is so."""
        self._tell(bytes((event_wire.VERSION, event_wire.JOIN)))

    def receive(self) -> Iterator[bytes | None]:
        """Payloads that have come, at most some hundred at a time; None for what is not ours."""
        for _ in range(_MOST_AT_ONCE):
            try:
                said = event_wire.parse_delivery(self._socket.recv(_LONGEST, socket.MSG_DONTWAIT))
            except BlockingIOError:
                return
            except ConnectionRefusedError:
                self.trouble = True
                return
            if said is False:
                text = f"at most {event_wire.MAX_MEMBERS} applications of an emulated host receive"
                raise HostFull(f"{text} events; close one, or subscribe from one that is there")
            if said is True:
                self.joined = True
            else:
                yield said

    def fileno(self) -> int:
        """What becomes readable when events have come."""
        return self._socket.fileno()

    def close(self) -> None:
        """Leave the host."""
        if self.joined:
            with suppress(OSError):
                self._socket.send(bytes((event_wire.VERSION, event_wire.LEAVE)))
        self._socket.close()

    def _tell(self, datagram: bytes) -> None:
        try:
            self._socket.send(datagram)
        except ConnectionRefusedError:
            # That is about one before; the emulated network was closed, or started anew elsewhere.
            self.trouble = True
            with suppress(ConnectionRefusedError):
                self._socket.send(datagram)
        except OSError as error:
            raise Unreachable(f"the host's wire {self.wire} cannot be used: {error}") from error


class MulticastLink(Link):
    """The way by an interface of this machine: IPv6 multicast."""

    def __init__(self, interface: str | None = None) -> None:
        super().__init__()
        name = interface or _only_interface()
        try:
            self._index = socket.if_nametoindex(name)
        except OSError as error:
            text = f"this machine has no interface {name!r}; it has {', '.join(_interfaces())}"
            raise NoInterface(text) from error
        self.interface = name
        index = struct.pack("@I", self._index)
        with ExitStack() as opened:
            self._out = opened.enter_context(_udp())
            self._out.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
            self._out.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, HOP_LIMIT)
            # Copies for the own host: with a hop limit of 0 they do not leave it, provided that
            # somebody here has joined the group; so this socket does.
            self._copies = opened.enter_context(_udp())
            self._copies.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
            self._copies.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 0)
            self._copies.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, 1)
            self._copies.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, _GROUP + index)
            self._in = opened.enter_context(_udp())
            self._open = opened.pop_all()

    def send(self, address: int, payload: bytes) -> None:
        """Send an event into the network."""
        text = socket.inet_ntop(socket.AF_INET6, address.to_bytes(16, "big"))
        self._sendto(self._out, payload, text)

    def copy(self, payload: bytes) -> None:
        """Send an event to the applications of the own host, this one too."""
        self._sendto(self._copies, payload, _GROUP_TEXT)

    def join(self) -> None:
        """Begin to receive."""
        if self.joined:
            return
        self._in.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._in.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        # Only what comes by the interface that was named; the kernel's default is any.
        self._in.setsockopt(socket.IPPROTO_IPV6, _MULTICAST_ALL, 0)
        self._in.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
        _enlarge(self._in)
        try:
            self._in.bind(("::", EVENT_PORT))
            index = struct.pack("@I", self._index)
            self._in.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, _GROUP + index)
        except OSError as error:
            text = f"events cannot be received at {self.interface}, port {EVENT_PORT}: {error}"
            raise Unreachable(
                f"{text}; is a program that does not share it using the port?"
            ) from error
        self.joined = True

    def receive(self) -> Iterator[bytes | None]:
        """Payloads that have come, at most some hundred at a time; None for what is not ours."""
        for _ in range(_MOST_AT_ONCE):
            try:
                payload, about, _, _ = self._in.recvmsg(_LONGEST, 64, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            # Whoever knows the machine's address can send it datagrams; the switches do not let
            # these pass as events, and neither do we.
            to_group = any(
                level == socket.IPPROTO_IPV6 and kind == socket.IPV6_PKTINFO and data[:16] == _GROUP
                for level, kind, data in about
            )
            yield payload if to_group else None

    def fileno(self) -> int:
        """What becomes readable when events have come; after `join`."""
        return self._in.fileno()

    def close(self) -> None:
        """Close all sockets."""
        self._open.close()

    def _sendto(self, sender: socket.socket, payload: bytes, address: str) -> None:
        try:
            sender.sendto(payload, (address, EVENT_PORT, 0, self._index))
        except OSError as error:
            raise Unreachable(f"events cannot be sent by {self.interface}: {error}") from error


def _udp() -> socket.socket:
    return socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)


def _enlarge(receiver: socket.socket) -> None:
    """Ask for room for bursts; the kernel gives as much as the machine allows."""
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)


def _wire_address(wire: str) -> tuple[str, int]:
    host, _, port = wire.rpartition(":")
    if not host or not port.isdecimal():
        raise BadInput(f"a host's wire is an address and a port, as 127.0.0.1:40123, got {wire!r}")
    return host, int(port)


def _interfaces() -> list[str]:
    return [name for _, name in socket.if_nameindex()]


def _only_interface() -> str:
    """The one interface that events can go by."""
    with _udp() as asked:
        usable = [name for name in _interfaces() if _can_multicast(asked, name)]
    if len(usable) == 1:
        return usable[0]
    found = f"can be any of {', '.join(usable)}" if usable else "is none that is up"
    text = f"the interface for events {found}; name it (interface=…, --interface)"
    raise NoInterface(text)


def _can_multicast(asked: socket.socket, name: str) -> bool:
    request = array.array("B", struct.pack("16sH22x", name.encode(), 0))
    try:
        fcntl.ioctl(asked.fileno(), _SIOCGIFFLAGS, request)
    except OSError:
        return False  # gone in the meantime
    flags = int.from_bytes(request[16:18], sys.byteorder)
    return bool(flags & _UP and flags & _MULTICAST and not flags & _LOOPBACK)
