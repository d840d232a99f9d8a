"""os-ken, which has nothing in common with our encoder, reads what a switch sends."""

import struct
from typing import Any

import pytest

from sdn.emulator.model import SwitchModel
from sdn.emulator.switch import EmulatedSwitch
from sdn.openflow.protocol import requests
from sdn.openflow.protocol.constants import ANY, V1_3, V1_4, Role, Type
from sdn.openflow.protocol.encode import barrier, encode_group_ops, encode_ops
from sdn.openflow.protocol.wire import message
from sdn.tables.flows import Change, FlowEntry, FlowOp, Output, ToGroup
from tests.sdn.emulator.support import PORTS, add, entry, group
from tests.sdn.openflow.peer import split
from tests.sdn.openflow.reference import Datapath

both = pytest.mark.parametrize("version", [V1_3, V1_4])
LLDP = bytes.fromhex("0180c200000e 020000000001 88cc") + b"\x02\x07" + b"x" * 40


class Observer:
    """Sends messages of os-ken's to a switch and reads the answers with its parsers."""

    def __init__(self, version: int, model: SwitchModel | None = None) -> None:
        self.peer = Datapath(version)
        self.proto, self.parser = self.peer.ofproto, self.peer.ofproto_parser
        self.switch = EmulatedSwitch("s1", 0xD2, PORTS, model or SwitchModel(tables=20))
        self.connection = self.switch.connect()
        self.version = version
        hello = self.parser.OFPHello(
            self.peer, [self.parser.OFPHelloElemVersionBitmap(versions=[version])]
        )
        (self.greeting,) = self.feed(self.peer.bytes_of(hello, 9))

    def feed(self, data: bytes) -> list[Any]:
        self.switch.feed(self.connection, data, 0.0)
        return self.read()

    def read(self) -> list[Any]:
        return [self.peer.parse(each) for each in split(self.connection.outgoing())]

    def written(self, entry: FlowEntry) -> Any:
        """A flow-mod for an entry as os-ken writes and then reads it."""
        return self.peer.parse(self.peer.flow_mod(FlowOp(Change.ADD, entry), 1))

    def ask(self, request: Any) -> list[Any]:
        found = self.feed(self.peer.bytes_of(request, 5))
        assert {reply.xid for reply in found} == {5}
        return found


@both
def test_the_greeting_offers_our_versions(version: int) -> None:
    greeting = Observer(version).greeting
    (element,) = greeting.elements
    assert element.versions == [V1_3, V1_4]
    assert greeting.version == V1_4


@both
def test_the_switch_introduces_itself(version: int) -> None:
    seen = Observer(version)
    (features,) = seen.ask(seen.parser.OFPFeaturesRequest(seen.peer))
    assert (features.datapath_id, features.n_tables, features.auxiliary_id) == (0xD2, 20, 0)
    assert features.n_buffers == 0
    assert features.capabilities == seen.proto.OFPC_FLOW_STATS
    (description,) = seen.ask(seen.parser.OFPDescStatsRequest(seen.peer, 0))
    assert description.body.dp_desc == b"s1"


@both
def test_ports(version: int) -> None:
    seen = Observer(version)
    seen.switch.set_port(2, up=False)
    seen.read()
    (reply,) = seen.ask(seen.parser.OFPPortDescStatsRequest(seen.peer, 0))
    found = [(port.port_no, port.name, port.hw_addr, port.config) for port in reply.body]
    assert found == [(port.number, port.name.encode(), port.mac, 0) for port in PORTS]
    live, down = seen.proto.OFPPS_LIVE, seen.proto.OFPPS_LINK_DOWN
    assert [port.state for port in reply.body] == [live, down, live, live]


@both
def test_the_state_of_a_port_is_told(version: int) -> None:
    seen = Observer(version)
    seen.switch.set_port(3, up=False)
    (told,) = seen.read()
    assert (told.reason, told.desc.port_no) == (seen.proto.OFPPR_MODIFY, 3)
    assert told.desc.state == seen.proto.OFPPS_LINK_DOWN
    seen.switch.set_port(3, up=False)
    assert seen.read() == []


@both
def test_barriers_echoes_and_settings(version: int) -> None:
    seen = Observer(version)
    (answer,) = seen.ask(seen.parser.OFPBarrierRequest(seen.peer))
    assert isinstance(answer, seen.parser.OFPBarrierReply)
    (answer,) = seen.ask(seen.parser.OFPEchoRequest(seen.peer, b"alive?"))
    assert answer.data == b"alive?"
    settings = seen.parser.OFPSetConfig(seen.peer, 0, 128)
    assert seen.feed(seen.peer.bytes_of(settings, 4)) == []
    (answer,) = seen.ask(seen.parser.OFPGetConfigRequest(seen.peer))
    assert (answer.flags, answer.miss_send_len) == (0, 128)


