"""Entries and groups as a switch holds them, and how they are selected."""

from typing import NamedTuple

from msgspec import Struct

from sdn.emulator.actions import Steps
from sdn.emulator.matching import Fields, fields_of_key, parse_match, within
from sdn.openflow.protocol.constants import ALL_TABLES, ANY
from sdn.openflow.protocol.decode import decode_entry
from sdn.openflow.protocol.layouts import FLOW_MOD_READ, MASKED_MATCH, MASKED_MATCH_SIZE
from sdn.openflow.protocol.messages import FlowMod, FlowStat, Foreign
from sdn.openflow.protocol.wire import pad8
from sdn.tables.flows import FlowEntry, FlowKey, Output, ToGroup

_MATCH_AT = FLOW_MOD_READ.size

ForeignKey = tuple[int, int, frozenset[tuple[int, tuple[int, int]]]]
"""Table, priority and fields of an entry whose match is not of the form that we write."""


class Rule(Struct):
    """An entry as the switch holds it; `match` and `instructions` are the bytes that came.

    Replaced when it changes; only the counters are kept up to date in place.
    """

    key: FlowKey | ForeignKey
    cookie: int
    match: bytes
    instructions: bytes
    steps: Steps
    goto: int | None
    packets: int = 0
    octets: int = 0

    @property
    def table(self) -> int:
        """Where it is."""
        return self.key[0]

    @property
    def priority(self) -> int:
        """Which one goes first."""
        return self.key[1]

    @property
    def fields(self) -> Fields:
        """What it matches."""
        return fields_of(self.key)

    @property
    def entry(self) -> FlowEntry | Foreign:
        """The entry in the terms of the control plane."""
        data = self.match + self.instructions
        return decode_entry(data, 0, len(data), self.table, self.priority, False)

    @property
    def stat(self) -> FlowStat:
        """The entry as statistics report it."""
        shown = Foreign(self.table, self.priority, None, self.match, self.instructions)
        return FlowStat(self.cookie, self.packets, self.octets, shown)


class Changed(NamedTuple):
    """A change to a table: the rule before, and the rule after."""

    before: Rule | None
    after: Rule | None


class Group(Struct, frozen=True):
    """A group of type all; `data` are its buckets as they came."""

    number: int
    buckets: tuple[Steps, ...]
    data: bytes


class Selection(Struct, frozen=True):
    """Which entries are meant: those that lie within a match and send to a port or group."""

    table: int = ALL_TABLES
    fields: Fields = {}
    cookie: int = 0
    cookie_mask: int = 0
    out_port: int = ANY
    out_group: int = ANY

    def holds(self, rule: Rule) -> bool:
        """Whether an entry is among them."""
        return (
            self.table in (ALL_TABLES, rule.table)
            and (rule.cookie ^ self.cookie) & self.cookie_mask == 0
            and (self.out_port == ANY or Output(self.out_port) in rule.steps)
            and (self.out_group == ANY or ToGroup(self.out_group) in rule.steps)
            and (not self.fields or within(rule.fields, self.fields))
        )


def fields_of(key: FlowKey | ForeignKey) -> Fields:
    """What an entry with this key matches."""
    return fields_of_key(key) if isinstance(key, FlowKey) else dict(key[2])


def key_of(entry: FlowEntry | Foreign) -> FlowKey | ForeignKey:
    """The key of an entry; raises Refused if its match is one that the switch cannot do."""
    if isinstance(entry, FlowEntry):
        return entry.key
    if entry.key is not None:
        return entry.key
    return entry.table, entry.priority, frozenset(parse_match(entry.match).items())


def selection_of(mod: FlowMod, fields: Fields) -> Selection:
    """The entries that a flow-mod names, with its match read as these fields."""
    return Selection(
        mod.entry.table, fields, mod.cookie, mod.cookie_mask, mod.out_port, mod.out_group
    )


def split_flow_mod(message: bytes) -> tuple[bytes, bytes]:
    """Match (with padding) and instructions of a flow-mod."""
    if message.startswith(MASKED_MATCH, _MATCH_AT):
        after = _MATCH_AT + MASKED_MATCH_SIZE
    else:
        after = _MATCH_AT + pad8(int.from_bytes(message[_MATCH_AT + 2 : _MATCH_AT + 4], "big"))
    return message[_MATCH_AT:after], message[after:]
