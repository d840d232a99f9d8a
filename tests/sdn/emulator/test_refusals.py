"""What a switch refuses, and how: with an error that carries xid and data of the message."""

import struct
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dzflow.address import Match
from sdn.emulator import refused
from sdn.emulator.model import BadModel, SwitchModel
from sdn.emulator.refused import ErrorCode
from sdn.openflow.protocol.constants import ALL_TABLES, ANY, V1_3, V1_4, Multipart, Role, Type
from sdn.openflow.protocol.encode import encode_ops
from sdn.openflow.protocol.events import EchoReply, SwitchError
from sdn.openflow.protocol.wire import message, multipart
from sdn.tables.flows import Change, FlowOp, ToGroup
from tests.sdn.emulator.support import Wired, add, entry, group
from tests.sdn.openflow.reference import Datapath

PEER = Datapath(V1_4)
PROTO, PARSER = PEER.ofproto, PEER.ofproto_parser
XID = 0x12345678


def flow_mod(match: Any = None, instructions: Any = (), **rest: Any) -> bytes:
    rest = {"table_id": 1, "priority": 5, "buffer_id": PROTO.OFP_NO_BUFFER, **rest}
    rest |= {"match": match or PARSER.OFPMatch(), "instructions": list(instructions)}
    return PEER.bytes_of(PARSER.OFPFlowMod(PEER, **rest), XID)


def apply(*actions: Any) -> list[Any]:
    return [PARSER.OFPInstructionActions(PROTO.OFPIT_APPLY_ACTIONS, list(actions))]


def output(port: int) -> list[Any]:
    return apply(PARSER.OFPActionOutput(port, 0))


def group_mod(command: int, number: int, *buckets: Any, kind: int = 0) -> bytes:
    return PEER.bytes_of(PARSER.OFPGroupMod(PEER, command, kind, number, list(buckets)), XID)


def bucket(*actions: Any) -> Any:
    return PARSER.OFPBucket(0, ANY, ANY, list(actions))


def patched(data: bytes, at: int, value: bytes) -> bytes:
    return data[:at] + value + data[at + len(value) :]


def with_match(fields: str) -> bytes:
    """A flow-mod with any match fields, also such as no library writes."""
    raw = bytes.fromhex(fields)
    match = struct.pack("!HH", 1, 4 + len(raw)) + raw
    match += bytes(-len(match) % 8)
    data = flow_mod()[:48] + match
    return patched(data, 2, struct.pack("!H", len(data)))


def multipart_request(kind: int, body: bytes = b"", flags: int = 0) -> bytes:
    data = multipart(V1_4, Type.MULTIPART_REQUEST, Multipart.FLOW, XID, body, flags)
    return patched(data, 8, struct.pack("!H", kind))


