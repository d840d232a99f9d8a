"""Which operations of a batch wait until those before them are acknowledged. Pure."""

from collections.abc import Iterable, Sequence

from sdn.flows import Change, FlowEntry, FlowOp

LOOKED_AT = 32  # entries that others may be replaced by; with more, all that takes away waits


def held_from(ops: Sequence[FlowOp], start: int) -> int:
    """The place of the first operation that may take away what one before it is to replace.

    Only those from `start` on count: what was before is acknowledged.
    """
    added: list[FlowEntry] = []
    modified: list[FlowEntry] = []
    for place in range(start, len(ops)):
        op = ops[place]
        if op.change is Change.ADD:
            added.append(op.entry)
        elif added and _replaced(op.entry, added):
            return place
        elif op.change is Change.MODIFY:
            modified.append(op.entry)
        elif modified and _replaced(op.entry, modified):
            return place
    return len(ops)


def _replaced(entry: FlowEntry, by: Sequence[FlowEntry]) -> bool:
    return len(by) > LOOKED_AT or _meets(entry, by)


def _meets(entry: FlowEntry, others: Iterable[FlowEntry]) -> bool:
    """Whether a packet can match an entry and one of the others.

    An entry for packets of one port never takes the place of one for any port, nor the other way.
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
