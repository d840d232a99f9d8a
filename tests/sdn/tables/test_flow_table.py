"""Entries by what they match: the look-up finds what a scan would find."""

from hypothesis import given, settings
from hypothesis import strategies as st

from dzflow.address import ALL, Match
from sdn.tables.flow_table import FlowTable
from sdn.tables.flows import FlowKey

addresses = st.integers(0, 7).map(lambda n: n << 125)
masks = st.integers(0, 7).map(lambda n: n << 125)
matches = st.builds(lambda address, mask: Match(address & mask, mask), addresses, masks)
keys = st.builds(
    FlowKey,
    st.integers(0, 1),
    st.integers(0, 3),
    st.none() | st.integers(1, 2),
    st.none() | matches,
)


def holds(key: FlowKey, table: int, address: int | None, port: int) -> bool:
    if key.table != table or key.in_port not in (None, port):
        return False
    return key.match is None or (address is not None and key.match.holds(address))


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), keys), max_size=30),
    st.integers(0, 1),
    st.none() | addresses,
    st.integers(1, 3),
)
def test_the_entries_of_the_highest_priority_are_found(
    changes: list[tuple[bool, FlowKey]], table: int, address: int | None, port: int
) -> None:
    tables = FlowTable[str]()
    for adds, key in changes:
        if adds:
            tables.put(key, str(key))
        elif key in tables.entries:
            assert tables.remove(key) == str(key)
    fitting = [key for key in tables.entries if holds(key, table, address, port)]
    best = max((key.priority for key in fitting), default=None)
    expected = {str(key) for key in fitting if key.priority == best}
    found = tables.matching(table, address, port)
    assert set(found) == expected
    assert len(found) == len(expected)
    assert tables.size(table) == sum(key.table == table for key in tables.entries)


def test_all_ipv6_and_everything_are_not_the_same() -> None:
    tables = FlowTable[str]()
    tables.put(FlowKey(0, 1, None, None), "everything")
    tables.put(FlowKey(0, 1, None, Match(0, 0)), "all of ipv6")
    assert tables.matching(0, None, 1) == ["everything"]
    assert sorted(tables.matching(0, ALL, 1)) == ["all of ipv6", "everything"]


def test_an_emptied_table_is_still_the_first_one() -> None:
    tables = FlowTable[str]()
    for number in (3, 2):
        tables.put(FlowKey(number, 1, None, None), "entry")
    tables.remove(FlowKey(2, 1, None, None))
    assert tables.lowest == 2
    assert tables.matching(2, 0, 1) == []
    tables.clear()
    assert tables.lowest is None
