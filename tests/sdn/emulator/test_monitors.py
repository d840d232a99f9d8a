"""The flow monitor tells of every change to the tables, of one's own by the xid only."""

import struct
from typing import Any

import pytest
from msgspec.structs import replace

from sdn.emulator import refused
from sdn.openflow.protocol.constants import ALL_TABLES, ANY, V1_4, FlowEvent, Multipart, Type
from sdn.openflow.protocol.events import (
    Event,
    FlowUpdated,
    MonitorPaused,
    MonitorResumed,
    SwitchError,
)
from sdn.openflow.protocol.wire import multipart
from sdn.tables.flows import Change, FlowEntry, FlowOp, Output, ToGroup
from tests.sdn.emulator.support import Wired, add, delete, entry, group, not_strict
from tests.sdn.openflow.peer import split
from tests.sdn.openflow.reference import Datapath

THEIRS = 0x1234
INITIAL, ADDED, REMOVED, MODIFIED, INSTRUCTIONS, IN_FULL, ONLY_OWN = (1 << n for n in range(7))
CHANGES = ADDED | REMOVED | MODIFIED | INSTRUCTIONS


def monitoring() -> Wired:
    wired = Wired()
    wired.session.start_flow_monitor()
    assert wired.pump() == []
    return wired


def start(
    wired: Wired,
    flags: int,
    table: int = ALL_TABLES,
    out_port: int = ANY,
    command: int = 0,
    number: int = 1,
) -> list[Event]:
    """Start a monitor with any wishes."""
    body = struct.pack("!IIIHBBHH4x", number, out_port, ANY, flags, table, command, 1, 4)
    wired.session.start_flow_monitor()
    wired.session.outgoing()  # the switch gets the request below instead
    return wired.send(multipart(V1_4, Type.MULTIPART_REQUEST, Multipart.FLOW_MONITOR, 9, body))


def theirs(wired: Wired, change: Change, changed: FlowEntry) -> list[Event]:
    wired.switch.change(FlowOp(change, changed), cookie=THEIRS)
    return wired.pump()


def without_instructions(entry: FlowEntry) -> FlowEntry:
    return replace(entry, actions=(), goto=None)


def test_changes_by_others_are_told_in_full() -> None:
    wired = monitoring()
    changed = replace(entry(), actions=(Output(4),))
    assert theirs(wired, Change.ADD, entry()) == [FlowUpdated(Change.ADD, THEIRS, entry())]
    assert theirs(wired, Change.MODIFY, changed) == [FlowUpdated(Change.MODIFY, THEIRS, changed)]
    gone = without_instructions(changed)
    assert theirs(wired, Change.DELETE, changed) == [FlowUpdated(Change.DELETE, THEIRS, gone)]


def test_an_entry_that_is_overwritten_is_told_as_modified() -> None:
    wired = monitoring()
    theirs(wired, Change.ADD, entry())
    changed = replace(entry(), actions=(Output(4),))
    assert theirs(wired, Change.ADD, changed) == [FlowUpdated(Change.MODIFY, THEIRS, changed)]


def test_what_changes_nothing_is_not_told() -> None:
    wired = monitoring()
    assert theirs(wired, Change.DELETE, entry()) == []
    assert theirs(wired, Change.MODIFY, entry()) == []


def raw_answers(wired: Wired) -> list[Any]:
    """What the session has to say, and the answers of the switch as os-ken reads them."""
    wired.switch.feed(wired.connection, wired.session.outgoing(), 0.0)
    return [Datapath(V1_4).parse(each) for each in split(wired.connection.outgoing())]


def test_ones_own_changes_are_told_by_their_xid_before_the_barrier() -> None:
    wired = monitoring()
    sent = wired.session.send_ops(add(entry(0), entry(1)) + delete(entry(0), entry(5)))
    *told, barrier = raw_answers(wired)
    assert barrier.xid == sent.barrier_xid
    # The last one deletes nothing.
    updates = [(each.event, each.xid) for reply in told for each in reply.body]
    assert updates == [(FlowEvent.ABBREV, sent.first_xid + n) for n in range(3)]


def test_a_message_that_changes_many_entries_is_told_once() -> None:
    wired = monitoring()
    wired.apply(add(entry(0, 2), entry(0, 3)))
    deletion = not_strict(FlowOp(Change.DELETE, entry(0, 1)))
    wired.switch.feed(wired.connection, deletion, 0.0)
    (told,) = raw_answers(wired)
    assert [(each.event, each.xid) for each in told.body] == [(FlowEvent.ABBREV, 77)]
    assert wired.entries() == set()


def test_changes_of_another_controller_are_told_in_full() -> None:
    wired = monitoring()
    other = Wired(switch=wired.switch)
    other.apply(add(entry()))
    assert wired.pump() == [FlowUpdated(Change.ADD, entry().cookie, entry())]
    assert not any(isinstance(event, FlowUpdated) for event in other.events)


