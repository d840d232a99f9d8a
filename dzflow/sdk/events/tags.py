"""Tags events, and finds out which numbers of a stream were seen before; without I/O."""

from collections.abc import Mapping
from hashlib import blake2b
from itertools import count

from dzflow.sdk.events import datagrams

_PERSON = b"dzflow event"
_WINDOW = 4_096  # numbers behind the highest one of a stream that may still arrive
_ALL = (1 << _WINDOW) - 1


class TagHash:
    """Computes the tags under one key."""

    def __init__(self, key: bytes) -> None:
        self._keyed = blake2b(key=key, digest_size=datagrams.TAG_BYTES, person=_PERSON)

    def tag(self, signed: bytes) -> bytes:
        """The tag of these bytes."""
        hash = self._keyed.copy()
        hash.update(signed)
        return hash.digest()


class Signer:
    """Tags the events that a process publishes in a space; thread-safe."""

    def __init__(self, host: str, key: int, secret: bytes, stream: int) -> None:
        self.key = key
        self._origin = datagrams.encode_origin(host, key, stream)
        self._hash = TagHash(secret)
        self._numbers = count()

    def encode(self, event_id: int, event: Mapping[str, object]) -> bytes:
        """The payload of an event, with its tag; EventTooLarge if it exceeds 1,200 bytes."""
        signed = datagrams.encode_signed(event_id, event, self._origin, next(self._numbers))
        return signed + self._hash.tag(signed)


class ReplayWindow:
    """The numbers of a stream that were seen; numbers far behind the highest one count as seen."""

    __slots__ = ("_highest", "_seen")

    def __init__(self) -> None:
        self._highest = -1
        self._seen = 0  # a bit for each number; the lowest bit is the highest number

    def __contains__(self, number: int) -> bool:
        behind = self._highest - number
        return behind >= 0 and (behind >= _WINDOW or bool(self._seen >> behind & 1))

    def add(self, number: int) -> None:
        """Count a number as seen."""
        ahead = number - self._highest
        if ahead <= -_WINDOW:
            return
        if ahead <= 0:
            self._seen |= 1 << -ahead
        else:
            self._seen = (self._seen << ahead & _ALL | 1) if ahead < _WINDOW else 1
            self._highest = number
