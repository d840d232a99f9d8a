"""Our reading of what switches send, beside os-ken's reading of the same bytes."""

import struct
from typing import Any

import pytest

from dzflow.address import ALL, Match
from sdn.openflow.protocol import replies
from sdn.openflow.protocol.codec import decode_group_descs, encode_group_ops
from sdn.openflow.protocol.constants import OUR_COOKIES, V1_3, V1_4, FlowEvent, Multipart, Role
from sdn.openflow.protocol.events import (
    FlowUpdated,
    GroupFeatures,
    MonitorPaused,
    MonitorResumed,
    PacketIn,
    PortChanged,
    RoleChanged,
    RoleReply,
)
from sdn.openflow.protocol.messages import Foreign, GroupDesc, Port, TableFeature
from sdn.openflow.protocol.refusals import in_words
from sdn.openflow.protocol.wire import MULTIPART, MalformedMessage
from sdn.tables.flows import Change, FlowEntry, GroupEntry, GroupOp, Output
from tests.sdn.openflow import peer
from tests.sdn.openflow.reference import Datapath

both = pytest.mark.parametrize("version", [V1_3, V1_4])
MATCH = Match(0xFF1E << 112, ALL ^ (ALL >> 16))


@pytest.mark.parametrize(
    ("first", "offered", "settled"),
    [
        (6, (4, 5, 6), V1_4),
        (5, (4, 5), V1_4),
        (4, (4,), V1_3),
        (6, (1, 4, 6), V1_3),
        (4, (), V1_3),
        (5, (), V1_4),
        (6, (), V1_4),
        (6, (6,), None),
        (1, (), None),
        (3, (1, 2, 3), None),
        (0, (), None),
    ],
)
def test_the_highest_common_version_is_settled_on(
    first: int, offered: tuple[int, ...], settled: int | None
) -> None:
    assert replies.common_version(peer.hello(first, *offered)) == settled


def test_unknown_hello_elements_are_passed_over() -> None:
    elements = struct.pack("!HH5s7x", 7, 9, b"other")[:16] + struct.pack("!HHI", 1, 8, 1 << 4)
    assert replies.common_version(peer.hello(6)[:8] + elements) == V1_3
    with pytest.raises(MalformedMessage):
        replies.common_version(peer.hello(6)[:8] + struct.pack("!HH", 7, 3))


@both
def test_features_are_read_as_os_ken_reads_them(version: int) -> None:
    data = peer.features(version, 2, dpid=0xABCDEF, tables=254, aux=3)
    theirs = Datapath(version).parse(data)
    assert replies.decode_features(data) == (
        theirs.datapath_id,
        theirs.n_tables,
        theirs.auxiliary_id,
        theirs.capabilities,
    )


@both
def test_ports_are_read_as_os_ken_reads_them(version: int) -> None:
    data = peer.port_desc(
        version,
        2,
        peer.port(version, 1, "eth1"),
        peer.port(version, 2, "eth2", config=1),
        peer.port(version, 0xFFFFFFFE, "local", state=1),
    )
    ours = replies.decode_ports(version, data, MULTIPART.size)
    assert ours == [
        Port(1, "eth1", "00:00:00:00:00:01", True),
        Port(2, "eth2", "00:00:00:00:00:02", False),
        Port(0xFFFFFFFE, "local", "00:00:ff:ff:ff:fe", False),
    ]
    assert [port.real for port in ours] == [True, True, False]
    for port, theirs in zip(ours, Datapath(version).parse(data).body, strict=True):
        assert (port.number, port.name.encode(), port.mac) == (
            theirs.port_no,
            theirs.name,
            theirs.hw_addr,
        )
        assert port.up == (theirs.config == theirs.state == 0)


@both
@pytest.mark.parametrize("change", Change)
def test_a_port_status_is_read_as_os_ken_reads_it(version: int, change: Change) -> None:
    proto = Datapath(version).ofproto
    reason = {
        Change.ADD: proto.OFPPR_ADD,
        Change.DELETE: proto.OFPPR_DELETE,
        Change.MODIFY: proto.OFPPR_MODIFY,
    }[change]
    data = peer.port_status(version, reason, peer.port(version, 7, "eth7"))
    assert replies.decode_port_status(version, data) == PortChanged(
        change, Port(7, "eth7", "00:00:00:00:00:07", True)
    )
    theirs = Datapath(version).parse(data)
    assert (theirs.reason, theirs.desc.port_no) == (reason, 7)