@both
def test_what_tables_can_do(version: int) -> None:
    seen = Observer(version, SwitchModel(tables=254, table_capacity=77))
    replies = seen.ask(seen.parser.OFPTableFeaturesStatsRequest(seen.peer, 0))
    assert [reply.flags for reply in replies] == [1] * (len(replies) - 1) + [0]
    tables = [table for reply in replies for table in reply.body]
    assert [table.table_id for table in tables] == list(range(254))
    assert {table.max_entries for table in tables} == {77}
    proto = seen.proto
    properties = {each.type: each for each in tables[3].properties}
    instructions = {each.type for each in properties[proto.OFPTFPT_INSTRUCTIONS].instruction_ids}
    assert instructions == {proto.OFPIT_GOTO_TABLE, proto.OFPIT_APPLY_ACTIONS}
    assert properties[proto.OFPTFPT_NEXT_TABLES].table_ids == list(range(4, 254))
    actions = {each.type for each in properties[proto.OFPTFPT_APPLY_ACTIONS].action_ids}
    assert actions == {proto.OFPAT_OUTPUT, proto.OFPAT_GROUP, proto.OFPAT_SET_FIELD}
    fields = {each.type: each.hasmask for each in properties[proto.OFPTFPT_MATCH].oxm_ids}
    assert fields["ipv6_dst"]
    assert not fields["in_port"]
    last = {each.type: each for each in tables[-1].properties}
    assert {each.type for each in last[proto.OFPTFPT_INSTRUCTIONS].instruction_ids} == {
        proto.OFPIT_APPLY_ACTIONS
    }


@both
def test_groups_and_what_they_can_do(version: int) -> None:
    seen = Observer(version, SwitchModel(max_groups=9))
    assert seen.feed(encode_group_ops(version, [group(6, 2), group(7, 3)], 1)) == []
    (reply,) = seen.ask(seen.parser.OFPGroupDescStatsRequest(seen.peer, 0))
    assert [(each.group_id, each.type) for each in reply.body] == [(6, 0), (7, 0)]
    for found, port in zip(reply.body, (2, 3), strict=True):
        (bucket,) = found.buckets
        assert str(bucket.actions) == str(seen.peer.bucket(port).actions)
    (features,) = seen.ask(seen.parser.OFPGroupFeaturesStatsRequest(seen.peer, 0))
    assert features.body.types == 1 << seen.proto.OFPGT_ALL
    assert features.body.max_groups[0] == 9


@both
def test_statistics_show_entries_of_any_form_as_they_were_written(version: int) -> None:
    seen = Observer(version)
    parser, proto = seen.parser, seen.proto
    seen.feed(encode_group_ops(version, [group(6, 2)], 1))
    seen.feed(encode_ops(version, add(entry(table=0, actions=(Output(1), ToGroup(6)))), 2))
    to_controller = parser.OFPActionOutput(proto.OFPP_CONTROLLER, proto.OFPCML_NO_BUFFER)
    theirs = parser.OFPFlowMod(
        seen.peer,
        cookie=0x77,
        priority=9,
        buffer_id=proto.OFP_NO_BUFFER,
        match=parser.OFPMatch(eth_type=0x86DD, ip_proto=58, icmpv6_type=136),
        instructions=[parser.OFPInstructionActions(proto.OFPIT_APPLY_ACTIONS, [to_controller])],
    )
    assert seen.feed(seen.peer.bytes_of(theirs, 3)) == []
    (reply,) = seen.ask(parser.OFPFlowStatsRequest(seen.peer, match=parser.OFPMatch()))
    ours, foreign = reply.body
    assert ours.cookie == entry().cookie
    written = seen.written(entry(table=0, actions=(Output(1), ToGroup(6))))
    assert str(ours.instructions) == str(written.instructions)
    assert (foreign.cookie, foreign.priority) == (0x77, 9)
    assert str(foreign.match) == str(theirs.match)
    assert str(foreign.instructions) == str(theirs.instructions)
    by_match = parser.OFPMatch(eth_type=0x86DD, ip_proto=58)
    (reply,) = seen.ask(parser.OFPFlowStatsRequest(seen.peer, match=by_match))
    assert [each.cookie for each in reply.body] == [0x77]


@both
def test_packet_ins(version: int) -> None:
    seen = Observer(version)
    parser, proto = seen.parser, seen.proto
    to_controller = parser.OFPActionOutput(proto.OFPP_CONTROLLER, proto.OFPCML_NO_BUFFER)
    discovery = parser.OFPFlowMod(
        seen.peer,
        cookie=0x88CC,
        priority=9,
        buffer_id=proto.OFP_NO_BUFFER,
        match=parser.OFPMatch(eth_type=0x88CC),
        instructions=[parser.OFPInstructionActions(proto.OFPIT_APPLY_ACTIONS, [to_controller])],
    )
    seen.feed(seen.peer.bytes_of(discovery, 3))
    assert seen.switch.receive(LLDP, 3) == []
    (told,) = seen.read()
    assert (told.table_id, told.cookie, told.match["in_port"]) == (0, 0x88CC, 3)
    assert (told.buffer_id, told.total_len, told.data) == (proto.OFP_NO_BUFFER, len(LLDP), LLDP)
    assert told.reason == 1


