import struct

import pytest

from sdn.openflow.protocol import requests
from sdn.openflow.protocol.codec import (
    NotEncodable,
    barrier,
    encode_flow_stats,
    encode_group_ops,
    encode_ops,
    encode_removals,
)
from sdn.openflow.protocol.constants import (
    MAX_XID,
    OUR_COOKIE_MASK,
    OUR_COOKIES,
    V1_3,
    V1_4,
    FlowEvent,
    Multipart,
    Role,
    Type,
)
from sdn.openflow.protocol.events import (
    BarrierReply,
    EchoReply,
    FlowStats,
    FlowUpdated,
    GroupDescs,
    GroupFeatures,
    MonitorPaused,
    RoleChanged,
    RoleReply,
    SwitchError,
    TableFeatures,
)
from sdn.openflow.protocol.messages import FlowStat, GroupDesc
from sdn.openflow.protocol.session import NotSupported, Sent
from sdn.openflow.protocol.wire import message
from sdn.tables.flows import Change, FlowEntry, FlowOp, GroupEntry, GroupOp
from tests.sdn.openflow import peer
from tests.sdn.openflow.peer import header, split
from tests.sdn.openflow.sessions import MATCH, OPS, STATS, both, connect


@both
def test_operations_are_sent_with_one_barrier_and_acknowledged_by_its_reply(version: int) -> None:
    session = connect(version)
    sent = session.send_ops(OPS)
    assert sent == Sent(4, 7)
    assert session.outgoing() == encode_ops(version, OPS, 4) + barrier(version, 7)
    groups = [GroupOp(Change.ADD, GroupEntry(1, "h1", 2))]
    again = session.send_group_ops(groups)
    assert session.outgoing() == encode_group_ops(version, groups, 8) + barrier(version, 9)
    assert session.feed(peer.barrier_reply(version, sent.barrier_xid)) == [BarrierReply(7)]
    assert session.feed(peer.barrier_reply(version, again.barrier_xid)) == [BarrierReply(9)]


def test_an_error_names_its_operation_by_xid() -> None:
    session = connect()
    sent = session.send_ops(OPS)
    events = session.feed(
        peer.error(V1_4, sent.first_xid + 1, 5, 1) + peer.barrier_reply(V1_4, sent.barrier_xid)
    )
    assert events == [
        SwitchError(sent.first_xid + 1, 5, 1, "flow-mod: the table is full"),
        BarrierReply(sent.barrier_xid),
    ]


def test_errors_that_matter_can_be_told_apart() -> None:
    session = connect()
    full, groups, stale, slave = session.feed(
        peer.error(V1_4, 50, 5, 1)
        + peer.error(V1_4, 51, 6, 3)
        + peer.error(V1_4, 52, 11, 0)
        + peer.error(V1_4, 53, 1, 10)
    )
    flags = [
        (event.table_full, event.stale_generation, event.is_slave)
        for event in (full, groups, stale, slave)
        if isinstance(event, SwitchError)
    ]
    assert flags == [
        (True, False, False),
        (True, False, False),
        (False, True, False),
        (False, False, True),
    ]


def test_answers_that_nobody_asked_for_are_dropped() -> None:
    session = connect()
    xid = session.send_barrier()
    unasked = [
        peer.barrier_reply(V1_4, xid + 1),
        message(V1_4, Type.ECHO_REPLY, xid),
        peer.features(V1_4, xid),
        peer.role_reply(V1_4, xid, Role.MASTER, 1),
        peer.port_desc(V1_4, xid),
        encode_flow_stats(V1_4, xid, STATS),
        peer.flow_updates(peer.flow_update_short(FlowEvent.ABBREV, 4)),
        peer.parts(V1_4, xid, Multipart.GROUP_DESC, [b""]),
    ]
    assert session.feed(b"".join(unasked)) == []
    assert session.feed(peer.barrier_reply(V1_4, xid) * 2) == [BarrierReply(xid)]


def test_a_forgotten_request_is_not_answered_any_more() -> None:
    session = connect()
    xid = session.request_flow_stats()
    session.forget(xid)
    assert session.feed(encode_flow_stats(V1_4, xid, STATS)) == []


@both
def test_a_role_is_asked_for_and_answered(version: int) -> None:
    session = connect(version)
    xid = session.request_role(Role.MASTER, 77)
    assert session.outgoing() == requests.role_request(version, xid, Role.MASTER, 77)
    assert session.feed(peer.role_reply(version, xid, Role.MASTER, 77)) == [
        RoleReply(xid, Role.MASTER, 77)
    ]


def test_a_role_taken_by_another_controller_is_told() -> None:
    assert connect().feed(peer.role_status(Role.SLAVE, 78)) == [RoleChanged(Role.SLAVE, 78)]


def test_a_stale_generation_is_an_error_with_the_xid_of_the_request() -> None:
    session = connect(V1_3)
    xid = session.request_role(Role.MASTER, 76)
    (error,) = session.feed(peer.error(V1_3, xid, 11, 0))
    assert isinstance(error, SwitchError)
    assert error.stale_generation
    assert error.xid == xid
    assert session.feed(peer.role_reply(V1_3, xid, Role.MASTER, 76)) == []


