"""The switch's side of one connection, without I/O: bytes in, whole messages out, and its state."""

from collections.abc import Iterator, Sequence
from struct import Struct, pack, unpack_from

from msgspec import Struct as Record

from sdn.emulator.monitors import Monitors
from sdn.emulator.refused import BAD_LEN, BAD_PROPERTY, BAD_VERSION, ErrorCode, Refused
from sdn.openflow.protocol import requests
from sdn.openflow.protocol.constants import (
    HELLO_INCOMPATIBLE,
    V1_3,
    ErrorType,
    Role,
    Type,
)
from sdn.openflow.protocol.wire import HEADER, TYPE_LENGTH, MalformedMessage, message, pad8, read

MAX_OUT = 4 << 20
"""Outgoing bytes beyond which no further message is handled."""

_EVERY_REASON = 0xFFFFFFFF
_VERSION_BITMAP = 1
_ASYNC_1_3 = Struct("!6I")


class Wishes(Record):
    """Which asynchronous messages a controller wants: bits for reasons, as master and as slave."""

    packet_in: tuple[int, int] = (_EVERY_REASON, 0)
    port_status: tuple[int, int] = (_EVERY_REASON, _EVERY_REASON)
    role_status: tuple[int, int] = (_EVERY_REASON, _EVERY_REASON)


class ControllerConnection:
    """The connection of one controller: received bytes, and messages to send.

    `version` is 0 until the handshake settles it; `closed` says why the connection has to end.
    """

    def __init__(self, versions: Sequence[int]) -> None:
        self.version = 0
        self.closed: str | None = None
        self.role = Role.EQUAL
        self.monitors = Monitors()
        self.wishes = Wishes()
        self.settings = pack("!HH", 0, 0xFFFF)  # fragments as they come; packet-ins whole
        self.congested = False  # the controller reads too slowly
        self.stalled = False  # received messages wait until the outgoing ones are sent
        self.out_size = 0
        self._versions = tuple(sorted(versions))
        self._buffer = b""
        self._out: list[bytes] = []
        bitmap = sum(1 << version for version in self._versions)
        element = TYPE_LENGTH.pack(_VERSION_BITMAP, 8) + bitmap.to_bytes(4, "big")
        self.send(message(self._versions[-1], Type.HELLO, 1, element))

    @property
    def ready(self) -> bool:
        """Whether the handshake is done and the connection is open."""
        return bool(self.version) and self.closed is None

    def messages(self, data: bytes) -> Iterator[bytes]:
        """The whole messages that have come; stops while there is much to send."""
        data = self._buffer + data if self._buffer else data
        at, end = 0, len(data)
        try:
            while end - at >= 8 and self.out_size < MAX_OUT and self.closed is None:
                version = data[at]
                length = data[at + 2] << 8 | data[at + 3]
                if length < 8 or version != self.version:
                    self._check_header(data[at : at + 8])
                    if self.closed is not None:
                        break
                after = at + length
                if after > end:
                    break
                received = data[at:after]
                at = after
                if self.version:
                    yield received
                else:
                    self._finish_handshake(received)
        finally:
            self._buffer = data[at:] if self.closed is None else b""
            self.stalled = self.out_size >= MAX_OUT

    def send(self, data: bytes) -> None:
        """Append bytes to the outgoing ones."""
        if self.closed is None and data:
            self._out.append(data)
            self.out_size += len(data)

    def refuse(self, error: ErrorCode, received: bytes) -> None:
        """Send an error about a message."""
        *_, xid = HEADER.unpack_from(received)
        self.send(requests.error(self.version, xid, *error, received))

    def outgoing(self) -> bytes:
        """The outgoing bytes since the last call."""
        if not self._out:
            return b""
        data = b"".join(self._out)
        self._out.clear()
        self.out_size = 0
        return data

    def end(self, reason: str) -> None:
        """Handle no more messages; outgoing ones are still sent."""
        if self.closed is None:
            self.closed = reason

    def wants(self, reasons: tuple[int, int], reason: int) -> bool:
        """Whether the controller, in its role, wants messages for this reason."""
        return self.ready and bool(reasons[self.role == Role.SLAVE] >> reason & 1)

    def set_async(self, received: bytes) -> None:
        """Set which asynchronous messages a controller wants."""
        if self.version == V1_3:
            masks = read(_ASYNC_1_3, received, HEADER.size)
            self.wishes.packet_in, self.wishes.port_status = masks[0:2], masks[2:4]
            return
        pairs: dict[int, tuple[int, int]] = {
            0: self.wishes.packet_in,
            1: self.wishes.port_status,
            3: self.wishes.role_status,
        }
        at = HEADER.size
        while at < len(received):
            kind, length = read(TYPE_LENGTH, received, at)
            if length < TYPE_LENGTH.size or at + length > len(received):
                raise MalformedMessage(f"a property of {length} bytes")
            if length != 8:
                raise Refused(BAD_PROPERTY)
            (mask,) = unpack_from("!I", received, at + TYPE_LENGTH.size)
            master, slave = pairs.get(kind >> 1, (0, 0))
            pairs[kind >> 1] = (mask, slave) if kind & 1 else (master, mask)
            at += length
        self.wishes = Wishes(pairs[0], pairs[1], pairs[3])

    def _check_header(self, header: bytes) -> None:
        """Check a header that needs more than the fast path; ends the connection if it is bad."""
        version, kind, length, _ = HEADER.unpack(header)
        if self.version and version != self.version and kind != Type.HELLO:
            self.refuse(BAD_VERSION, header)
            self.end(f"a message of version {version} after {self.version} was settled on")
        elif not self.version and kind not in (Type.HELLO, Type.ERROR):
            self.end(f"the first message is of type {kind} instead of hello")
        elif length < HEADER.size:
            if self.version:
                self.refuse(BAD_LEN, header)
            self.end(f"a message claims to have {length} bytes")

    def _finish_handshake(self, received: bytes) -> None:
        """Settle on a version with the first message, which should be a hello."""
        if received[1] == Type.ERROR:
            self.end("the controller refuses to speak with the switch")
            return
        try:
            version = _common_version(received, self._versions)
        except MalformedMessage as error:
            self.end(str(error))
            return
        if version is None:
            *_, xid = HEADER.unpack_from(received)
            kind, text = ErrorType.HELLO_FAILED, b"no common version"
            self.send(requests.error(self._versions[-1], xid, kind, HELLO_INCOMPATIBLE, text))
            self.end("there is no common version")
            return
        self.version = version


def _common_version(hello: bytes, versions: Sequence[int]) -> int | None:
    """The highest version that both sides know."""
    at = HEADER.size
    while at < len(hello):
        kind, length = read(TYPE_LENGTH, hello, at)
        if length < TYPE_LENGTH.size or at + length > len(hello):
            raise MalformedMessage(f"a hello element of {length} bytes in {len(hello)}")
        if kind == _VERSION_BITMAP and length >= 8:
            bitmap = int.from_bytes(hello[at + 4 : at + 8], "big")
            return max((known for known in versions if bitmap >> known & 1), default=None)
        at += pad8(length)
    version = min(hello[0], max(versions))
    return version if version in versions else None