@both
def test_a_packet_in_is_read_as_os_ken_reads_it(version: int) -> None:
    data = peer.packet_in(version, 9, b"a packet", cookie=77, table=2)
    assert replies.decode_packet_in(data) == PacketIn(9, b"a packet", 77, 1, 2)
    theirs = Datapath(version).parse(data)
    assert (theirs.match["in_port"], theirs.data) == (9, b"a packet")
    assert (theirs.cookie, theirs.reason, theirs.table_id) == (77, 1, 2)


@both
def test_roles_are_read_as_os_ken_reads_them(version: int) -> None:
    data = peer.role_reply(version, 5, Role.MASTER, 99)
    assert replies.decode_role(5, data) == RoleReply(5, Role.MASTER, 99)
    theirs = Datapath(version).parse(data)
    assert (theirs.role, theirs.generation_id) == (Role.MASTER, 99)
    with pytest.raises(MalformedMessage, match="no role 4"):
        replies.decode_role(5, peer.role_reply(version, 5, 4, 99))


def test_a_changed_role_is_read_as_os_ken_reads_it() -> None:
    data = peer.role_status(Role.SLAVE, 99)
    assert replies.decode_role_status(data) == RoleChanged(Role.SLAVE, 99)
    theirs = Datapath(V1_4).parse(data)
    assert (theirs.role, theirs.generation_id) == (Role.SLAVE, 99)


@both
def test_groups_are_read_as_os_ken_reads_them(version: int) -> None:
    mod = encode_group_ops(version, [GroupOp(Change.ADD, GroupEntry(6, "h1", 4))], 1)
    body = peer.group_desc(6, mod[16:]) + peer.group_desc(7, b"", kind=1)
    data = peer.parts(version, 3, Multipart.GROUP_DESC, [body])
    assert decode_group_descs(data, MULTIPART.size) == [GroupDesc(6, 4), GroupDesc(7, None)]
    theirs = Datapath(version).parse(data).body
    assert [(group.group_id, group.type, len(group.buckets)) for group in theirs] == [
        (6, 0, 1),
        (7, 1, 0),
    ]
    assert theirs[0].buckets[0].actions[-1].port == 4


@both
def test_the_features_of_groups_tell_whether_ours_can_be_had(version: int) -> None:
    output, set_field = 1 << 0, 1 << 25
    for types, actions, usable in [
        (1, output | set_field, True),
        (0xF, 0xFFFFFFFF, True),
        (2, output | set_field, False),
        (1, output, False),
        (1, set_field, False),
    ]:
        data = peer.group_features(version, 3, types, 1000, actions)
        assert replies.decode_group_features(3, data) == GroupFeatures(3, usable, 1000)
        theirs = Datapath(version).parse(data).body
        assert (theirs.types, theirs.max_groups[0], theirs.actions[0]) == (types, 1000, actions)


def table(version: int, number: int, fields: dict[str, bool], actions: list[int]) -> bytes:
    """The features of a table that goes on to the two next ones, as os-ken writes them."""
    datapath = Datapath(version)
    proto, parser = datapath.ofproto, datapath.ofproto_parser
    properties: list[Any] = [
        parser.OFPTableFeaturePropInstructions(
            proto.OFPTFPT_INSTRUCTIONS, instruction_ids=[parser.OFPInstructionId(1)]
        ),
        parser.OFPTableFeaturePropNextTables(
            proto.OFPTFPT_NEXT_TABLES, table_ids=[number + 1, number + 2]
        ),
        parser.OFPTableFeaturePropActions(
            proto.OFPTFPT_APPLY_ACTIONS, action_ids=[parser.OFPActionId(kind) for kind in actions]
        ),
        parser.OFPTableFeaturePropOxm(
            proto.OFPTFPT_MATCH,
            oxm_ids=[parser.OFPOxmId(name, masked) for name, masked in fields.items()],
        ),
    ]
    stats = parser.OFPTableFeaturesStats(
        table_id=number,
        name=b"leg",
        metadata_match=0,
        metadata_write=0,
        config=0,
        max_entries=5000,
        properties=properties,
    )
    return bytes(stats.serialize())


