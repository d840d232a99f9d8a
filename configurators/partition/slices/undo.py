"""Undoes a decision on a switch that has carried out only a part of it."""

from collections.abc import Iterable, Sequence

from sdn.tables.flows import Change, FlowEntry, FlowKey, FlowOp, difference


def way_back(
    decided: Iterable[FlowOp], carried_out: Iterable[FlowOp], undo: Iterable[FlowOp]
) -> Sequence[FlowOp]:
    """The operations that bring a switch back to where it was before a decision.

    `decided` are all operations of the decision for this switch, `undo` would take back all of
    them, and `carried_out` are the operations of either that the switch has carried out, in order.
    """
    before: dict[FlowKey, FlowEntry | None] = {}
    for op in (*decided, *undo):
        # Replaying the decision and its undoing ends with the entries as they were before.
        _carry_out(op, before, blindly=True)
    now = dict(before)
    for op in carried_out:
        _carry_out(op, now)
    return difference({"": _there(now)}, {"": _there(before)}).get("", [])


def _carry_out(op: FlowOp, at: dict[FlowKey, FlowEntry | None], blindly: bool = False) -> None:
    key = op.entry.key
    if op.change is Change.DELETE:
        at[key] = None
    elif blindly or op.change is Change.ADD or at.get(key) is not None:
        at[key] = op.entry  # a switch ignores a modification of an entry it lacks


def _there(entries: dict[FlowKey, FlowEntry | None]) -> list[FlowEntry]:
    return [entry for entry in entries.values() if entry is not None]