def test_entries_that_go_with_their_group_are_told() -> None:
    wired = monitoring()
    wired.switch.change_group(group(7, 1))
    lost = entry(actions=(ToGroup(7),))
    theirs(wired, Change.ADD, lost)
    wired.switch.change_group(group(7, 1, Change.DELETE))
    gone = without_instructions(lost)
    assert wired.pump() == [FlowUpdated(Change.DELETE, THEIRS, gone)]


def test_the_entries_that_are_there_are_told_first_if_wanted() -> None:
    wired = Wired()
    many = [entry(n, 16) for n in range(1500)]
    wired.apply(add(*many))
    told = start(wired, INITIAL | INSTRUCTIONS)
    assert told == [FlowUpdated(Change.ADD, each.cookie, each) for each in many]
    assert theirs(wired, Change.ADD, entry(3, 4)) == []


def test_instructions_are_told_only_if_wanted() -> None:
    wired = Wired()
    start(wired, ADDED)
    bare = without_instructions(entry())
    assert theirs(wired, Change.ADD, entry()) == [FlowUpdated(Change.ADD, THEIRS, bare)]


def test_a_monitor_may_be_for_one_table_or_one_port() -> None:
    for wishes in ({"table": 3}, {"out_port": 4}):
        wired = Wired()
        start(wired, CHANGES, **wishes)
        wanted = entry(table=3, port=4)
        assert theirs(wired, Change.ADD, entry(table=2, port=3)) == []
        assert theirs(wired, Change.ADD, wanted) == [FlowUpdated(Change.ADD, THEIRS, wanted)]


def test_a_monitor_may_be_for_some_kinds_of_changes() -> None:
    wired = Wired()
    start(wired, REMOVED)
    assert theirs(wired, Change.ADD, entry()) == []
    assert len(theirs(wired, Change.DELETE, entry())) == 1


def test_ones_own_changes_can_be_had_in_full_and_alone() -> None:
    wired = Wired()
    start(wired, CHANGES | IN_FULL | ONLY_OWN)
    assert theirs(wired, Change.ADD, entry(1)) == []
    wired.session.send_ops(add(entry()))
    assert wired.pump()[0] == FlowUpdated(Change.ADD, entry().cookie, entry())


def test_monitors_can_be_changed_and_ended() -> None:
    wired = Wired()
    start(wired, CHANGES)
    start(wired, REMOVED, command=1)
    assert theirs(wired, Change.ADD, entry()) == []
    start(wired, 0, command=2)
    assert theirs(wired, Change.DELETE, entry()) == []


@pytest.mark.parametrize(
    ("wishes", "error"),
    [
        ({"flags": CHANGES}, refused.MONITOR_EXISTS),
        ({"flags": CHANGES, "number": 2, "command": 1}, refused.UNKNOWN_MONITOR),
        ({"flags": CHANGES, "number": 2, "command": 2}, refused.UNKNOWN_MONITOR),
        ({"flags": CHANGES, "number": 2, "command": 7}, refused.BAD_MONITOR_COMMAND),
        ({"flags": 1 << 9, "number": 2}, refused.BAD_MONITOR_FLAGS),
        ({"flags": CHANGES, "number": 2, "table": 254}, refused.BAD_MONITOR_TABLE),
    ],
)
def test_what_cannot_be_monitored_is_refused(
    wishes: dict[str, int], error: refused.ErrorCode
) -> None:
    wired = monitoring()
    (told,) = start(wired, **wishes)
    assert isinstance(told, SwitchError)
    assert (told.kind, told.code) == error


def test_a_controller_that_does_not_read_is_told_the_outcome_later() -> None:
    wired = monitoring()
    kept, changed, gone = entry(1), entry(2), entry(3)
    for each in (changed, gone):
        theirs(wired, Change.ADD, each)
    wired.switch.congested(wired.connection, True)
    assert wired.pump() == [MonitorPaused()]
    now = replace(changed, actions=(Output(4),))
    for change, each in (
        (Change.ADD, kept),
        (Change.MODIFY, now),
        (Change.DELETE, gone),
        (Change.ADD, entry(9)),
        (Change.DELETE, entry(9)),
    ):
        assert theirs(wired, change, each) == []
    wired.switch.congested(wired.connection, False)
    *updates, last = wired.pump()
    assert last == MonitorResumed()
    assert updates == [
        FlowUpdated(Change.ADD, THEIRS, kept),
        FlowUpdated(Change.MODIFY, THEIRS, now),
        FlowUpdated(Change.DELETE, THEIRS, without_instructions(gone)),
    ]


def test_packet_ins_for_a_controller_that_does_not_read_are_lost_and_counted() -> None:
    wired = Wired()
    wired.switch.congested(wired.connection, True)
    wired.switch.send_packet_ins(b"x" * 60, 1, count=3)
    assert wired.pump() == []
    assert wired.switch.counters.packet_ins_lost == 3
