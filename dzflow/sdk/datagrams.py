"""Events as they are on the wire: a byte for the version, a byte of flags, an id, the event.

The id has 8 bytes: 10 bits with the number of the space and 2 with the version of its index, so
that a receiver knows how to read the event (its address was rewritten on the way), and 52 bits that
count up from a random start. The event itself is MessagePack. The one flag there is tells copies
for the publisher's own host from what the switches deliver.
"""

import secrets
from collections.abc import Mapping
from itertools import count
from struct import Struct
from typing import Any, NamedTuple

import msgspec

from dzflow.event_wire import MAX_PAYLOAD
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
        return self.id >> _COUNTER_BITS + 2

    @property
    def version(self) -> int:
        """The version of the space's index under which it was published."""
        return self.id >> _COUNTER_BITS & 3


class EventIds:
    """Gives ids that no other event has had lately, whoever published it. Safe among threads."""

    def __init__(self, start: int | None = None) -> None:
        self._count = count(secrets.randbits(_COUNTER_BITS) if start is None else start)

    def next(self, space: int, version: int) -> int:
        """An id for an event of this space."""
        return space << _COUNTER_BITS + 2 | version << _COUNTER_BITS | next(self._count) & _COUNTER


def encode(event_id: int, event: Mapping[str, object]) -> bytes:
    """The payload of an event; EventTooLarge if it is longer than one may be."""
    payload = _HEAD.pack(VERSION, 0, event_id) + _encode(event)
    if len(payload) > MAX_PAYLOAD:
        text = f"the event takes {len(payload)} bytes, at most {MAX_PAYLOAD} fit into a datagram"
        raise EventTooLarge(f"{text}; shorten its texts, or publish where the data can be had")
    return payload


def copy(payload: bytes) -> bytes:
    """The same event as a copy for the own host."""
    return payload[:1] + bytes((COPY,)) + payload[2:]


def decode(payload: bytes) -> Datagram | None:
    """The event in a payload; None if it is not one of ours."""
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


class Recent:
    """Remembers the ids of the last events, at least `size` and at most twice as many."""

    def __init__(self, size: int = 1 << 16) -> None:
        self._size = size
        self._new: set[int] = set()
        self._old: set[int] = set()

    def seen(self, event_id: int) -> bool:
        """Whether the id was seen before; from now on it was."""
        if event_id in self._new or event_id in self._old:
            return True
        if len(self._new) >= self._size:
            self._old, self._new = self._new, set()
        self._new.add(event_id)
        return False
