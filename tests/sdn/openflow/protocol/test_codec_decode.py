import contextlib
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dzflow.address import ALL, Match
from sdn.openflow.protocol.codec import (
    NotEncodable,
    decode_flow_mod,
    decode_flow_stats,
    decode_group_descs,
    decode_group_mod,
    encode_flow_stats,
    encode_group_ops,
    encode_ops,
    encode_removals,
)
from sdn.openflow.protocol.constants import (
    ANY,
    OUR_COOKIE_MASK,
    OUR_COOKIES,
    V1_3,
    V1_4,
    FlowCommand,
    GroupCommand,
)
from sdn.openflow.protocol.messages import FlowStat, Foreign, GroupDesc, GroupMod
from sdn.openflow.protocol.wire import MULTIPART, MalformedMessage
from sdn.tables.flows import Change, FlowEntry, FlowOp, GroupEntry, GroupOp, Output, ToGroup
from tests.sdn.openflow.peer import split
from tests.sdn.openflow.reference import (
    SHAPES,
    Datapath,
    entries,
    group_ops,
    matches,
    ops,
    versions,
    xids,
)

MATCH = Match(0xFF1E << 112, ALL ^ (ALL >> 16))
counts = st.integers(0, 0xFFFFFFFFFFFFFFFF)
stats = st.builds(FlowStat, counts, counts, counts, entries)
PEER = Datapath(V1_4)
PARSER = PEER.ofproto_parser


def read_back(data: bytes) -> list[FlowStat]:
    """All entries of a reply in several messages."""
    return [stat for part in split(data) for stat in decode_flow_stats(part, MULTIPART.size)]


def flow_mod(match: Any, instructions: list[Any], **fields: int) -> bytes:
    """A flow-mod of another application, as os-ken writes it."""
    return PEER.bytes_of(
        PARSER.OFPFlowMod(PEER, match=match, instructions=instructions, priority=5, **fields), 1
    )


def apply(*actions: Any) -> list[Any]:
    return [PARSER.OFPInstructionActions(PEER.ofproto.OFPIT_APPLY_ACTIONS, list(actions))]


@given(versions, ops, xids)
def test_a_flow_mod_is_read_as_it_was_written(version: int, op: FlowOp, xid: int) -> None:
    mod = decode_flow_mod(encode_ops(version, [op], xid))
    entry = replace(op.entry, actions=(), goto=None) if op.change is Change.DELETE else op.entry
    command = {
        Change.ADD: FlowCommand.ADD,
        Change.MODIFY: FlowCommand.MODIFY_STRICT,
        Change.DELETE: FlowCommand.DELETE_STRICT,
    }[op.change]
    assert (mod.xid, mod.command, mod.cookie, mod.entry) == (xid, command, entry.cookie, entry)
    assert (mod.out_port, mod.out_group, mod.flags) == (ANY, ANY, 0)
    assert mod.cookie_mask == (0 if op.change is Change.ADD else OUR_COOKIE_MASK)


@given(versions, group_ops, xids)
def test_a_group_mod_is_read_as_it_was_written(version: int, op: GroupOp, xid: int) -> None:
    command = {
        Change.ADD: GroupCommand.ADD,
        Change.MODIFY: GroupCommand.MODIFY,
        Change.DELETE: GroupCommand.DELETE,
    }[op.change]
    port = None if op.change is Change.DELETE else op.group.port
    mod = decode_group_mod(encode_group_ops(version, [op], xid))
    assert mod == GroupMod(xid, command, op.group.group, port, False)


@given(versions, st.lists(stats, max_size=20), xids)
def test_statistics_are_read_as_they_were_written(
    version: int, found: list[FlowStat], xid: int
) -> None:
    assert read_back(encode_flow_stats(version, xid, found)) == found


