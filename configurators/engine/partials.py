"""Requests as the engine takes them: partials, the parts that belong to one partition."""

from enum import Enum

from msgspec import Struct

from dzflow.region import Region


class Kind(Enum):
    """What a partial asks for.

    `removes` says whether entries can only become fewer, so that fine regions go first.
    """

    SUBSCRIBE = "subscribe"
    UNSUBSCRIBE = "unsubscribe"
    ADVERTISE = "advertise"
    UNADVERTISE = "unadvertise"
    UPDATE = "update"

    removes: bool

    def __init__(self, name: str) -> None:
        self.removes = name.startswith("un")


class Partial(Struct, frozen=True):
    """The part of a request that belongs to one partition.

    Removals need only kind and id. An update replaces the regions of a subscription or an
    advertisement. `edge` holds the advertised regions whose admission entries belong to this
    partition; other partitions are told of the advertisement without them.
    """

    kind: Kind
    id: str
    host: str = ""
    regions: tuple[Region, ...] = ()
    edge: tuple[Region, ...] = ()


class Request(Struct, frozen=True):
    """An active subscription or advertisement as a whole, over all partitions."""

    advertised: bool
    id: str
    host: str
    regions: tuple[Region, ...]
