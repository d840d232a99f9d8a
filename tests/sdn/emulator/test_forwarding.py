"""A frame goes through the tables as OpenFlow says."""

import struct
from ipaddress import IPv6Address

import pytest
from msgspec.structs import replace

from dzflow.address import DELIVERY, DELIVERY_MAC, Match
from sdn.emulator import frames
from sdn.emulator.datapath import UnknownPort
from sdn.emulator.switch import EmulatedSwitch
from sdn.openflow.protocol.constants import CONTROLLER_PORT, V1_4
from sdn.openflow.protocol.events import PacketIn
from sdn.tables.flows import Change, FlowEntry, FlowOp, Output, ToGroup
from tests.sdn.emulator.support import OURS, PORTS, Wired, add, entry, group
from tests.sdn.openflow.reference import Datapath

PEER = Datapath(V1_4)
PROTO, PARSER = PEER.ofproto, PEER.ofproto_parser

MAC = bytes.fromhex("02d200000001")
ADDRESS = frames.link_local(MAC)
EVENT = frames.event(MAC, ADDRESS, 0xFF1E_0410 << 96, b"hello")
LLDP = bytes.fromhex("0180c200000e 020000000001 88cc") + b"x" * 46
IN_PORT, FLOOD, TABLE = 0xFFFFFFF8, 0xFFFFFFFB, 0xFFFFFFF9


def switch(*entries: FlowEntry) -> EmulatedSwitch:
    made = EmulatedSwitch("s1", 1, PORTS)
    for number in (1, 2):
        made.change_group(group(number, number))
    for each in entries:
        made.change(FlowOp(Change.ADD, each))
    return made


def ports(made: EmulatedSwitch, frame: bytes = EVENT, in_port: int = 4) -> list[int]:
    return [port for port, _ in made.receive(frame, in_port)]


def checksum_is_right(frame: bytes) -> bool:
    body = frame[54:]
    words = frame[22:54] + struct.pack("!I3xB", len(body), frame[20]) + body
    words += bytes(len(words) % 2)
    total: int = sum(struct.unpack(f"!{len(words) // 2}H", words))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total == 0xFFFF


def test_the_highest_priority_wins() -> None:
    low, high = entry(0, 1, priority=1, table=0, port=1), entry(0, 8, priority=2, table=0, port=2)
    assert ports(switch(low, high)) == [2]
    assert ports(switch(low, replace(high, priority=0))) == [1]


def test_a_packet_passes_one_table_after_another() -> None:
    first = entry(table=0, port=1, goto=3)
    last = FlowEntry(3, 0, None, (Output(2), Output(3)))
    assert ports(switch(first, last)) == [1, 2, 3]


def test_without_a_matching_entry_a_packet_ends() -> None:
    made = switch(entry(table=0, port=1, goto=3))
    assert ports(made) == [1]
    assert made.counters.dropped == 0
    assert ports(made, LLDP) == []
    assert made.counters.dropped == 1


def test_an_entry_without_anything_to_do_drops() -> None:
    made = switch(FlowEntry(0, 9, OURS), FlowEntry(0, 1, None, (Output(1),)))
    assert ports(made) == []
    assert made.counters.dropped == 1


def test_an_entry_may_ask_for_the_port_that_a_packet_came_in_by() -> None:
    made = switch(replace(entry(table=0, port=1), in_port=3))
    assert ports(made, in_port=3) == [1]
    assert ports(made, in_port=2) == []


def test_a_packet_leaves_by_the_port_it_came_in_only_if_told_so_by_name() -> None:
    made = switch(FlowEntry(0, 1, None, (Output(3), Output(4))))
    assert ports(made, in_port=4) == [3]
    made.change(FlowOp(Change.MODIFY, FlowEntry(0, 1, None, (Output(IN_PORT),))))
    assert ports(made, in_port=4) == [4]


def test_flooding_spares_the_port_that_the_packet_came_in_by_and_those_that_are_down() -> None:
    made = switch(FlowEntry(0, 1, None, (Output(FLOOD),)))
    made.set_port(2, up=False)
    assert ports(made, in_port=4) == [1, 3]


