"""The keys of spaces whose events carry tags, and who publishes there."""

from typing import Any

from msgspec import Struct


class PublishingKey(Struct, frozen=True):
    """The key with which the applications of a host tag their events in a space.

    `stream` is the number under which the caller counts its events. No other caller has the same.
    """

    space: str
    host: str
    key: int
    secret: bytes
    stream: int

    def __repr__(self) -> str:
        return f"PublishingKey({self.space!r}, {self.host!r}, {self.key})"


class SpaceKey(Struct, frozen=True):
    """A secret of a space, from which the keys of its publishers are derived."""

    key: int
    secret: bytes

    def __repr__(self) -> str:
        return f"SpaceKey({self.key})"


class ReceivingKeys(Struct, frozen=True):
    """The keys under which events of a space are genuine; streams before the oldest are not."""

    space: str
    current: int
    keys: list[SpaceKey]
    oldest_stream: int


class Advertised(Struct, frozen=True):
    """What a host advertises."""

    host: str
    filter: Any


class Publishers(Struct, frozen=True):
    """What hosts advertise in a space, and the id after which the next page begins."""

    items: list[Advertised]
    next: str | None
