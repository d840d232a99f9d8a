"""What all messages have in common: header, lengths, and the error for malformed messages."""

from struct import Struct, error
from typing import Any

from dzflow.errors import BadInput
from sdn.openflow.protocol.constants import Multipart, Type

HEADER = Struct("!BBHI")  # version, type, length, xid
MULTIPART = Struct("!BBHIHH4x")  # the header, then type and flags
TYPE_LENGTH = Struct("!HH")
MAX_MESSAGE = 0xFFFF


class MalformedMessage(BadInput):
    """Bytes that are not the OpenFlow message they claim to be: the peer is broken, drop it."""


def message(version: int, kind: Type, xid: int, body: bytes = b"") -> bytes:
    """A whole message."""
    return HEADER.pack(version, kind, HEADER.size + len(body), xid) + body


def multipart(
    version: int, direction: Type, kind: Multipart, xid: int, body: bytes = b"", flags: int = 0
) -> bytes:
    """One message of a multipart request or reply."""
    return MULTIPART.pack(version, direction, MULTIPART.size + len(body), xid, kind, flags) + body


def read(layout: Struct, data: bytes, at: int = 0) -> tuple[Any, ...]:
    """The fields of a layout at a position in a message."""
    try:
        return layout.unpack_from(data, at)
    except error:
        raise MalformedMessage(
            f"a message of {len(data)} bytes ends in the middle of what should be at {at}"
        ) from None


def pad8(length: int) -> int:
    """A length filled up to a multiple of eight."""
    return length + 7 & ~7


def printable(data: bytes) -> str:
    """Text of a switch, for logs: whatever is not printable ASCII becomes a question mark."""
    return "".join(chr(code) if 32 <= code < 127 else "?" for code in data)