@both
def test_the_features_of_tables_tell_what_we_need(version: int) -> None:
    full = {"in_port": False, "eth_type": False, "ipv6_dst": True}
    bodies = [
        table(version, 0, full, [0, 22, 25]),
        table(version, 1, full | {"ipv6_dst": False}, [0]) + table(version, 2, {}, []),
    ]
    data = [
        peer.parts(version, 3, Multipart.TABLE_FEATURES, [body])[MULTIPART.size :]
        for body in bodies
    ]
    found = [feature for each in data for feature in replies.decode_table_features(each, 0)]
    assert found == [
        TableFeature(0, "leg", 5000, True, True, True, True, True, frozenset({1, 2})),
        TableFeature(1, "leg", 5000, True, True, False, True, False, frozenset({2, 3})),
        TableFeature(2, "leg", 5000, False, False, False, False, False, frozenset({3, 4})),
    ]


def test_features_of_experimenters_are_passed_over() -> None:
    fields = struct.pack("!HHIII", 8, 16, 0xFFFF0104, 0x1234, 0x80003720)
    actions = struct.pack("!HHHHIHH", 6, 16, 0xFFFF, 8, 0x1234, 22, 4)
    fixed = struct.pack("!HB5x32s16x4xI", 64 + len(fields + actions), 3, b"t", 9)
    (feature,) = replies.decode_table_features(fixed + fields + actions, 0)
    assert (feature.ipv6_dst, feature.masks, feature.groups, feature.output) == (
        True,
        True,
        True,
        False,
    )


def test_flow_updates_are_read_one_by_one() -> None:
    entry = FlowEntry(3, 100, MATCH, (Output(2),), 4)
    data = peer.flow_updates(
        peer.flow_update(FlowEvent.INITIAL, OUR_COOKIES, entry),
        peer.flow_update(FlowEvent.ADDED, OUR_COOKIES, entry),
        peer.flow_update(FlowEvent.MODIFIED, OUR_COOKIES, entry),
        peer.flow_update(FlowEvent.REMOVED, 5, entry),
        peer.flow_update_short(FlowEvent.ABBREV, 77),
        peer.flow_update_short(FlowEvent.PAUSED),
        peer.flow_update_short(FlowEvent.RESUMED),
    )
    assert replies.decode_flow_updates(data, MULTIPART.size) == [
        FlowUpdated(Change.ADD, OUR_COOKIES, entry),
        FlowUpdated(Change.ADD, OUR_COOKIES, entry),
        FlowUpdated(Change.MODIFY, OUR_COOKIES, entry),
        FlowUpdated(Change.DELETE, 5, entry),
        MonitorPaused(),
        MonitorResumed(),
    ]


def test_flow_updates_are_read_as_os_ken_reads_them() -> None:
    entry = FlowEntry(3, 100, MATCH, (Output(2),), 4)
    # Of the full updates, os-ken reads only this one: it asserts that the event is "initial".
    data = peer.flow_updates(
        peer.flow_update(FlowEvent.INITIAL, OUR_COOKIES, entry),
        peer.flow_update_short(FlowEvent.ABBREV, 77),
    )
    assert replies.decode_flow_updates(data, MULTIPART.size) == [
        FlowUpdated(Change.ADD, OUR_COOKIES, entry),
    ]
    theirs = Datapath(V1_4).parse(data).body
    assert (theirs[0].table_id, theirs[0].priority, theirs[0].cookie) == (3, 100, OUR_COOKIES)
    assert theirs[0].instructions[1].table_id == 4
    assert theirs[1].xid == 77


