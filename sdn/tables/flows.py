"""Flow entries, groups, and the operations that change them on a switch."""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import NamedTuple

from msgspec import Struct

from dzflow.address import Match, scope_bits

COOKIE_MARK = 0xD2F1  # the first 16 bits of every cookie of ours
_MARK = COOKIE_MARK << 48

NORMAL = 0xFFFFFFFA
"""The port that stands for a switch's own forwarding (OFPP_NORMAL)."""


class Output(Struct, frozen=True, gc=False, cache_hash=True, tag="output"):
    """Send a copy out of a port (never the one the packet came in by)."""

    port: int


class ToGroup(Struct, frozen=True, gc=False, cache_hash=True, tag="group"):
    """Hand a copy to a group."""

    group: int


Action = Output | ToGroup


class FlowKey(NamedTuple):
    """The identity of an entry: two entries of a switch with the same key are the same entry."""

    table: int
    priority: int
    in_port: int | None
    match: Match | None


_new_tuple = tuple.__new__


class FlowEntry(Struct, frozen=True, gc=False):
    """One entry of a flow table: its match, its actions, and the table where the packet goes on.

    Without a match it matches every packet in the table; without actions and `goto`, it drops.
    """

    table: int
    priority: int
    match: Match | None
    actions: tuple[Action, ...] = ()
    goto: int | None = None
    in_port: int | None = None

    @property
    def key(self) -> FlowKey:
        """The key that an operation on this entry names."""
        # As `FlowKey(…)` does it, in half the time.
        return _new_tuple(FlowKey, (self.table, self.priority, self.in_port, self.match))

    @property
    def cookie(self) -> int:
        """Names project, space and index version: our entries differ from those of others."""
        return cookie_of(self.match) if self.match else _MARK


def cookie_of(match: Match) -> int:
    """The cookie of entries with this match."""
    return _MARK | scope_bits(match.address)


class GroupEntry(Struct, frozen=True):
    """The group of a host: rewrites a copy's destination to where all subscribers listen."""

    group: int
    host: str
    port: int


class Change(Enum):
    """What an operation does to an entry."""

    ADD = "add"
    MODIFY = "modify"
    DELETE = "delete"


class FlowOp(Struct, frozen=True, gc=False):
    """One flow operation: the entry as it is to be or, for a deletion, as it was."""

    change: Change
    entry: FlowEntry


class GroupOp(Struct, frozen=True):
    """One operation on a group."""

    change: Change
    group: GroupEntry


Batch = dict[str, list[FlowOp]]
"""Operations by switch; each switch carries out its own in order."""


def count(batches: Iterable[Batch]) -> dict[Change, int]:
    """How many operations of each kind there are."""
    counts = dict.fromkeys(Change, 0)
    for batch in batches:
        for ops in batch.values():
            for op in ops:
                counts[op.change] += 1
    return counts


Sited = tuple[str, FlowOp]
"""An operation with its switch."""


def in_safe_order(adds: list[Sited], modifies: list[Sited], deletes: list[Sited]) -> list[Sited]:
    """Add, then modify, then delete; add fine entries first, delete coarse ones first.

    While entries are added, a packet must not fall to a coarse new one before the finer one that
    it needs is there; while they are deleted, not to an old one that is about to go. Priorities
    rise with fineness where entries hide each other, so they tell the order.
    """
    adds.sort(key=_priority, reverse=True)
    deletes.sort(key=_priority)
    return [*adds, *modifies, *deletes]


def _priority(sited: Sited) -> int:
    return sited[1].entry.priority


def difference(
    before: Mapping[str, Iterable[FlowEntry]], after: Mapping[str, Iterable[FlowEntry]]
) -> Batch:
    """The operations that lead from some entries of each switch to others, in a safe order."""
    batch: Batch = {}
    for switch in {**before, **after}:
        old = {entry.key: entry for entry in before.get(switch, ())}
        new = {entry.key: entry for entry in after.get(switch, ())}
        adds = [(switch, FlowOp(Change.ADD, e)) for key, e in new.items() if key not in old]
        modifies = [
            (switch, FlowOp(Change.MODIFY, e))
            for key, e in new.items()
            if key in old and old[key] != e
        ]
        deletes = [(switch, FlowOp(Change.DELETE, e)) for key, e in old.items() if key not in new]
        ops = [op for _, op in in_safe_order(adds, modifies, deletes)]
        if ops:
            batch[switch] = ops
    return batch