IPV6 = PARSER.OFPMatch(eth_type=0x86DD)
REFUSED: dict[str, tuple[bytes, ErrorCode]] = {
    "a table that is not there": (flow_mod(table_id=250), refused.BAD_TABLE),
    "adding to all tables": (flow_mod(table_id=ALL_TABLES), refused.BAD_TABLE),
    "an unknown command": (flow_mod(command=9), refused.BAD_COMMAND),
    "a time-out": (flow_mod(idle_timeout=5), refused.BAD_TIMEOUT),
    "a flag": (flow_mod(flags=PROTO.OFPFF_SEND_FLOW_REM), refused.BAD_FLAGS),
    "a buffered packet": (flow_mod(buffer_id=3), refused.BUFFER_UNKNOWN),
    "going back": (flow_mod(None, [PARSER.OFPInstructionGotoTable(1)]), refused.BAD_GOTO),
    "going nowhere": (flow_mod(None, [PARSER.OFPInstructionGotoTable(251)]), refused.BAD_GOTO),
    "a meter": (
        flow_mod(None, [PARSER.OFPInstructionMeter(1)]),
        refused.UNSUPPORTED_INSTRUCTION,
    ),
    "an unknown instruction": (
        patched(flow_mod(None, output(1)), 56, b"\x00\x63"),
        refused.UNKNOWN_INSTRUCTION,
    ),
    "an instruction twice": (flow_mod(None, output(1) * 2), refused.DUPLICATE_INSTRUCTION),
    "no port": (flow_mod(None, output(0)), refused.BAD_OUT_PORT),
    "a port of its own": (flow_mod(None, output(PROTO.OFPP_LOCAL)), refused.BAD_OUT_PORT),
    "an unknown group": (
        flow_mod(None, apply(PARSER.OFPActionGroup(9))),
        refused.BAD_OUT_GROUP,
    ),
    "another action": (
        flow_mod(None, apply(PARSER.OFPActionPopVlan())),
        refused.BAD_ACTION_TYPE,
    ),
    "setting another field": (
        flow_mod(None, apply(PARSER.OFPActionSetField(vlan_vid=1))),
        refused.BAD_SET_TYPE,
    ),
    "a field that is not supported": (
        flow_mod(PARSER.OFPMatch(vlan_vid=0x1001)),
        refused.BAD_FIELD,
    ),
    "a field without what it needs": (
        flow_mod(PARSER.OFPMatch(ipv6_dst="ff1e::1")),
        refused.BAD_PREREQUISITE,
    ),
    "a field twice": (with_match("80000a0286dd80000a0286dd"), refused.DUPLICATE_FIELD),
    "a value beside its mask": (
        with_match("8000070c" + "ff" * 6 + "00" * 6),
        refused.BAD_WILDCARDS,
    ),
    "a mask where none may be": (with_match("80000b0486ddffff"), refused.BAD_MASK),
    "a field of a wrong length": (with_match("80000a0386dd00"), refused.BAD_MATCH_LEN),
    "another kind of match": (patched(flow_mod(), 48, b"\0\0"), refused.BAD_MATCH_TYPE),
    "a match that ends too late": (patched(flow_mod(), 50, b"\xff\xff"), refused.BAD_LEN),
    "an action that ends too late": (
        patched(flow_mod(None, output(1)), 66, b"\x00\x20"),
        refused.BAD_LEN,
    ),
    "a group that exists": (group_mod(0, 7), refused.GROUP_EXISTS),
    "changing an unknown group": (group_mod(1, 8), refused.UNKNOWN_GROUP),
    "a group of another type": (
        group_mod(0, 8, kind=PROTO.OFPGT_SELECT),
        refused.BAD_GROUP_TYPE,
    ),
    "an unknown command for a group": (group_mod(3, 8), refused.BAD_GROUP_COMMAND),
    "a group without a number": (
        group_mod(0, PROTO.OFPG_ANY),
        refused.INVALID_GROUP,
    ),
    "a group that leads to a group": (
        group_mod(0, 8, bucket(PARSER.OFPActionGroup(7))),
        refused.NO_CHAINING,
    ),
    "a bucket without a port": (
        group_mod(0, 8, bucket(PARSER.OFPActionOutput(0, 0))),
        refused.BAD_OUT_PORT,
    ),
    "a packet-out of a buffered packet": (
        PEER.bytes_of(PARSER.OFPPacketOut(PEER, 3, PROTO.OFPP_CONTROLLER, [], None), XID),
        refused.BUFFER_UNKNOWN,
    ),
    "a packet-out to no port": (
        PEER.bytes_of(
            PARSER.OFPPacketOut(
                PEER,
                PROTO.OFP_NO_BUFFER,
                PROTO.OFPP_CONTROLLER,
                [PARSER.OFPActionOutput(0)],
                b"x" * 60,
            ),
            XID,
        ),
        refused.BAD_OUT_PORT,
    ),
    "an unknown role": (
        message(V1_4, Type.ROLE_REQUEST, XID, struct.pack("!I4xQ", 9, 1)),
        refused.BAD_ROLE,
    ),
    "an unknown message": (message(V1_4, Type.REQUEST_FORWARD, XID), refused.BAD_TYPE),
    "an unknown multipart request": (multipart_request(99), refused.BAD_MULTIPART),
    "a multipart request in parts": (multipart_request(1, flags=1), refused.BAD_MULTIPART),
    "setting features of tables": (
        multipart_request(12, bytes(64)),
        refused.FIXED_TABLE_FEATURES,
    ),
    "statistics of a table that is not there": (
        multipart_request(1, struct.pack("!B3xII4xQQHH4x", 250, ANY, ANY, 0, 0, 1, 4)),
        refused.BAD_REQUEST_TABLE,
    ),
    "a message that is too short": (message(V1_4, Type.ROLE_REQUEST, XID), refused.BAD_LEN),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_says_why_and_what_and_changes_nothing(name: str) -> None:
    sent, error = REFUSED[name]
    wired = Wired(SwitchModel(tables=250))
    wired.apply_groups(group(7, 1))
    wired.switch.feed(wired.connection, sent, 0.0)
    reply = PEER.parse(wired.connection.outgoing())
    assert (reply.type, reply.code, reply.xid) == (*error, XID)
    assert bytes(reply.data) == sent[:64]
    assert wired.entries() == set()
    assert set(wired.switch.tables.groups) == {7}
    assert wired.switch.counters.errors == 1


def test_a_refused_operation_does_not_stop_those_after_it() -> None:
    wired = Wired()
    bad = entry(1, actions=(ToGroup(99),))
    sent = wired.session.send_ops(add(entry(0), bad, entry(2)))
    errors = [event for event in wired.pump() if isinstance(event, SwitchError)]
    assert [error.xid for error in errors] == [sent.first_xid + 1]
    assert wired.entries() == {entry(0), entry(2)}


def test_there_are_only_so_many_groups() -> None:
    wired = Wired(SwitchModel(max_groups=2))
    (error,) = wired.apply_groups(group(1, 1), group(2, 2), group(3, 3))
    assert error.table_full
    assert wired.apply_groups(group(2, 4, Change.MODIFY)) == []


@pytest.mark.parametrize(("masks", "taken"), [("prefix", [1, 2]), ("none", [2])])
def test_a_switch_may_take_only_some_masks(masks: Any, taken: list[int]) -> None:
    wired = Wired(SwitchModel(masks=masks))
    mask = (1 << 128) - 1
    for priority, wanted in ((0, mask ^ 1 << 64), (1, mask ^ (mask >> 40)), (2, mask)):
        match = PEER.match(None, Match(0, wanted))
        errors = wired.send(flow_mod(match, priority=priority))
        refusals = [(e.kind, e.code) for e in errors if isinstance(e, SwitchError)]
        assert refusals == ([] if priority in taken else [refused.BAD_MASK])
    assert sorted(rule.priority for rule in wired.switch.rules()) == taken


def test_a_group_takes_its_entries_along_when_it_goes() -> None:
    wired = Wired()
    wired.apply_groups(group(7, 1), group(8, 2))
    wired.apply(add(entry(0, actions=(ToGroup(7),)), entry(1, actions=(ToGroup(8),)), entry(2)))
    wired.apply_groups(group(7, 1, Change.DELETE))
    assert wired.entries() == {entry(1, actions=(ToGroup(8),)), entry(2)}
    wired.send(group_mod(PROTO.OFPGC_DELETE, PROTO.OFPG_ALL))
    assert wired.entries() == {entry(2)}
    assert wired.apply_groups(group(7, 1, Change.DELETE)) == []


def test_the_flow_monitor_is_not_for_openflow_1_3() -> None:
    wired = Wired(version=V1_3)
    request = patched(multipart_request(Multipart.FLOW_MONITOR, bytes(24)), 0, bytes((V1_3,)))
    (error,) = wired.send(request)
    assert isinstance(error, SwitchError)
    assert (error.kind, error.code) == refused.BAD_MULTIPART


@pytest.mark.parametrize(
    "garbage",
    [
        message(V1_3, Type.ECHO_REQUEST, 1),
        struct.pack("!BBHI", V1_4, Type.ECHO_REQUEST, 4, 1),
    ],
    ids=["another version", "a length that cannot be"],
)
def test_a_broken_peer_gets_an_error_and_is_left(garbage: bytes) -> None:
    wired = Wired()
    wired.switch.feed(wired.connection, garbage, 0.0)
    reply = PEER.parse(wired.connection.outgoing())
    assert reply.type == PROTO.OFPET_BAD_REQUEST
    assert wired.connection.closed


@pytest.mark.parametrize(
    "greeting",
    [
        message(1, Type.HELLO, 1),
        message(V1_4, Type.HELLO, 1, struct.pack("!HHI", 1, 8, 1 << 6)),
        message(V1_4, Type.HELLO, 1, struct.pack("!HHI", 1, 80, 1 << 6)),
        message(V1_4, Type.ERROR, 1, struct.pack("!HH", 0, 0)),
        message(V1_4, Type.ECHO_REQUEST, 1),
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_who_does_not_greet_as_one_should_is_left(greeting: bytes) -> None:
    switch = Wired().switch
    connection = switch.connect()
    assert switch.feed(connection, greeting, 0.0) == []
    assert connection.closed


@pytest.mark.parametrize(
    ("offered", "settled"),
    [
        ([V1_3, V1_4, 6], V1_4),
        ([V1_3], V1_3),
        ([], V1_4),
    ],
)
def test_the_highest_common_version_is_settled_on(offered: list[int], settled: int) -> None:
    wired = Wired()
    wired.switch.versions = (V1_3, V1_4)
    connection = wired.switch.connect()
    bitmap = sum(1 << version for version in offered)
    element = struct.pack("!HHI", 1, 8, bitmap) if offered else b""
    wired.switch.feed(connection, message(max([6, *offered]), Type.HELLO, 1, element), 0.0)
    assert connection.version == settled


@settings(deadline=None)
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=80),
            st.builds(
                lambda kind, body: (
                    message(V1_4, Type.HELLO, 1, body)[:1]
                    + bytes((kind,))
                    + message(V1_4, Type.HELLO, 1, body)[2:]
                ),
                st.integers(0, 40),
                st.binary(max_size=120),
            ),
        ),
        max_size=5,
    )
)
def test_whatever_a_peer_sends_is_answered_or_ends_the_connection(noise: list[bytes]) -> None:
    wired = Wired()
    for data in noise:
        wired.switch.feed(wired.connection, data, 0.0)
    wired.connection.outgoing()
    if wired.connection.closed is None and not wired.connection._buffer:
        wired.send(message(V1_4, Type.ECHO_REQUEST, 1))
    other = Wired(switch=wired.switch)
    other.session.request_echo(b"there?")
    assert any(isinstance(event, EchoReply) for event in other.pump())