def test_an_entry_for_all_ipv6_is_not_for_others() -> None:
    made = switch(FlowEntry(0, 1, Match(0, 0), (Output(1),)), FlowEntry(0, 1, None, (Output(2),)))
    assert ports(made, LLDP) == [2]
    assert set(ports(made)) < {1, 2}


def test_a_group_changes_its_copy_and_not_the_packet() -> None:
    made = switch(
        FlowEntry(0, 1, None, (ToGroup(1), Output(3)), 1), FlowEntry(1, 1, None, (ToGroup(2),))
    )
    delivered, passed, again = made.receive(EVENT, 4)
    assert passed == (3, EVENT)
    for port, (number, frame) in ((1, delivered), (2, again)):
        assert number == port
        assert frame[:6] == bytes.fromhex(DELIVERY_MAC.replace(":", ""))
        assert frames.read_event(frame) == (DELIVERY.to_bytes(16, "big"), b"hello")
        assert checksum_is_right(frame)


def test_what_an_entry_sets_holds_for_all_that_follows() -> None:
    made = switch(FlowEntry(1, 5, Match(DELIVERY, (1 << 128) - 1), (Output(2),)))
    done = [
        PARSER.OFPActionOutput(1, 0),
        PARSER.OFPActionSetField(ipv6_dst=str(IPv6Address(DELIVERY))),
    ]
    rewriting = PARSER.OFPFlowMod(
        PEER,
        priority=3,
        buffer_id=PROTO.OFP_NO_BUFFER,
        match=PARSER.OFPMatch(),
        instructions=[
            PARSER.OFPInstructionActions(PROTO.OFPIT_APPLY_ACTIONS, done),
            PARSER.OFPInstructionGotoTable(1),
        ],
    )
    made.change_by_message(PEER.bytes_of(rewriting, 1))
    (first, unchanged), (second, changed) = made.receive(EVENT, 4)
    assert (first, unchanged, second) == (1, EVENT, 2)
    assert frames.ipv6_destination(changed) == DELIVERY


def test_entries_count_what_they_match() -> None:
    made = switch(FlowEntry(0, 1, None, (Output(1),), 1))
    for _ in range(3):
        made.receive(EVENT, 4)
    (rule,) = made.rules()
    assert (rule.packets, rule.octets) == (3, 3 * len(EVENT))


def test_a_port_that_is_down_neither_takes_nor_gives() -> None:
    made = switch(FlowEntry(0, 1, None, (Output(1),)))
    made.set_port(1, up=False)
    assert ports(made) == []
    made.set_port(1, up=True)
    made.set_port(4, up=False)
    assert ports(made) == []
    made.set_port(4, up=True)
    assert ports(made) == [1]
    with pytest.raises(UnknownPort, match="99"):
        made.set_port(99, up=False)


def test_the_controller_gets_what_an_entry_sends_to_it() -> None:
    wired = Wired()
    wired.apply(add(FlowEntry(0, 0, None, (Output(CONTROLLER_PORT),))))
    wired.switch.receive(EVENT, 3)
    (told,) = wired.pump()
    assert told == PacketIn(3, EVENT, FlowEntry(0, 0, None).cookie, reason=0, table=0)
    wired.apply(add(FlowEntry(0, 7, OURS, (Output(CONTROLLER_PORT), Output(1)))))
    assert wired.switch.receive(EVENT, 3) == [(1, EVENT)]
    (told,) = wired.pump()
    assert isinstance(told, PacketIn)
    assert told.reason == 1


def test_a_packet_out_may_take_the_way_through_the_tables() -> None:
    wired = Wired()
    wired.apply(add(FlowEntry(0, 1, OURS, (Output(3),))))
    wired.session.packet_out(TABLE, EVENT)
    wired.session.packet_out(2, LLDP)
    wired.session.packet_out(FLOOD, LLDP)
    assert wired.pump() == []
    assert wired.frames == [(3, EVENT), (2, LLDP), *((port.number, LLDP) for port in PORTS)]


