"""The way back: from whatever a switch has carried out to what it held before."""

from hypothesis import given
from hypothesis import strategies as st

from configurators.partition.slices.undo import way_back
from dzflow.address import Match
from sdn.tables.flows import Change, FlowEntry, FlowKey, FlowOp, Output, difference

Table = dict[FlowKey, FlowEntry]


def entry(key: int, port: int) -> FlowEntry:
    return FlowEntry(1, 100, Match(key, 7), (Output(port),))


@st.composite
def courses(draw: st.DrawFn) -> tuple[Table, list[FlowOp]]:
    """A table, and operations that make sense one after the other."""
    keys, ports = st.integers(0, 4), st.integers(1, 3)
    before = {e.key: e for e in draw(st.lists(st.builds(entry, keys, ports)))}
    now = dict(before)
    ops = []
    for new in draw(st.lists(st.builds(entry, keys, ports), max_size=12)):
        known = now.get(new.key)
        if known is None:
            ops.append(FlowOp(Change.ADD, new))
            now[new.key] = new
        elif draw(st.booleans()):
            ops.append(FlowOp(Change.DELETE, known))
            del now[new.key]
        else:
            ops.append(FlowOp(Change.MODIFY, new))
            now[new.key] = new
    return before, ops


def carry_out(table: Table, ops: list[FlowOp]) -> None:
    """As switches do it: what is not there is neither modified nor deleted."""
    for op in ops:
        key = op.entry.key
        if op.change is Change.ADD or (op.change is Change.MODIFY and key in table):
            table[key] = op.entry
        elif op.change is Change.DELETE:
            table.pop(key, None)


@given(courses(), st.data())
def test_undoing_restores_the_table_whichever_operations_were_refused(
    course: tuple[Table, list[FlowOp]], data: st.DataObject
) -> None:
    before, ops = course
    after = dict(before)
    carry_out(after, ops)
    undo = difference({"": after.values()}, {"": before.values()}).get("", [])
    done = [op for op in ops if data.draw(st.booleans())]
    now = dict(before)
    carry_out(now, done)
    # The way back may itself be refused in part, and is tried again.
    for _ in range(2):
        back = list(way_back(ops, done, undo))
        some = [op for op in back if data.draw(st.booleans())]
        carry_out(now, some)
        done += some
    back = list(way_back(ops, done, undo))
    carry_out(now, back)
    assert now == before
    assert not way_back(ops, [*done, *back], undo)