@both
def test_a_packet_out_leaves_by_its_port(version: int) -> None:
    seen = Observer(version)
    out = seen.parser.OFPPacketOut(
        seen.peer,
        seen.proto.OFP_NO_BUFFER,
        seen.proto.OFPP_CONTROLLER,
        [seen.parser.OFPActionOutput(2)],
        LLDP,
    )
    sent = seen.switch.feed(seen.connection, seen.peer.bytes_of(out, 3), 0.0)
    assert sent == [(2, LLDP)]
    assert seen.read() == []


@both
def test_roles(version: int) -> None:
    seen = Observer(version)
    parser, proto = seen.parser, seen.proto
    (reply,) = seen.ask(parser.OFPRoleRequest(seen.peer, proto.OFPCR_ROLE_NOCHANGE, 0))
    assert (reply.role, reply.generation_id) == (proto.OFPCR_ROLE_EQUAL, 2**64 - 1)
    (reply,) = seen.ask(parser.OFPRoleRequest(seen.peer, proto.OFPCR_ROLE_MASTER, 7))
    assert (reply.role, reply.generation_id) == (proto.OFPCR_ROLE_MASTER, 7)


def test_a_master_is_told_that_another_has_taken_over() -> None:
    seen = Observer(V1_4)
    seen.ask(seen.parser.OFPRoleRequest(seen.peer, seen.proto.OFPCR_ROLE_MASTER, 7))
    other = seen.switch.connect()
    seen.switch.feed(other, requests.hello(1), 0.0)
    seen.switch.feed(other, requests.role_request(V1_4, 2, Role.MASTER, 8), 0.0)
    (told,) = seen.read()
    assert (told.role, told.reason, told.generation_id) == (
        seen.proto.OFPCR_ROLE_SLAVE,
        seen.proto.OFPCRR_MASTER_REQUEST,
        8,
    )


def test_asynchronous_messages_can_be_turned_off_with_os_kens_words() -> None:
    seen = Observer(V1_4)
    parser, proto = seen.parser, seen.proto
    wishes = [
        parser.OFPAsyncConfigPropReasons(proto.OFPACPT_PORT_STATUS_MASTER, 8, 0),
        parser.OFPAsyncConfigPropReasons(proto.OFPACPT_PACKET_IN_SLAVE, 8, 3),
    ]
    assert seen.feed(seen.peer.bytes_of(parser.OFPSetAsync(seen.peer, wishes), 1)) == []
    seen.switch.set_port(1, up=False)
    assert seen.read() == []
    seen.switch.send_packet_ins(LLDP, 1)
    assert len(seen.read()) == 1
    seen.ask(parser.OFPRoleRequest(seen.peer, proto.OFPCR_ROLE_SLAVE, 1))
    seen.switch.send_packet_ins(LLDP, 1)
    seen.switch.set_port(1, up=True)
    assert len(seen.read()) == 2


def test_the_flow_monitor() -> None:
    seen = Observer(V1_4)
    parser, proto = seen.parser, seen.proto
    seen.feed(encode_ops(V1_4, add(entry(0), entry(1)), 1))
    everything = proto.OFPFMF_INITIAL | proto.OFPFMF_ADD | proto.OFPFMF_REMOVED
    everything |= proto.OFPFMF_INSTRUCTIONS | proto.OFPFMF_MODIFY
    request = parser.OFPFlowMonitorRequest(
        seen.peer, 0, 3, ANY, ANY, everything, proto.OFPTT_ALL, 0, parser.OFPMatch()
    )
    (reply,) = seen.ask(request)
    assert [update.event for update in reply.body] == [proto.OFPFME_INITIAL] * 2
    assert [str(update.instructions) for update in reply.body] == [
        str(seen.written(entry(n)).instructions) for n in (0, 1)
    ]
    (own,) = seen.feed(encode_ops(V1_4, add(entry(2)), 0x55))
    (update,) = own.body
    assert (update.event, update.xid) == (proto.OFPFME_ABBREV, 0x55)
    for change, event in (
        (Change.ADD, proto.OFPFME_ADDED),
        (Change.MODIFY, proto.OFPFME_MODIFIED),
        (Change.DELETE, proto.OFPFME_REMOVED),
    ):
        seen.switch.change(FlowOp(change, entry(9)), cookie=0x99)
        data = bytearray(seen.connection.outgoing())
        assert struct.unpack_from("!H", data, 18) == (event,)
        # os-ken knows only one event for each form of update, so it is told of another one.
        data[19] = proto.OFPFME_INITIAL
        (update,) = seen.peer.parse(bytes(data)).body
        assert (update.table_id, update.priority, update.cookie) == (1, 100, 0x99)
        assert str(update.match) == str(seen.peer.match(None, entry(9).match))
        assert bool(update.instructions) == (change is not Change.DELETE)


@both
def test_everything_in_one_stream_is_answered_in_order(version: int) -> None:
    seen = Observer(version)
    stream = message(version, Type.FEATURES_REQUEST, 1) + encode_ops(version, add(entry()), 2)
    stream += barrier(version, 3) + requests.flow_stats_request(version, 4, 0, 0)
    assert [reply.xid for reply in seen.feed(stream)] == [1, 3, 4]
