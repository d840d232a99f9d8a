"""The way back for a switch that has carried out only a part of what was decided."""

from collections.abc import Iterable, Sequence

from sdn.flows import Change, FlowEntry, FlowKey, FlowOp, difference


def way_back(
    decided: Iterable[FlowOp], carried_out: Iterable[FlowOp], undo: Iterable[FlowOp]
) -> Sequence[FlowOp]:
    """The operations that bring a switch back to where it was before a decision.

    `decided` are all operations of the decision for this switch, `undo` is what would take back all
    of them, and `carried_out` is what the switch has done of either, in order.
    """
    before: dict[FlowKey, FlowEntry | None] = {}
    for op in (*decided, *undo):
        # Where nothing is to be undone, the end is as the beginning was.
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
        at[key] = op.entry  # a switch does not modify what it does not have


def _there(entries: dict[FlowKey, FlowEntry | None]) -> list[FlowEntry]:
    return [entry for entry in entries.values() if entry is not None]