@pytest.mark.parametrize("version", [V1_3, V1_4])
def test_os_ken_reads_the_same_from_our_statistics(version: int) -> None:
    peer = Datapath(version)
    found = [FlowStat(entry.cookie, n, n * 100, entry) for n, entry in enumerate(SHAPES)]
    (message,) = split(encode_flow_stats(version, 3, found))
    reply = peer.parse(message)
    assert (reply.xid, reply.type, reply.flags) == (3, peer.ofproto.OFPMP_FLOW, 0)
    for stat, theirs in zip(found, reply.body, strict=True):
        entry = stat.entry
        assert isinstance(entry, FlowEntry)
        assert (theirs.table_id, theirs.priority) == (entry.table, entry.priority)
        assert (theirs.idle_timeout, theirs.hard_timeout) == (0, 0)
        assert (theirs.cookie, theirs.packet_count, theirs.byte_count) == (
            stat.cookie,
            stat.packets,
            stat.octets,
        )
        written = peer.parse(peer.flow_mod(FlowOp(Change.ADD, entry), 1))
        assert str(theirs.match) == str(written.match)
        assert str(theirs.instructions) == str(written.instructions)


def test_many_statistics_go_into_several_messages_and_only_the_last_ends_the_reply() -> None:
    found = [
        FlowStat(OUR_COOKIES, n, n, FlowEntry(1, n, MATCH, (Output(1),), 2)) for n in range(2000)
    ]
    data = encode_flow_stats(V1_4, 3, found)
    flags = [struct.unpack_from("!H", part, 10)[0] for part in split(data)]
    assert len(flags) > 2
    assert flags == [1] * (len(flags) - 1) + [0]
    assert read_back(data) == found


def test_an_entry_that_is_too_long_for_statistics_is_refused() -> None:
    entry = Foreign(1, 2, None, bytes(8), bytes(65480))
    with pytest.raises(NotEncodable, match="65536 bytes"):
        encode_flow_stats(V1_3, 3, [FlowStat(1, 2, 3, entry)])


def test_no_statistics_are_one_empty_message() -> None:
    data = encode_flow_stats(V1_3, 3, [])
    assert len(data) == MULTIPART.size
    assert read_back(data) == []


@pytest.mark.parametrize(
    "match",
    [
        PARSER.OFPMatch(eth_type=0x0800),
        PARSER.OFPMatch(eth_type=0x86DD, ipv6_src="::1"),
        PARSER.OFPMatch(eth_type=0x86DD, ip_proto=58, ipv6_dst="ff1e::1"),
        PARSER.OFPMatch(in_port=1, vlan_vid=0x1001),
        PARSER.OFPMatch(metadata=(1, 3)),
        PARSER.OFPMatch(eth_dst="33:33:00:00:00:d2"),
        PARSER.OFPMatch(ipv6_dst="ff1e::1"),
        PARSER.OFPMatch(eth_type=0x88CC, ipv6_dst="ff1e::1"),
    ],
    ids=str,
)
def test_a_match_that_we_never_write_is_foreign(match: Any) -> None:
    entry = decode_flow_mod(flow_mod(match, [])).entry
    assert isinstance(entry, Foreign)
    assert (entry.priority, entry.key) == (5, None)
    data = bytearray()
    match.serialize(data, 0)
    assert entry.match == data


@pytest.mark.parametrize("in_port", [None, 1])
def test_an_address_with_bits_outside_its_mask_is_foreign(in_port: int | None) -> None:
    entry = FlowEntry(0, 5, Match(MATCH.address | 1, MATCH.mask), in_port=in_port)
    mod = decode_flow_mod(encode_ops(V1_3, [FlowOp(Change.ADD, entry)], 1))
    assert isinstance(mod.entry, Foreign)
    assert mod.entry.key is None


@pytest.mark.parametrize(
    "instructions",
    [
        apply(PARSER.OFPActionSetField(eth_dst="33:33:00:00:00:d2")),
        apply(PARSER.OFPActionOutput(1, 0), PARSER.OFPActionPopVlan()),
        apply(PARSER.OFPActionSetQueue(1)),
        apply(PARSER.OFPActionOutput(1, 0)) * 2,
        [PARSER.OFPInstructionActions(PEER.ofproto.OFPIT_WRITE_ACTIONS, [])],
        [PARSER.OFPInstructionActions(PEER.ofproto.OFPIT_CLEAR_ACTIONS, [])],
        [PARSER.OFPInstructionWriteMetadata(1, 1)],
        [PARSER.OFPInstructionMeter(1)],
        [PARSER.OFPInstructionGotoTable(1), PARSER.OFPInstructionGotoTable(2)],
    ],
    ids=str,
)
def test_an_entry_of_ours_with_foreign_instructions_is_foreign_but_has_its_key(
    instructions: list[Any],
) -> None:
    ours = FlowEntry(0, 5, MATCH, in_port=2)
    entry = decode_flow_mod(flow_mod(PEER.match(2, MATCH), instructions)).entry
    assert isinstance(entry, Foreign)
    assert entry.key == ours.key


