"""Operations in an order that never leaves a needed path missing."""

from hypothesis import given
from hypothesis import strategies as st

from dzflow.address import Scope
from dzflow.region import Region
from sdn.tables.flows import Change, FlowEntry, Output, difference
from sdn.tables.simulate import SimulatedSwitch

dzs = st.text("01", max_size=4)
entries = st.builds(
    lambda dz, port: FlowEntry(
        1, 100 + len(dz), Scope(1).match(Region.parse(dz), 0), (Output(port),)
    ),
    dzs,
    st.integers(1, 3),
)
tables = st.lists(entries, max_size=8, unique_by=lambda entry: entry.key)


@given(tables, tables)
def test_the_difference_leads_from_one_table_to_the_other(
    before: list[FlowEntry], after: list[FlowEntry]
) -> None:
    switch = SimulatedSwitch("s")
    for ops in (difference({}, {"s": before}), difference({"s": before}, {"s": after})):
        for op in ops.get("s", ()):
            switch.apply(op)
    assert set(switch.entries.values()) == set(after)


@given(tables, tables)
def test_fine_entries_are_added_first_and_coarse_ones_deleted_first(
    before: list[FlowEntry], after: list[FlowEntry]
) -> None:
    ops = difference({"s": before}, {"s": after}).get("s", [])
    kinds = [list(Change).index(op.change) for op in ops]
    assert kinds == sorted(kinds)
    added = [op.entry.priority for op in ops if op.change is Change.ADD]
    deleted = [op.entry.priority for op in ops if op.change is Change.DELETE]
    assert added == sorted(added, reverse=True)
    assert deleted == sorted(deleted)
