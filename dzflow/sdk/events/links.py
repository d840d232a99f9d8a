"""Links carry events between an application and the network.

`MulticastLink` uses a network interface, `EmulatedLink` the endpoint of an emulated host. Any
thread may send; one thread receives.
"""

import array
import fcntl
import socket
import struct
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from typing import Any

from dzflow import host_protocol
from dzflow.address import DELIVERY, EVENT_PORT
from dzflow.errors import BadInput
from dzflow.sdk.errors import HostFull, NoInterface, Unreachable

HOP_LIMIT = 64  # switches do not decrement it; routers, if there are any, do

_BUFFER = 4 << 20  # bytes of received events that the kernel may queue
_MOST_AT_ONCE = 256  # datagrams that are read in one turn of the event loop
_LONGEST = 2_048
_GROUP = DELIVERY.to_bytes(16, "big")
_GROUP_TEXT = socket.inet_ntop(socket.AF_INET6, _GROUP)
_MULTICAST_ALL = 29  # IPV6_MULTICAST_ALL; the socket module lacks it
_SIOCGIFFLAGS = 0x8913
_UP, _LOOPBACK, _MULTICAST = 0x1, 0x8, 0x1000  # interface flags


class Link(ABC):
    """Sends and receives events."""

    def __init__(self) -> None:
        self.joined = False  # whether events are received

    @abstractmethod
    def send(self, address: int, payload: bytes) -> None:
        """Send an event into the network."""

    @abstractmethod
    def copy(self, payload: bytes) -> None:
        """Send an event to all applications of this host, including this one."""

    @abstractmethod
    def join(self) -> None:
        """Begin or continue to receive; `joined` tells whether the host has accepted."""

    @abstractmethod
    def receive(self) -> Iterator[bytes | None]:
        """The payloads that have arrived, up to a few hundred; None for a foreign datagram."""

    @abstractmethod
    def fileno(self) -> int:
        """The file descriptor that becomes readable when events arrive; after `join`."""

    @abstractmethod
    def close(self) -> None:
        """Close all sockets."""


def open_link(host: Mapping[str, Any], interface: str | None = None) -> "Link":
    """The link of a host as the REST interface describes it; emulated hosts have an endpoint."""
    endpoint = host.get("wire")
    return EmulatedLink(endpoint) if endpoint else MulticastLink(interface)


