"""The datagram of an event: a byte with the version, a byte of flags, an 8-byte id, the event.

The id begins with the number of the space and the version of its index: the last switch has
rewritten the address, so a receiver learns from the id how to read the event. The other 52 bits are
random: nobody can know the id of an event that is yet to come. The event itself is MessagePack, a
map from names to single values.

Flags: COPY marks what a publisher sends to its own host; other datagrams come from the switches.
TAGGED marks a datagram with a proof of its origin: between id and event the length and the name of
the publisher's host, the number of the key, the stream and the event's number in it; behind the
event a tag over all of it (`tags.py`).
"""

import os
from collections.abc import Mapping
from datetime import datetime
from struct import Struct
from typing import Any, NamedTuple

import msgspec
from msgspec.msgpack import Ext

from dzflow.address import MAX_VERSION, VERSION_BITS
from dzflow.host_protocol import MAX_PAYLOAD
from dzflow.sdk.errors import EventTooLarge

VERSION = 1
COPY, TAGGED = 1, 2
TAG_BYTES = 16

_HEAD = Struct("!BBQ")
_PROOF = Struct("!BQQ")  # number of the key, stream, number in the stream
_RANDOM_BITS = 52
_BLOCK = Struct("512Q")  # random numbers that are read at once
_TIMESTAMP = -1  # the code of MessagePack's own extension type
_encode = msgspec.msgpack.Encoder().encode
# An event has no nested values. A decoder that knows this refuses them without descending.
_decode = msgspec.msgpack.Decoder(dict[str, bool | int | float | str]).decode
_decode_with_times = msgspec.msgpack.Decoder(dict[str, bool | int | float | str | Ext]).decode
_decode_time = msgspec.msgpack.Decoder(datetime).decode


class Proof(NamedTuple):
    """Where a tagged event says it comes from; true if the tag belongs to the signed bytes."""

    host: str
    key: int
    stream: int
    number: int
    signed: bytes
    tag: bytes


class Datagram(NamedTuple):
    """An event as it was received."""

    id: int
    event: dict[str, Any]
    copied: bool = False
    proof: Proof | None = None

    @property
    def space(self) -> int:
        """The number of its space."""
        return self.id >> _RANDOM_BITS + VERSION_BITS

    @property
    def version(self) -> int:
        """The version of the space's index under which it was published."""
        return self.id >> _RANDOM_BITS & MAX_VERSION


class EventIds:
    """Ids that nobody can predict, and that no other event is likely to have; thread-safe."""

    def __init__(self) -> None:
        self._random: list[int] = []

    def next(self, space: int, version: int) -> int:
        """An id for an event of this space."""
        try:
            random = self._random.pop()
        except IndexError:
            random = self._read_more()
        return (space << VERSION_BITS | version) << _RANDOM_BITS | random

    def _read_more(self) -> int:
        block: tuple[int, ...] = _BLOCK.unpack(os.urandom(_BLOCK.size))
        first, *more = (number >> 64 - _RANDOM_BITS for number in block)
        self._random.extend(more)
        return first


def encode(event_id: int, event: Mapping[str, object]) -> bytes:
    """The payload of an event; EventTooLarge if it exceeds 1,200 bytes."""
    payload = _HEAD.pack(VERSION, 0, event_id) + _encode(event)
    if len(payload) > MAX_PAYLOAD:
        raise too_large(len(payload))
    return payload


def encode_origin(host: str, key: int, stream: int) -> bytes:
    """The part of tagged datagrams that all events of a stream share; ValueError if it is wrong."""
    name = host.encode()
    try:
        return bytes((len(name),)) + name + bytes((key,)) + stream.to_bytes(8, "big")
    except OverflowError as error:
        raise ValueError(str(error)) from None


def encode_signed(event_id: int, event: Mapping[str, object], origin: bytes, number: int) -> bytes:
    """What the tag of an event covers, and stands before it; EventTooLarge if both do not fit."""
    head = _HEAD.pack(VERSION, TAGGED, event_id)
    signed = head + origin + number.to_bytes(8, "big") + _encode(event)
    if len(signed) > MAX_PAYLOAD - TAG_BYTES:
        raise too_large(len(signed) + TAG_BYTES)
    return signed


def too_large(size: int) -> EventTooLarge:
    """The error for a payload of this size."""
    text = f"the event takes {size} bytes, at most {MAX_PAYLOAD} fit into a datagram"
    return EventTooLarge(f"{text}; shorten its texts, or publish a reference to the data")


def copy(payload: bytes) -> bytes:
    """The same event, marked as a copy for the publisher's own host."""
    return payload[:1] + bytes((payload[1] | COPY,)) + payload[2:]


def decode(payload: bytes) -> Datagram | None:
    """The event in a payload; None if the payload is not an event."""
    if not _HEAD.size < len(payload) <= MAX_PAYLOAD or payload[0] != VERSION:
        return None
    _, flags, event_id = _HEAD.unpack_from(payload)
    if flags > COPY:
        return _decode_tagged(payload, flags, event_id)
    event = _read_event(memoryview(payload)[_HEAD.size :])
    return None if event is None else Datagram(event_id, event, flags == COPY)


def _decode_tagged(payload: bytes, flags: int, event_id: int) -> Datagram | None:
    if flags & ~COPY != TAGGED:
        return None  # a flag of a later version may change the meaning of the rest
    at = _HEAD.size
    named = at + 1 + payload[at]
    begin, end = named + _PROOF.size, len(payload) - TAG_BYTES
    if not begin < end:
        return None
    try:
        host = payload[at + 1 : named].decode()
    except UnicodeDecodeError:
        return None
    event = _read_event(memoryview(payload)[begin:end])
    if event is None:
        return None
    # The tag does not cover the flag COPY: the publisher computes it once for both datagrams.
    signed = payload[:1] + bytes((TAGGED,)) + payload[2:end]
    key, stream, number = _PROOF.unpack_from(payload, named)
    proof = Proof(host, key, stream, number, signed, payload[end:])
    return Datagram(event_id, event, bool(flags & COPY), proof)


def _read_event(data: memoryview) -> dict[str, Any] | None:
    """The event in MessagePack; None if it is not a map from different names to single values."""
    try:
        event: dict[str, Any] = _decode(data)
    except msgspec.ValidationError:
        return _read_event_with_times(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return event if len(event) == _count(data) else None


def _read_event_with_times(data: memoryview) -> dict[str, Any] | None:
    try:
        event: dict[str, Any] = _decode_with_times(data)
        for name, value in event.items():
            if isinstance(value, Ext):
                if value.code != _TIMESTAMP:
                    return None
                event[name] = _decode_time(_encode(value))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return event if len(event) == _count(data) else None


def _count(data: memoryview) -> int:
    """How many names a map says that it has: more than the decoded one if a name occurs twice."""
    first = data[0]
    if first < 0x90:
        return first & 0x0F
    return int.from_bytes(data[1:3] if first == 0xDE else data[1:5], "big")


class RecentIds:
    """The ids of the last events: at least `size`, at most twice as many."""

    def __init__(self, size: int = 1 << 16) -> None:
        self._size = size
        self._new: set[int] = set()
        self._old: set[int] = set()

    def __contains__(self, event_id: int) -> bool:
        return event_id in self._new or event_id in self._old

    def add(self, event_id: int) -> None:
        """Remember an id; the oldest ones may be forgotten."""
        if len(self._new) >= self._size:
            self._old, self._new = self._new, set()
        self._new.add(event_id)