def test_an_entry_that_expires_is_foreign() -> None:
    for timeout in ("idle_timeout", "hard_timeout"):
        entry = decode_flow_mod(flow_mod(PEER.match(None, MATCH), [], **{timeout: 10})).entry
        assert isinstance(entry, Foreign)
        assert entry.key == FlowEntry(0, 5, MATCH).key


@pytest.mark.parametrize(
    "extra",
    ["80000a0286dd", "8000001000000001", "ffff0008" + "00" * 8, "00010004" + "00" * 4],
    ids=["a field twice", "a wrong length", "an experimenter's field", "an old class of fields"],
)
def test_fields_that_no_library_writes_are_foreign(extra: str) -> None:
    fields = bytes.fromhex("80000a0286dd" + extra)
    fields += bytes(16) if extra.startswith("80000010") else b""
    match = struct.pack("!HH", 1, 4 + len(fields)) + fields
    match += bytes(-len(match) % 8)
    data = flow_mod(PARSER.OFPMatch(), [])[:48] + match
    data = data[:2] + struct.pack("!H", len(data)) + data[4:]
    assert isinstance(decode_flow_mod(data).entry, Foreign)


def test_the_order_of_fields_and_of_instructions_does_not_matter() -> None:
    address, mask = MATCH.address.to_bytes(16, "big"), MATCH.mask.to_bytes(16, "big")
    fields = bytes.fromhex("80003720") + address + mask + bytes.fromhex("80000a0286dd")
    fields += bytes.fromhex("8000000400000003")
    match = struct.pack("!HH", 1, 4 + len(fields)) + fields + bytes(-(4 + len(fields)) % 8)
    rest = bytes.fromhex("000100080700000000040010000000000016000800000005")
    data = flow_mod(PARSER.OFPMatch(), [])[:48] + match + rest
    data = data[:2] + struct.pack("!H", len(data)) + data[4:]
    assert decode_flow_mod(data).entry == FlowEntry(0, 5, MATCH, (ToGroup(5),), 7, 3)


def test_an_empty_list_of_actions_is_none() -> None:
    assert decode_flow_mod(flow_mod(PEER.match(None, MATCH), apply())).entry == FlowEntry(
        0, 5, MATCH
    )


def test_long_instructions_are_read_though_they_are_not_remembered() -> None:
    entry = FlowEntry(0, 5, MATCH, tuple(Output(n) for n in range(1, 200)), 1)
    assert decode_flow_mod(encode_ops(V1_3, [FlowOp(Change.ADD, entry)], 1)).entry == entry


def test_a_foreign_entry_goes_through_statistics_and_can_be_removed() -> None:
    match = PARSER.OFPMatch(eth_type=0x88CC)
    theirs = flow_mod(match, apply(PARSER.OFPActionOutput(PEER.ofproto.OFPP_CONTROLLER, 0xFFFF)))
    stat = FlowStat(OUR_COOKIES | 7, 1, 2, decode_flow_mod(theirs).entry)
    assert read_back(encode_flow_stats(V1_4, 1, [stat])) == [stat]
    expected = PARSER.OFPFlowMod(
        PEER,
        cookie=OUR_COOKIES | 7,
        cookie_mask=0xFFFFFFFFFFFFFFFF,
        priority=5,
        command=PEER.ofproto.OFPFC_DELETE_STRICT,
        buffer_id=PEER.ofproto.OFP_NO_BUFFER,
        out_port=ANY,
        out_group=ANY,
        match=match,
    )
    assert encode_removals(V1_4, [stat], 8) == PEER.bytes_of(expected, 8)


