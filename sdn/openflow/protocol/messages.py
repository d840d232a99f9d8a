"""The contents of messages: entries, groups, ports and features as switches report them."""

from msgspec import Struct

from sdn.openflow.protocol.constants import MAX_PORT
from sdn.tables.flows import FlowEntry, FlowKey


class Foreign(Struct, frozen=True, gc=False):
    """An entry that is not of a form we write; `key` is given if its match alone would be ours.

    `match` (with padding) and `instructions` are the bytes as they came.
    """

    table: int
    priority: int
    key: FlowKey | None
    match: bytes
    instructions: bytes


class FlowStat(Struct, frozen=True, gc=False):
    """One entry as a switch reports it."""

    cookie: int
    packets: int
    octets: int
    entry: FlowEntry | Foreign


class FlowMod(Struct, frozen=True, gc=False):
    """A flow-mod as a switch receives it; deletions of ours carry no instructions."""

    xid: int
    command: int
    cookie: int
    cookie_mask: int
    out_port: int
    out_group: int
    flags: int
    entry: FlowEntry | Foreign


class GroupMod(Struct, frozen=True, gc=False):
    """A group-mod as a switch receives it: a host's group with its port, or a `foreign` one.

    A deletion has no port and is never foreign.
    """

    xid: int
    command: int
    group: int
    port: int | None
    foreign: bool


class GroupDesc(Struct, frozen=True, gc=False):
    """A group as a switch reports it: the port of a host's group, None for any other form."""

    group: int
    port: int | None


class Port(Struct, frozen=True, gc=False):
    """A port as a switch describes it; it is up if neither the link nor a command took it down."""

    number: int
    name: str
    mac: str
    up: bool

    @property
    def real(self) -> bool:
        """Whether it is a port of the switch and not a name for something else, like `local`."""
        return 0 < self.number <= MAX_PORT


class TableFeature(Struct, frozen=True):
    """What a table can do, as far as we need it.

    `masks`: whether it matches IPv6 destinations with any mask. `goes_to`: the tables that may
    follow it.
    """

    table: int
    name: str
    max_entries: int
    in_port: bool
    ipv6_dst: bool
    masks: bool
    output: bool
    groups: bool
    goes_to: frozenset[int]