@pytest.mark.parametrize(
    ("match", "fitting"),
    [
        ({"eth_type": 0x88CC}, "lldp"),
        ({"eth_dst": "01:80:c2:00:00:0e"}, "lldp"),
        ({"eth_dst": ("33:33:00:00:00:00", "ff:ff:00:00:00:00")}, "event advertised asked"),
        ({"eth_src": "02:d2:00:00:00:01", "in_port": 3}, "event advertised asked"),
        ({"eth_src": "02:d2:00:00:00:01", "in_port": 2}, ""),
        ({"eth_type": 0x86DD, "ip_proto": 58, "icmpv6_type": 136}, "advertised"),
        ({"eth_type": 0x86DD, "ip_proto": 58, "icmpv6_type": 135, "icmpv6_code": 0}, "asked"),
        ({"eth_type": 0x86DD, "ip_proto": 17, "udp_dst": 9700}, "event"),
        ({"eth_type": 0x86DD, "ip_proto": 17, "udp_src": 9701}, ""),
        ({"eth_type": 0x86DD, "ip_proto": 6, "tcp_dst": 9700}, ""),
        ({"eth_type": 0x86DD, "ipv6_src": str(IPv6Address(ADDRESS))}, "event advertised asked"),
        (
            {
                "eth_type": 0x86DD,
                "ip_proto": 58,
                "icmpv6_type": 136,
                "ipv6_nd_target": str(IPv6Address(ADDRESS)),
            },
            "advertised",
        ),
        ({"eth_type": 0x0800}, "old"),
        ({"eth_type": 0x0800, "ipv4_dst": ("10.0.0.0", "255.0.0.0")}, "old"),
        ({"eth_type": 0x0800, "ip_proto": 6, "tcp_dst": 80, "ipv4_src": "10.0.0.1"}, "old"),
    ],
)
def test_entries_of_other_applications_match_by_other_fields(
    match: dict[str, object], fitting: str
) -> None:
    made = switch()
    done = PARSER.OFPInstructionActions(PROTO.OFPIT_APPLY_ACTIONS, [PARSER.OFPActionOutput(1, 0)])
    theirs = PARSER.OFPFlowMod(
        PEER,
        priority=3,
        buffer_id=PROTO.OFP_NO_BUFFER,
        match=PARSER.OFPMatch(**match),
        instructions=[done],
    )
    made.change_by_message(PEER.bytes_of(theirs, 1))
    ipv4 = bytes.fromhex("450000280001000040060000 0a000001 0a000002 1f900050") + bytes(16)
    seen = {
        "lldp": LLDP,
        "event": EVENT,
        "advertised": frames.neighbour_advertisement(MAC, ADDRESS),
        "asked": frames.neighbour_solicitation(MAC, ADDRESS, 0xFE80 << 112 | 9),
        "old": bytes(12) + b"\x08\x00" + ipv4,
    }
    assert [name for name in seen if ports(made, seen[name], 3)] == fitting.split()


def test_entries_of_others_and_ours_go_by_priority_together() -> None:
    made = switch(entry(table=0, priority=5, port=2))
    for priority, expected in ((3, [2]), (7, [1])):
        done = [
            PARSER.OFPInstructionActions(PROTO.OFPIT_APPLY_ACTIONS, [PARSER.OFPActionOutput(1, 0)])
        ]
        theirs = PARSER.OFPFlowMod(
            PEER,
            priority=priority,
            buffer_id=PROTO.OFP_NO_BUFFER,
            match=PARSER.OFPMatch(eth_type=0x86DD, ip_proto=17),
            instructions=done,
        )
        made.change_by_message(PEER.bytes_of(theirs, 1))
        assert ports(made) == expected


def test_frames_have_right_checksums() -> None:
    for frame in (
        EVENT,
        frames.event(MAC, ADDRESS, DELIVERY, b"odd"),
        frames.neighbour_advertisement(MAC, ADDRESS),
        frames.neighbour_solicitation(MAC, ADDRESS, ADDRESS + 1),
    ):
        assert checksum_is_right(frame)