def test_an_update_of_a_foreign_entry_says_so() -> None:
    update = peer.flow_update(FlowEvent.ADDED, 1, FlowEntry(3, 100, MATCH, (Output(2),)))
    expiring = update[:6] + struct.pack("!H", 10) + update[8:]
    (told,) = replies.decode_flow_updates(expiring, 0)
    assert isinstance(told, FlowUpdated)
    assert isinstance(told.entry, Foreign)


def test_broken_replies_are_malformed() -> None:
    update = peer.flow_update(FlowEvent.ADDED, 1, FlowEntry(3, 100, MATCH))
    for wrong in [
        update[:-1],
        update[:6],
        struct.pack("!HHI", 8, 7, 0),
        struct.pack("!HHI", 8, 1, 0) + update,
        struct.pack("!HHI", 0, 4, 0),
    ]:
        with pytest.raises(MalformedMessage):
            replies.decode_flow_updates(wrong, 0)
    for version in (V1_3, V1_4):
        described = peer.port(version, 1)
        with pytest.raises(MalformedMessage):
            replies.decode_ports(version, described[:-1], 0)
        with pytest.raises(MalformedMessage):
            replies.decode_port_status(version, peer.port_status(version, 3, described))
        with pytest.raises(MalformedMessage):
            replies.decode_port_status(version, peer.port_status(version, 0, described * 2))
        packet = peer.packet_in(version, 1, b"x")
        with pytest.raises(MalformedMessage, match="by which port"):
            replies.decode_packet_in(packet[:24] + struct.pack("!HH6x", 1, 4) + b"x")
        for length in range(8, 40):
            with pytest.raises(MalformedMessage):
                replies.decode_packet_in(packet[:length])
    with pytest.raises(MalformedMessage):
        replies.decode_features(peer.features(V1_3, 1)[:20])
    with pytest.raises(MalformedMessage):
        replies.decode_error(peer.error(V1_3, 1, 1, 1)[:10])
    with pytest.raises(MalformedMessage):
        replies.decode_group_features(1, peer.group_features(V1_3, 1, 1, 1, 1)[:30])
    features = table(V1_3, 0, {"ipv6_dst": True}, [0])
    for wrong in [
        features[:-1],
        features[:40],
        struct.pack("!H", 10) + features[2:],
        features[:66] + struct.pack("!H", 3) + features[68:],
        features[:70] + struct.pack("!H", 0) + features[72:],
    ]:
        with pytest.raises(MalformedMessage):
            replies.decode_table_features(wrong, 0)


ERROR_CODES = {
    "OFPHFC": "HELLO_FAILED",
    "OFPBRC": "BAD_REQUEST",
    "OFPBAC": "BAD_ACTION",
    "OFPBIC": "BAD_INSTRUCTION",
    "OFPBMC": "BAD_MATCH",
    "OFPFMFC": "FLOW_MOD_FAILED",
    "OFPGMFC": "GROUP_MOD_FAILED",
    "OFPRRFC": "ROLE_REQUEST_FAILED",
    "OFPTFFC": "TABLE_FEATURES_FAILED",
    "OFPBPC": "BAD_PROPERTY",
    "OFPACFC": "ASYNC_CONFIG_FAILED",
    "OFPMOFC": "FLOW_MONITOR_FAILED",
}


@pytest.mark.parametrize("prefix", ERROR_CODES)
def test_every_error_that_we_can_cause_has_words_of_its_own(prefix: str) -> None:
    proto = Datapath(V1_4).ofproto
    kind = getattr(proto, f"OFPET_{ERROR_CODES[prefix]}")
    codes = [value for name, value in vars(proto).items() if name.startswith(f"{prefix}_")]
    texts = {in_words(kind, code) for code in codes}
    assert len(texts) == len(codes) > 1
    assert not any("code" in text for text in texts)


def test_the_errors_that_matter_say_what_they_mean() -> None:
    assert "full" in in_words(5, 1)
    assert "stale" in in_words(11, 0)
    assert "slave" in in_words(1, 10)
    assert "group-mod" in in_words(6, 3)
    assert in_words(5, 99) == "flow-mod: code 99"
    assert in_words(77, 1) == "error type 77, code 1"
    assert "experimenter" in in_words(0xFFFF, 1)
