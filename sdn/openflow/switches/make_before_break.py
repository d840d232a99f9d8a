"""Make-before-break: which operations wait until those before them are acknowledged. Pure.

Where a table may be full, an operation that removes an entry must not be sent together with the
one that adds its replacement: if the switch refused the replacement, events would be lost.
"""

from collections.abc import Iterable, Sequence

from sdn.tables.flows import Change, FlowEntry, FlowOp

MOST_COMPARED = 32  # replacements; with more of them, every removal waits without a comparison


def hold_from(ops: Sequence[FlowOp], start: int) -> int:
    """The position of the first operation that may remove what an earlier one replaces.

    Operations before `start` are acknowledged already and do not count. Returns the number of
    operations if none has to wait.
    """
    added: list[FlowEntry] = []
    modified: list[FlowEntry] = []
    for position in range(start, len(ops)):
        op = ops[position]
        if op.change is Change.ADD:
            added.append(op.entry)
        elif added and _may_be_replaced(op.entry, added):
            return position
        elif op.change is Change.MODIFY:
            modified.append(op.entry)
        elif modified and _may_be_replaced(op.entry, modified):
            return position
    return len(ops)


def _may_be_replaced(entry: FlowEntry, by: Sequence[FlowEntry]) -> bool:
    return len(by) > MOST_COMPARED or _overlaps(entry, by)


def _overlaps(entry: FlowEntry, others: Iterable[FlowEntry]) -> bool:
    """Whether a packet can match an entry and one of the others.

    An entry for packets of one port never replaces one for any port, nor the other way round.
    """
    table, port, match = entry.table, entry.in_port, entry.match
    for other in others:
        if other.table == table and other.in_port == port:
            its = other.match
            if its is None or match is None:
                return True
            if not (match.address ^ its.address) & match.mask & its.mask:
                return True
    return False
