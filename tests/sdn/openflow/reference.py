"""os-ken as the codec to compare ours with, and strategies for what we send."""

from types import ModuleType
from typing import Any

from hypothesis import strategies as st
from os_ken.ofproto import (
    ofproto_parser,
    ofproto_v1_3,
    ofproto_v1_3_parser,
    ofproto_v1_4,
    ofproto_v1_4_parser,
)

from dzflow.address import ALL, DELIVERY_MAC, Match
from sdn.openflow.protocol.constants import OUR_COOKIE_MASK, V1_3, V1_4
from sdn.tables.flows import (
    Action,
    Change,
    FlowEntry,
    FlowOp,
    GroupEntry,
    GroupOp,
    Output,
    ToGroup,
)

versions = st.sampled_from([V1_3, V1_4])
xids = st.integers(0, 0xFFFFFFFF)
ports = st.integers(1, 0xFFFFFFFF)
bits128 = st.integers(0, ALL)
masks = st.one_of(
    bits128, st.integers(0, 128).map(lambda ones: ALL ^ (ALL >> ones)), st.just(ALL), st.just(0)
)
matches = st.builds(lambda address, mask: Match(address & mask, mask), bits128, masks)
actions = st.lists(
    st.one_of(st.builds(Output, ports), st.builds(ToGroup, st.integers(0, 0xFFFFFF00))),
    max_size=5,
).map(lambda found: tuple[Action, ...](found))
entries = st.builds(
    FlowEntry,
    table=st.integers(0, 254),
    priority=st.integers(0, 0xFFFF),
    match=st.none() | matches,
    actions=actions,
    goto=st.none() | st.integers(0, 254),
    in_port=st.none() | ports,
)
ops = st.builds(FlowOp, st.sampled_from(Change), entries)
SHAPES = [
    FlowEntry(3, 100, match, done, goto, in_port)
    for match in (
        None,
        Match(0, 0),
        Match(0xFF1E << 112, ALL ^ (ALL >> 16)),
        Match(0xFF1E_0400 << 96 | 0x50, ALL ^ 0xAF),
        Match(0xFF1E_0400 << 96 | 0xD2, ALL),
    )
    for done in (
        (),
        (Output(7),),
        (ToGroup(0xD2000001),),
        (Output(1), ToGroup(0xD2000001), Output(0xFFFFFF00)),
    )
    for goto in (None, 4)
    for in_port in (None, 9)
]
"""Every form of entry that we write."""

group_ops = st.builds(
    GroupOp,
    st.sampled_from(Change),
    st.builds(GroupEntry, st.integers(0, 0xFFFFFF00), st.just("h1"), ports),
)


class Datapath:
    """As much of os-ken's datapath as its messages need."""

    def __init__(self, version: int) -> None:
        modules: dict[int, tuple[ModuleType, ModuleType]] = {
            V1_3: (ofproto_v1_3, ofproto_v1_3_parser),
            V1_4: (ofproto_v1_4, ofproto_v1_4_parser),
        }
        self.ofproto, self.ofproto_parser = modules[version]

    def bytes_of(self, message: Any, xid: int) -> bytes:
        """A message of os-ken's on the wire."""
        message.set_xid(xid)
        message.serialize()
        return bytes(message.buf)

    def parse(self, data: bytes) -> Any:
        """A message as os-ken reads it."""
        version, kind, length, xid = ofproto_parser.header(data)
        return ofproto_parser.msg(self, version, kind, length, xid, data)

    def match(self, in_port: int | None, match: Match | None) -> Any:
        """A match with the fields that the notes on the wire format ask for."""
        fields: dict[str, Any] = {}
        if in_port is not None:
            fields["in_port"] = in_port
        if match is not None:
            fields["eth_type"] = 0x86DD
            if match.mask == ALL:
                fields["ipv6_dst"] = _ipv6(match.address)
            elif match.mask:
                fields["ipv6_dst"] = (_ipv6(match.address), _ipv6(match.mask))
        return self.ofproto_parser.OFPMatch(**fields)

    def instructions(self, entry: FlowEntry) -> list[Any]:
        """Apply the actions, if there are any, then go on, if there is where."""
        proto, parser = self.ofproto, self.ofproto_parser
        found = []
        if entry.actions:
            done = [
                parser.OFPActionOutput(action.port, 0)
                if isinstance(action, Output)
                else parser.OFPActionGroup(action.group)
                for action in entry.actions
            ]
            found.append(parser.OFPInstructionActions(proto.OFPIT_APPLY_ACTIONS, done))
        if entry.goto is not None:
            found.append(parser.OFPInstructionGotoTable(entry.goto))
        return found

    def flow_mod(self, op: FlowOp, xid: int) -> bytes:
        """A flow operation as os-ken writes it."""
        proto, entry = self.ofproto, op.entry
        command = {
            Change.ADD: proto.OFPFC_ADD,
            Change.MODIFY: proto.OFPFC_MODIFY_STRICT,
            Change.DELETE: proto.OFPFC_DELETE_STRICT,
        }[op.change]
        message = self.ofproto_parser.OFPFlowMod(
            datapath=self,
            cookie=entry.cookie,
            cookie_mask=0 if op.change is Change.ADD else OUR_COOKIE_MASK,
            table_id=entry.table,
            command=command,
            priority=entry.priority,
            buffer_id=proto.OFP_NO_BUFFER,
            out_port=proto.OFPP_ANY,
            out_group=proto.OFPG_ANY,
            match=self.match(entry.in_port, entry.match),
            instructions=[] if op.change is Change.DELETE else self.instructions(entry),
        )
        return self.bytes_of(message, xid)

    def group_mod(self, op: GroupOp, xid: int) -> bytes:
        """An operation on a host's group as os-ken writes it."""
        proto, parser = self.ofproto, self.ofproto_parser
        command = {
            Change.ADD: proto.OFPGC_ADD,
            Change.MODIFY: proto.OFPGC_MODIFY,
            Change.DELETE: proto.OFPGC_DELETE,
        }[op.change]
        buckets = [] if op.change is Change.DELETE else [self.bucket(op.group.port)]
        message = parser.OFPGroupMod(self, command, proto.OFPGT_ALL, op.group.group, buckets)
        return self.bytes_of(message, xid)

    def bucket(self, port: int) -> Any:
        """The bucket of a host's group."""
        proto, parser = self.ofproto, self.ofproto_parser
        done = [
            parser.OFPActionSetField(eth_dst=DELIVERY_MAC),
            parser.OFPActionSetField(ipv6_dst="ff1e::d2"),
            parser.OFPActionOutput(port, 0),
        ]
        return parser.OFPBucket(0, proto.OFPP_ANY, proto.OFPG_ANY, done)


def _ipv6(number: int) -> str:
    return number.to_bytes(16, "big").hex(":", 2)
