import pytest
from hypothesis import given
from hypothesis import strategies as st

from dzflow.address import ALL, Match
from sdn.openflow.protocol.codec import (
    NotEncodable,
    barrier,
    encode_group_ops,
    encode_ops,
)
from sdn.openflow.protocol.constants import V1_3, V1_4
from sdn.tables.flows import Change, FlowEntry, FlowOp, GroupEntry, GroupOp, Output
from tests.sdn.openflow.reference import SHAPES, Datapath, group_ops, ops, versions, xids

MATCH = Match(0xFF1E << 112, ALL ^ (ALL >> 16))


@pytest.mark.parametrize("version", [V1_3, V1_4])
@pytest.mark.parametrize("change", Change)
def test_every_form_of_entry_is_what_os_ken_writes(version: int, change: Change) -> None:
    peer = Datapath(version)
    for entry in SHAPES:
        op = FlowOp(change, entry)
        assert encode_ops(version, [op], 1) == peer.flow_mod(op, 1), op


@given(versions, ops, xids)
def test_a_flow_mod_is_what_os_ken_writes(version: int, op: FlowOp, xid: int) -> None:
    assert encode_ops(version, [op], xid) == Datapath(version).flow_mod(op, xid)


@given(versions, group_ops, xids)
def test_a_group_mod_is_what_os_ken_writes(version: int, op: GroupOp, xid: int) -> None:
    assert encode_group_ops(version, [op], xid) == Datapath(version).group_mod(op, xid)


@given(versions, st.lists(ops, max_size=5), st.lists(group_ops, max_size=5))
def test_xids_rise_with_the_operations(
    version: int, flows: list[FlowOp], groups: list[GroupOp]
) -> None:
    peer = Datapath(version)
    assert encode_ops(version, flows, 7) == b"".join(
        peer.flow_mod(op, xid) for xid, op in enumerate(flows, 7)
    )
    assert encode_group_ops(version, groups, 7) == b"".join(
        peer.group_mod(op, xid) for xid, op in enumerate(groups, 7)
    )


@pytest.mark.parametrize("version", [V1_3, V1_4])
def test_a_barrier_is_what_os_ken_writes(version: int) -> None:
    peer = Datapath(version)
    expected = peer.bytes_of(peer.ofproto_parser.OFPBarrierRequest(peer), 9)
    assert barrier(version, 9) == expected


@pytest.mark.parametrize(
    ("op", "xid"),
    [
        (FlowOp(Change.ADD, FlowEntry(256, 1, MATCH)), 1),
        (FlowOp(Change.ADD, FlowEntry(1, 1 << 16, MATCH)), 1),
        (FlowOp(Change.ADD, FlowEntry(1, 1, None, in_port=1 << 32)), 1),
        (FlowOp(Change.ADD, FlowEntry(1, 1, Match(-1, ALL))), 1),
        (FlowOp(Change.ADD, FlowEntry(1, 1, Match(0, ALL + 1))), 1),
        (FlowOp(Change.ADD, FlowEntry(1, 1, MATCH, goto=256)), 1),
        (FlowOp(Change.ADD, FlowEntry(1, 1, MATCH, (Output(1 << 32),))), 1),
        (FlowOp(Change.ADD, FlowEntry(1, 1, MATCH, (Output(1),) * 4090)), 1),
        (FlowOp(Change.DELETE, FlowEntry(1, 1, MATCH)), 1 << 32),
    ],
)
def test_numbers_without_room_are_named_and_nothing_is_encoded(op: FlowOp, xid: int) -> None:
    with pytest.raises(NotEncodable, match="cannot be sent"):
        encode_ops(V1_4, [op], xid)


def test_a_group_without_room_for_its_number_is_named() -> None:
    with pytest.raises(NotEncodable, match="h1"):
        encode_group_ops(V1_4, [GroupOp(Change.ADD, GroupEntry(1 << 32, "h1", 1))], 1)