STREAM = [entry(n, 8) for n in range(6)]
STREAM_BYTES = encode_ops(V1_4, [*add(*STREAM), FlowOp(Change.DELETE, STREAM[0])], 1)


@settings(deadline=None)
@given(st.sets(st.integers(0, len(STREAM_BYTES)), max_size=20))
def test_a_stream_means_the_same_in_whatever_pieces_it_comes(cuts: set[int]) -> None:
    wired = Wired()
    for start, end in pairwise(sorted({0, len(STREAM_BYTES)} | cuts)):
        wired.switch.feed(wired.connection, STREAM_BYTES[start:end], 0.0)
    assert wired.entries() == set(STREAM[1:])


@pytest.mark.parametrize(
    "make",
    [
        lambda: SwitchModel(tables=0),
        lambda: SwitchModel(table_capacity=-1),
        lambda: SwitchModel(flow_mod_seconds=-1),
        lambda: SwitchModel(rate=0),
        lambda: SwitchModel(burst=0),
    ],
)
def test_a_kind_of_switch_that_cannot_be_is_refused(make: Callable[[], SwitchModel]) -> None:
    with pytest.raises(BadModel):
        make()


def test_a_slave_may_ask_but_not_change_anything() -> None:
    wired = Wired()
    wired.apply_groups(group(7, 1))
    wired.session.request_role(Role.SLAVE, 1)
    wired.pump()
    wired.session.packet_out(1, b"x" * 60)
    wired.session.send_ops(add(entry()))
    wired.session.send_group_ops([group(8, 1)])
    errors = [event for event in wired.pump() if isinstance(event, SwitchError)]
    assert [error.is_slave for error in errors] == [True] * 3
    assert wired.frames == []
    assert wired.entries() == set()
    assert set(wired.switch.tables.groups) == {7}