@both
def test_entries_are_read_back_part_by_part(version: int) -> None:
    session = connect(version)
    xid = session.request_flow_stats()
    assert session.outgoing() == requests.flow_stats_request(
        version, xid, OUR_COOKIES, OUR_COOKIE_MASK
    )
    many = [FlowStat(OUR_COOKIES, n, 0, FlowEntry(1, n, MATCH)) for n in range(1500)]
    events = session.feed(encode_flow_stats(version, xid, many))
    parts = [event for event in events if isinstance(event, FlowStats)]
    assert len(parts) == len(events) > 1
    assert [part.last for part in parts] == [False] * (len(parts) - 1) + [True]
    assert [stat for part in parts for stat in part.entries] == many
    assert session.feed(encode_flow_stats(version, xid, many)) == []


def test_removals_are_sent_like_operations() -> None:
    session = connect()
    sent = session.send_removals(STATS)
    first, barrier_xid = sent
    assert session.outgoing() == encode_removals(V1_4, STATS, first) + barrier(V1_4, barrier_xid)


@both
def test_groups_are_read_back_as_a_whole(version: int) -> None:
    session = connect(version)
    mod = encode_group_ops(version, [GroupOp(Change.ADD, GroupEntry(6, "h1", 4))], 1)
    xid = session.request_group_desc()
    bodies = [peer.group_desc(6, mod[16:]), b"", peer.group_desc(7, b"")]
    *parts, last = split(peer.parts(version, xid, Multipart.GROUP_DESC, bodies))
    assert session.feed(b"".join(parts)) == []
    assert session.feed(last) == [GroupDescs(xid, (GroupDesc(6, 4), GroupDesc(7, None)))]


@both
def test_features_of_groups_and_tables_are_answered(version: int) -> None:
    session = connect(version)
    xid = session.request_group_features()
    assert session.outgoing() == requests.multipart_request(version, xid, Multipart.GROUP_FEATURES)
    reply = peer.group_features(version, xid, 1, 9, 0xFFFFFFFF)
    assert session.feed(reply * 2) == [GroupFeatures(xid, True, 9)]
    xid = session.request_table_features()
    table = struct.pack("!HB5x32s16x4xI", 64, 3, b"t", 9)
    (event,) = session.feed(peer.parts(version, xid, Multipart.TABLE_FEATURES, [table] * 3))
    assert isinstance(event, TableFeatures)
    assert [(each.table, each.max_entries) for each in event.tables] == [(3, 9)] * 3


def test_the_monitor_tells_foreign_changes_in_full_and_ours_by_xid() -> None:
    session = connect()
    xid = session.start_flow_monitor()
    assert session.outgoing() == requests.flow_monitor_request(V1_4, xid, 1, on=True)
    assert session.feed(peer.parts(V1_4, xid, Multipart.FLOW_MONITOR, [b""])) == []
    entry = OPS[0].entry
    updates = peer.flow_updates(
        peer.flow_update(FlowEvent.REMOVED, OUR_COOKIES, entry),
        peer.flow_update_short(FlowEvent.ABBREV, 9),
        peer.flow_update_short(FlowEvent.PAUSED),
    )
    assert session.feed(updates) == [
        FlowUpdated(Change.DELETE, OUR_COOKIES, entry),
        MonitorPaused(),
    ]


def test_there_is_no_monitor_in_1_3() -> None:
    session = connect(V1_3)
    with pytest.raises(NotSupported, match=r"1\.3"):
        session.start_flow_monitor()
    assert session.outgoing() == b""


@both
def test_what_has_no_answer_is_sent_with_an_xid_for_errors(version: int) -> None:
    session = connect(version)
    xid = session.packet_out(3, b"lldp")
    assert session.outgoing() == requests.packet_out(version, xid, 3, b"lldp")
    xid = session.send(Type.FLOW_MOD, b"body")
    assert session.outgoing() == message(version, Type.FLOW_MOD, xid, b"body")


def test_an_echo_is_asked_for_and_answered_both_ways() -> None:
    session = connect()
    xid = session.request_echo(b"ping")
    assert session.outgoing() == message(V1_4, Type.ECHO_REQUEST, xid, b"ping")
    assert session.feed(message(V1_4, Type.ECHO_REPLY, xid, b"ping")) == [EchoReply(xid, b"ping")]
    assert session.feed(message(V1_4, Type.ECHO_REQUEST, 99, b"theirs")) == []
    assert session.outgoing() == message(V1_4, Type.ECHO_REPLY, 99, b"theirs")


def test_what_does_not_fit_is_refused_and_nothing_is_sent_or_waited_for() -> None:
    session = connect()
    bad = FlowOp(Change.ADD, FlowEntry(999, 1, MATCH))
    with pytest.raises(NotEncodable):
        session.send_ops([*OPS, bad])
    with pytest.raises(NotEncodable, match="too big"):
        session.packet_out(1, bytes(70000))
    with pytest.raises(NotEncodable, match="too big"):
        session.request_role(Role.MASTER, 1 << 64)
    assert session.outgoing() == b""
    assert session.feed(b"".join(peer.barrier_reply(V1_4, xid) for xid in range(20))) == []


def test_replies_belong_to_their_requests_when_xids_start_over() -> None:
    session = connect(first_xid=MAX_XID - 5)
    old = session.send_barrier()
    assert old == MAX_XID - 2
    first, end = session.send_ops(OPS)
    assert (first, end) == (1, 4), "a run does not wrap around"
    assert header(split(session.outgoing())[1]).xid == 1
    assert session.feed(peer.barrier_reply(V1_4, end)) == [BarrierReply(4)]
    assert session.feed(peer.barrier_reply(V1_4, old)) == [BarrierReply(old)]
