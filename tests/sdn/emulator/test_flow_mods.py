"""Flow-mods do to the tables what OpenFlow says."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dzflow.address import ALL, Match
from sdn.emulator.model import SwitchModel
from sdn.emulator.refused import TABLE_FULL
from sdn.openflow.protocol.constants import ALL_TABLES, OUR_COOKIES, V1_3
from sdn.tables.flows import Change, FlowEntry, FlowKey, FlowOp, Output, ToGroup
from tests.sdn.emulator.support import OURS, Wired, add, delete, entry, group, not_strict

WIDE, NARROW, OTHER = entry(0b0, 1), entry(0b00, 2), entry(0b1, 1)


def modify(*entries: FlowEntry) -> list[FlowOp]:
    return [FlowOp(Change.MODIFY, each) for each in entries]


def test_an_entry_that_is_added_is_reported_as_it_was_sent() -> None:
    wired = Wired()
    sent = [
        WIDE,
        entry(table=0, goto=None, actions=()),
        entry(table=0, in_port=3),
        FlowEntry(1, 0, None, goto=2),
        FlowEntry(1, 1, Match(0, 0), (Output(1), Output(2))),
        FlowEntry(1, 5, Match(OURS.address, ALL), (Output(4),)),
    ]
    assert wired.apply(add(*sent)) == []
    assert wired.entries() == set(sent)
    assert set(wired.switch.entries()) == set(sent)


def test_an_entry_with_the_same_match_and_priority_is_overwritten() -> None:
    wired = Wired()
    changed = replace(WIDE, actions=(Output(4),), goto=None)
    wired.apply(add(WIDE, changed))
    assert wired.entries() == {changed}


def test_an_entry_with_another_priority_or_port_is_another_one() -> None:
    wired = Wired()
    others = [WIDE, replace(WIDE, priority=7), replace(WIDE, in_port=1)]
    wired.apply(add(*others))
    assert wired.entries() == set(others)


def test_modifying_changes_what_an_entry_does_and_nothing_else() -> None:
    wired = Wired()
    wired.apply(add(WIDE))
    wired.switch.rules()[0].packets = 5
    changed = replace(WIDE, actions=(Output(3), Output(4)))
    wired.apply(modify(changed))
    (stat,) = wired.stats()
    assert (stat.entry, stat.cookie, stat.packets) == (changed, WIDE.cookie, 5)


def test_modifying_what_is_not_there_does_nothing_and_is_no_error() -> None:
    wired = Wired()
    wired.apply(add(WIDE))
    assert wired.apply(modify(NARROW, replace(WIDE, priority=1))) == []
    assert wired.entries() == {WIDE}


def test_modifying_without_strictness_changes_all_entries_within_the_match() -> None:
    wired = Wired()
    wired.apply(add(WIDE, replace(NARROW, in_port=2), OTHER))
    assert wired.send(not_strict(FlowOp(Change.MODIFY, replace(WIDE, goto=9)))) == []
    assert wired.entries() == {
        replace(WIDE, goto=9),
        replace(NARROW, in_port=2, goto=9),
        OTHER,
    }


def test_a_strict_deletion_takes_exactly_the_entry_that_it_names() -> None:
    wired = Wired()
    wired.apply(add(WIDE, NARROW, replace(WIDE, priority=1), replace(WIDE, in_port=1)))
    assert wired.apply(delete(WIDE)) == []
    assert wired.entries() == {NARROW, replace(WIDE, priority=1), replace(WIDE, in_port=1)}
    assert wired.apply(delete(WIDE)) == []


def test_other_deletions_take_all_entries_within_the_match_whatever_their_priority() -> None:
    wired = Wired()
    wired.apply(add(WIDE, NARROW, replace(WIDE, priority=1), replace(WIDE, in_port=1), OTHER))
    wired.send(not_strict(FlowOp(Change.DELETE, replace(WIDE, priority=9))))
    assert wired.entries() == {OTHER}


def test_a_deletion_in_all_tables() -> None:
    wired = Wired()
    wired.apply(add(WIDE, replace(NARROW, table=5, goto=6), OTHER))
    wired.send(not_strict(FlowOp(Change.DELETE, replace(WIDE, table=ALL_TABLES))))
    assert wired.entries() == {OTHER}
    everything = FlowEntry(ALL_TABLES, 0, None)
    wired.send(not_strict(FlowOp(Change.DELETE, everything)))
    assert wired.entries() == set()


def test_only_entries_whose_cookie_agrees_with_the_mask_are_touched() -> None:
    wired = Wired()
    wired.apply(add(WIDE))
    wired.switch.change(FlowOp(Change.ADD, NARROW), cookie=0x1234)
    everything = FlowOp(Change.DELETE, FlowEntry(ALL_TABLES, 0, None))
    wired.send(not_strict(everything, cookie=0x34, cookie_mask=0xFFFF))
    assert wired.entries() == {WIDE, NARROW}
    # Our own strict deletions spare an entry of another application, though it looks like ours.
    wired.apply(delete(NARROW))
    assert wired.entries() == {WIDE, NARROW}
    wired.send(not_strict(everything, cookie=0x34, cookie_mask=0xFF))
    assert wired.entries() == {WIDE}


@pytest.mark.parametrize(("offset", "number"), [(36, 2), (40, 7)])
def test_only_entries_that_send_to_the_port_or_group_are_deleted(offset: int, number: int) -> None:
    wired = Wired()
    wired.apply_groups(group(7, 1))
    there = replace(WIDE, actions=(Output(2), ToGroup(7)))
    wired.apply(add(there, replace(OTHER, actions=(Output(1),))))
    data = bytearray(not_strict(FlowOp(Change.DELETE, FlowEntry(ALL_TABLES, 0, None))))
    data[offset : offset + 4] = number.to_bytes(4, "big")
    wired.send(bytes(data))
    assert wired.entries() == {replace(OTHER, actions=(Output(1),))}


def test_a_full_table_takes_no_more_but_lets_its_entries_be_changed() -> None:
    wired = Wired(SwitchModel(table_capacity=2))
    (error,) = wired.apply(add(WIDE, NARROW, OTHER, replace(OTHER, table=2, goto=3)))
    assert (error.kind, error.code) == TABLE_FULL
    assert error.table_full
    assert wired.apply(add(replace(WIDE, goto=7))) == []
    assert wired.apply(delete(NARROW) + add(OTHER)) == []
    assert wired.entries() == {replace(WIDE, goto=7), OTHER, replace(OTHER, table=2, goto=3)}


def test_statistics_can_be_asked_for_by_cookie_and_by_table() -> None:
    wired = Wired()
    other_space = FlowEntry(1, 3, Match(0xFF1E_0800 << 96, ALL ^ (ALL >> 32)), goto=4)
    wired.apply(add(WIDE, other_space, replace(NARROW, table=2, goto=3)))
    by_cookie = {stat.entry for stat in wired.stats(other_space.cookie, 0xFFFF)}
    assert by_cookie == {other_space}
    by_table = {stat.entry for stat in wired.stats(OUR_COOKIES, 0xFFFF << 48, 2)}
    assert by_table == {replace(NARROW, table=2, goto=3)}


def test_more_statistics_than_one_message_holds() -> None:
    wired = Wired(version=V1_3)
    many = [entry(n, 16) for n in range(2000)]
    wired.apply(add(*many))
    assert wired.entries() == set(many)


small_entries = st.builds(
    FlowEntry,
    table=st.integers(0, 2),
    priority=st.integers(1, 2),
    match=st.none()
    | st.sampled_from([Match(0, 0), WIDE.match, NARROW.match, OTHER.match, Match(ALL, ALL)]),
    actions=st.lists(st.builds(Output, st.integers(1, 3)), max_size=2).map(tuple),
    goto=st.none() | st.integers(3, 4),
    in_port=st.none() | st.integers(1, 2),
)
steps = st.lists(
    st.tuples(st.sampled_from(Change), st.booleans(), small_entries), min_size=1, max_size=12
)


def lies_within(narrow: FlowEntry, wide: FlowEntry) -> bool:
    if wide.in_port not in (None, narrow.in_port):
        return False
    if wide.match is None:
        return True
    if narrow.match is None:
        return False
    fixed = narrow.match.mask & wide.match.mask == wide.match.mask
    return fixed and wide.match.holds(narrow.match.address)


@settings(deadline=None)
@given(steps)
def test_any_sequence_of_flow_mods_leads_to_what_the_definitions_say(
    sequence: list[tuple[Change, bool, FlowEntry]],
) -> None:
    wired = Wired()
    expected: dict[FlowKey, FlowEntry] = {}
    for change, strict, given_entry in sequence:
        op = FlowOp(change, given_entry)
        if change is Change.ADD or strict:
            assert wired.apply([op]) == []
            named = [key for key in expected if key == given_entry.key]
        else:
            assert wired.send(not_strict(op)) == []
            named = [
                key
                for key, known in expected.items()
                if known.table == given_entry.table and lies_within(known, given_entry)
            ]
        for key in named:
            if change is Change.DELETE:
                del expected[key]
            elif change is Change.MODIFY:
                expected[key] = replace(
                    expected[key], actions=given_entry.actions, goto=given_entry.goto
                )
        if change is Change.ADD:
            expected[given_entry.key] = given_entry
        assert wired.entries() == set(expected.values())