@given(versions, entries, counts)
def test_a_removal_is_the_deletion_of_exactly_what_was_read(
    version: int, entry: FlowEntry, cookie: int
) -> None:
    mod = decode_flow_mod(encode_removals(version, [FlowStat(cookie, 0, 0, entry)], 4))
    assert mod.command == FlowCommand.DELETE_STRICT
    assert (mod.cookie, mod.cookie_mask) == (cookie, 0xFFFFFFFFFFFFFFFF)
    assert mod.entry == replace(entry, actions=(), goto=None)


def test_groups_of_hosts_are_told_from_all_others() -> None:
    proto = PEER.ofproto
    watching = PEER.bucket(4)
    watching.weight, watching.watch_port = 1, 4
    other = PARSER.OFPBucket(0, ANY, ANY, [PARSER.OFPActionOutput(4, 0)])
    for kind, buckets, port in [
        (proto.OFPGT_ALL, [PEER.bucket(4)], 4),
        (proto.OFPGT_ALL, [watching], 4),
        (proto.OFPGT_SELECT, [PEER.bucket(4)], None),
        (proto.OFPGT_ALL, [PEER.bucket(4), PEER.bucket(5)], None),
        (proto.OFPGT_ALL, [other], None),
        (proto.OFPGT_ALL, [], None),
    ]:
        data = PEER.bytes_of(PARSER.OFPGroupMod(PEER, 0, kind, 6, buckets), 1)
        assert decode_group_mod(data) == GroupMod(1, 0, 6, port, port is None)
        desc = struct.pack("!HBxI", 8 + len(data) - 16, kind, 6) + data[16:]
        assert decode_group_descs(desc * 2) == [GroupDesc(6, port)] * 2


def lengths_changed(data: bytes, places: list[int]) -> Iterator[bytes]:
    """A message with each of its lengths too small, too big, or odd."""
    for place in places:
        (length,) = struct.unpack_from("!H", data, place)
        for wrong in {0, 1, 3, length - 1, length + 1, length + 8, 0xFFFF} - {length}:
            yield data[:place] + struct.pack("!H", wrong) + data[place + 2 :]


def test_lengths_that_contradict_each_other_are_malformed() -> None:
    op = FlowOp(Change.ADD, FlowEntry(1, 2, MATCH, (Output(1), ToGroup(2)), 2))
    data = encode_ops(V1_4, [op], 1)
    # Message, match, instruction, action, action, instruction.
    for wrong in lengths_changed(data, [2, 50, 98, 106, 122, 130]):
        try:
            entry = decode_flow_mod(wrong).entry
        except MalformedMessage:
            continue
        # A longer match swallows what follows; it never becomes an entry of ours.
        assert isinstance(entry, Foreign)


def test_lengths_of_records_and_groups_are_checked() -> None:
    stat = FlowStat(1, 2, 3, FlowEntry(1, 2, MATCH, (Output(1),)))
    body = encode_flow_stats(V1_3, 1, [stat])[MULTIPART.size :]
    for wrong in [b"\0", body + b"\0", body[:-1], body[:40], *lengths_changed(body, [0])]:
        with pytest.raises(MalformedMessage):
            decode_flow_stats(wrong)
    group = encode_group_ops(V1_3, [GroupOp(Change.ADD, GroupEntry(1, "h1", 2))], 1)
    for wrong in [group[:12], group + b"\0", *lengths_changed(group, [2, 16])]:
        with pytest.raises(MalformedMessage):
            decode_group_mod(wrong)
    desc = struct.pack("!HBxI", len(group) - 8, 0, 6) + group[16:]
    assert decode_group_descs(desc) == [GroupDesc(6, 2)]
    for wrong in [desc[:4], desc + b"\0", *lengths_changed(desc, [0])]:
        with pytest.raises(MalformedMessage):
            decode_group_descs(wrong)


@given(st.binary(max_size=200), matches)
def test_garbage_is_malformed_but_never_another_error(noise: bytes, match: Match) -> None:
    begun = encode_ops(V1_3, [FlowOp(Change.ADD, FlowEntry(1, 1, match))], 1)
    for data in (noise, begun + noise):
        sized = data[:2] + struct.pack("!H", len(data)) + data[4:]
        for decode in (decode_flow_mod, decode_group_mod, decode_flow_stats, decode_group_descs):
            for each in (data, sized):
                with contextlib.suppress(MalformedMessage):
                    decode(each)
