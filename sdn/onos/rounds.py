"""Which operations may be sent to ONOS together.

ONOS keeps no order, neither within a request nor between two requests, because it answers before it
has done anything. So operations that must not overtake each other go in rounds, and each round is
confirmed before the next. Rules hide each other by priority: while a fine rule is missing, its
packets match a coarser one. A round ends where such a packet could miss a leg that it has before
and after all operations; all other operations may arrive in any order.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from dzflow.address import ALL, Match
from sdn.tables.flows import Action, Change, FlowEntry, FlowKey, FlowOp


class RuleOp(NamedTuple):
    """An operation on one rule, and the position in the batch of the whole operation."""

    place: int
    op: FlowOp


class Round(NamedTuple):
    """Operations for one request: all add and modify, or all delete."""

    deletes: bool
    ops: list[RuleOp]


class _Spot(NamedTuple):
    """What a rule matches, apart from its priority."""

    table: int
    in_port: int | None
    length: int
    address: int


def split(ops: Sequence[RuleOp], before: Mapping[FlowKey, FlowEntry]) -> list[Round]:
    """The rounds of some operations on a switch that has these entries, in the order given."""
    rounds: list[Round] = []
    overtaking = _Overtaking([step.op for step in ops], before)
    keys: set[FlowKey] = set()
    for step in ops:
        deletes = step.op.change is Change.DELETE
        if (
            not rounds
            or rounds[-1].deletes is not deletes
            or step.op.entry.key in keys
            or overtaking.harms(step.op)
        ):
            rounds.append(Round(deletes, []))
            overtaking.confirm()
            keys.clear()
        rounds[-1].ops.append(step)
        overtaking.send(step.op)
        keys.add(step.op.entry.key)
    return rounds


class _Overtaking:
    """Finds operations that must not overtake those that are in progress."""

    def __init__(self, ops: Sequence[FlowOp], before: Mapping[FlowKey, FlowEntry]) -> None:
        self._before = before
        self._changed: dict[FlowKey, FlowEntry | None] = {
            op.entry.key: None if op.change is Change.DELETE else op.entry for op in ops
        }
        self._lengths = sorted({s.length for op in ops if (s := _spot(op.entry)) is not None})
        self._under_way: dict[_Spot, FlowEntry] = {}
        self._below: dict[_Spot, list[FlowEntry]] = {}

    def confirm(self) -> None:
        """Everything in progress is done."""
        self._under_way.clear()
        self._below.clear()

    def send(self, op: FlowOp) -> None:
        """An operation is in progress."""
        spot = _spot(op.entry)
        if spot is not None:
            self._under_way[spot] = op.entry
            for above in self._above(spot):
                self._below.setdefault(above, []).append(op.entry)

    def harms(self, op: FlowOp) -> bool:
        """Whether an operation must wait for some of those in progress."""
        spot = _spot(op.entry)
        if spot is None:
            return False
        if op.change is Change.DELETE:
            # Its packets would meet a coarser rule that is about to go.
            coarser = (self._under_way.get(above) for above in self._above(spot))
            return any(self._loses(op.entry, other) for other in coarser if other is not None)
        # It would catch packets for which a finer rule is about to come.
        return any(self._loses(finer, op.entry) for finer in self._below.get(spot, ()))

    def _loses(self, fine: FlowEntry, coarse: FlowEntry) -> bool:
        """Whether packets of a rule lose a leg for a time if a coarser one handles them."""
        had, has = self._nearest(fine, {}), self._nearest(fine, self._changed)
        if had is None or has is None:
            return False
        if had.priority > coarse.priority and self._changed.get(had.key, had) is not None:
            return False  # it stays, and goes before the coarser one
        return not _legs(had) & _legs(has) <= _legs(coarse)

    def _nearest(
        self, entry: FlowEntry, changed: Mapping[FlowKey, FlowEntry | None]
    ) -> FlowEntry | None:
        """The entry that handles an entry's packets: itself, or the next coarser one.

        Only priorities that follow the length are looked at; others do not hide each other.
        """
        spot = _spot(entry)
        assert spot is not None
        for length in range(spot.length, -1, -1):
            priority = entry.priority - (spot.length - length)
            mask = _mask(length)
            key = FlowKey(entry.table, priority, entry.in_port, Match(spot.address & mask, mask))
            found = changed[key] if key in changed else self._before.get(key)
            if found is not None:
                return found
        return None

    def _above(self, spot: _Spot) -> Iterable[_Spot]:
        for length in self._lengths:
            if length >= spot.length:
                break
            yield spot._replace(length=length, address=spot.address & _mask(length))


def _spot(entry: FlowEntry) -> _Spot | None:
    match = entry.match
    if match is None:
        return None
    return _Spot(entry.table, entry.in_port, match.mask.bit_count(), match.address)


def _legs(entry: FlowEntry) -> frozenset[Action | int]:
    legs: frozenset[Action | int] = frozenset(entry.actions)
    return legs if entry.goto is None else legs | {entry.goto}


def _mask(length: int) -> int:
    return ALL ^ (ALL >> length)
