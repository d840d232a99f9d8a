"""The datagram of an event: a byte with the version, a byte of flags, an 8-byte id, the event.

The id begins with the number of the space and the version of its index: the last switch has
rewritten the address, so a receiver learns from the id how to read the event. The other 52 bits
count up from a random start. The event itself is MessagePack. The only flag marks copies that a
publisher sends to its own host; other datagrams come from the switches.
"""

import secrets
from collections.abc import Mapping
from itertools import count
from struct import Struct
from typing import Any, NamedTuple

import msgspec

from dzflow.address import MAX_VERSION, VERSION_BITS
from dzflow.host_protocol import MAX_PAYLOAD
from dzflow.sdk.errors import EventTooLarge

VERSION = 1
COPY = 1

_HEAD = Struct("!BBQ")
_COUNTER_BITS = 52
_COUNTER = (1 << _COUNTER_BITS) - 1
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


class Datagram(NamedTuple):
    """An event as it was received."""

    id: int
    event: dict[str, Any]
    copied: bool = False

    @property
    def space(self) -> int:
        """The number of its space."""
        return self.id >> _COUNTER_BITS + VERSION_BITS

    @property
    def version(self) -> int:
        """The version of the space's index under which it was published."""
        return self.id >> _COUNTER_BITS & MAX_VERSION


class EventIds:
    """Ids that no other publisher is likely to use at the same time; thread-safe."""

    def __init__(self, start: int | None = None) -> None:
        self._count = count(secrets.randbits(_COUNTER_BITS) if start is None else start)

    def next(self, space: int, version: int) -> int:
        """An id for an event of this space."""
        scope = space << VERSION_BITS | version
        return scope << _COUNTER_BITS | next(self._count) & _COUNTER


def encode(event_id: int, event: Mapping[str, object]) -> bytes:
    """The payload of an event; EventTooLarge if it exceeds 1,200 bytes."""
    payload = _HEAD.pack(VERSION, 0, event_id) + _encode(event)
    if len(payload) > MAX_PAYLOAD:
        text = f"the event takes {len(payload)} bytes, at most {MAX_PAYLOAD} fit into a datagram"
        raise EventTooLarge(f"{text}; shorten its texts, or publish a reference to the data")
    return payload


def copy(payload: bytes) -> bytes:
    """The same event, marked as a copy for the publisher's own host."""
    return payload[:1] + bytes((COPY,)) + payload[2:]


def decode(payload: bytes) -> Datagram | None:
    """The event in a payload; None if the payload is not an event."""
    if not _HEAD.size < len(payload) <= MAX_PAYLOAD or payload[0] != VERSION:
        return None
    try:
        event = _decode(memoryview(payload)[_HEAD.size :])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if not isinstance(event, dict):
        return None
    _, flags, event_id = _HEAD.unpack_from(payload)
    return Datagram(event_id, event, bool(flags & COPY))


class RecentIds:
    """The ids of the last events: at least `size`, at most twice as many."""

    def __init__(self, size: int = 1 << 16) -> None:
        self._size = size
        self._new: set[int] = set()
        self._old: set[int] = set()

    def check_and_add(self, event_id: int) -> bool:
        """Whether the id is known; if not, it is added."""
        if event_id in self._new or event_id in self._old:
            return True
        if len(self._new) >= self._size:
            self._old, self._new = self._new, set()
        self._new.add(event_id)
        return False