class EmulatedLink(Link):
    """A link to the endpoint of an emulated host; it speaks `dzflow/host_protocol.py`."""

    def __init__(self, endpoint: str) -> None:
        super().__init__()
        self.unanswered = False  # whether nothing listens at the endpoint any more
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._socket.bind(("127.0.0.1", 0))
            _enlarge(self._socket)
            self.connect(endpoint)
        except BaseException:
            self._socket.close()
            raise

    def connect(self, endpoint: str) -> None:
        """Use this endpoint from now on."""
        self._socket.connect(_socket_address(endpoint))
        self._endpoint = endpoint
        self.unanswered = False

    def send(self, address: int, payload: bytes) -> None:
        """Send an event into the network."""
        self._send(host_protocol.send(address, payload))

    def copy(self, payload: bytes) -> None:
        """Send an event to all applications of this host, including this one."""
        self._send(host_protocol.send(DELIVERY, payload))

    def join(self) -> None:
        """Begin or continue to receive; `joined` tells whether the host has accepted."""
        self._send(bytes((host_protocol.VERSION, host_protocol.JOIN)))

    def receive(self) -> Iterator[bytes | None]:
        """The payloads that have arrived, up to a few hundred; None for a foreign datagram."""
        for _ in range(_MOST_AT_ONCE):
            try:
                datagram = self._socket.recv(_LONGEST, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except ConnectionRefusedError:
                self.unanswered = True
                return
            answer = host_protocol.parse_delivery(datagram)
            if answer is False:
                text = (
                    f"at most {host_protocol.MAX_MEMBERS} applications of an emulated host receive"
                )
                raise HostFull(f"{text} events; close one, or use its client to subscribe")
            if answer is True:
                self.joined = True
            else:
                yield answer

    def fileno(self) -> int:
        """The file descriptor that becomes readable when events arrive."""
        return self._socket.fileno()

    def close(self) -> None:
        """Leave the host."""
        if self.joined:
            with suppress(OSError):
                self._socket.send(bytes((host_protocol.VERSION, host_protocol.LEAVE)))
        self._socket.close()

    def _send(self, datagram: bytes) -> None:
        try:
            self._socket.send(datagram)
        except ConnectionRefusedError:
            # The kernel reports the fate of an earlier datagram: nothing listens there any more.
            self.unanswered = True
            with suppress(ConnectionRefusedError):
                self._socket.send(datagram)
        except OSError as error:
            text = f"cannot send to the host's endpoint {self._endpoint}: {error}"
            raise Unreachable(text) from error


class MulticastLink(Link):
    """A link over a network interface of this machine, by IPv6 multicast."""

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
            # A hop limit of 0 keeps copies on this host, provided that a socket of the host has
            # joined the group: without a member the kernel would send them out.
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
        """Send an event to all applications of this host, including this one."""
        self._sendto(self._copies, payload, _GROUP_TEXT)

    def join(self) -> None:
        """Begin to receive."""
        if self.joined:
            return
        self._in.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._in.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        # Accept datagrams of the chosen interface only; the kernel's default is any.
        self._in.setsockopt(socket.IPPROTO_IPV6, _MULTICAST_ALL, 0)
        self._in.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
        _enlarge(self._in)
        try:
            self._in.bind(("::", EVENT_PORT))
            index = struct.pack("@I", self._index)
            self._in.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, _GROUP + index)
        except OSError as error:
            text = f"cannot receive events at {self.interface}, port {EVENT_PORT}: {error}"
            raise Unreachable(f"{text}; does another program hold the port exclusively?") from error
        self.joined = True

    def receive(self) -> Iterator[bytes | None]:
        """The payloads that have arrived, up to a few hundred; None for a foreign datagram."""
        for _ in range(_MOST_AT_ONCE):
            try:
                payload, about, _, _ = self._in.recvmsg(_LONGEST, 64, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            # Anyone can send datagrams to the machine's own address. Events come to the group.
            to_group = any(
                level == socket.IPPROTO_IPV6 and kind == socket.IPV6_PKTINFO and data[:16] == _GROUP
                for level, kind, data in about
            )
            yield payload if to_group else None

    def fileno(self) -> int:
        """The file descriptor that becomes readable when events arrive; after `join`."""
        return self._in.fileno()

    def close(self) -> None:
        """Close all sockets."""
        self._open.close()

    def _sendto(self, sender: socket.socket, payload: bytes, address: str) -> None:
        try:
            sender.sendto(payload, (address, EVENT_PORT, 0, self._index))
        except OSError as error:
            raise Unreachable(f"cannot send events over {self.interface}: {error}") from error


def _udp() -> socket.socket:
    return socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)


def _enlarge(receiver: socket.socket) -> None:
    """Ask the kernel to queue bursts; net.core.rmem_max limits it."""
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)


def _socket_address(endpoint: str) -> tuple[str, int]:
    address, _, port = endpoint.rpartition(":")
    if not address or not port.isdecimal():
        text = "an endpoint is an address and a port, such as 127.0.0.1:40123"
        raise BadInput(f"{text}, got {endpoint!r}")
    return address, int(port)


def _interfaces() -> list[str]:
    return [name for _, name in socket.if_nameindex()]


def _only_interface() -> str:
    """The only interface that is up and can multicast; NoInterface if there is not exactly one."""
    with _udp() as probe:
        usable = [name for name in _interfaces() if _can_multicast(probe, name)]
    if len(usable) == 1:
        return usable[0]
    if usable:
        text = f"events could use any of the interfaces {', '.join(usable)}"
    else:
        text = "no interface that is up can multicast"
    raise NoInterface(f"{text}; name one (interface=…, --interface)")


def _can_multicast(probe: socket.socket, name: str) -> bool:
    request = array.array("B", struct.pack("16sH22x", name.encode(), 0))
    try:
        fcntl.ioctl(probe.fileno(), _SIOCGIFFLAGS, request)
    except OSError:
        return False  # the interface is gone
    flags = int.from_bytes(request[16:18], sys.byteorder)
    return bool(flags & _UP and flags & _MULTICAST and not flags & _LOOPBACK)
