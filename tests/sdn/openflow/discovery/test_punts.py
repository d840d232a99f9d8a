from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdn.openflow.discovery.frames import MAX_FRAME, build_probe
from sdn.openflow.discovery.punts import PUNT_PRIORITY, PUNTS, is_punt, punt_mods
from sdn.openflow.protocol.constants import OUR_COOKIE_MASK, OUR_COOKIES, V1_3, V1_4
from sdn.openflow.protocol.decode import decode_flow_mod
from sdn.openflow.protocol.messages import Foreign
from sdn.openflow.protocol.wire import HEADER
from sdn.tables.flows import COOKIE_MARK
from sdn.tables.pipeline import DROP_PRIORITY, MISS_PRIORITY
from tests.sdn.openflow.reference import Datapath, versions

MATCHES: list[dict[str, int]] = [
    {"eth_type": 0x88CC},
    {"eth_type": 0x86DD, "ip_proto": 58, "icmpv6_type": 135},
    {"eth_type": 0x86DD, "ip_proto": 58, "icmpv6_type": 136},
]


def reference(version: int, first_xid: int, table: int, forward: bool) -> bytes:
    peer = Datapath(version)
    proto, parser = peer.ofproto, peer.ofproto_parser
    found = b""
    for number, fields in enumerate(MATCHES):
        outputs = [parser.OFPActionOutput(proto.OFPP_CONTROLLER, MAX_FRAME)]
        if forward and number:  # LLDP never leaves a switch
            outputs.append(parser.OFPActionOutput(proto.OFPP_NORMAL, 0))
        message: Any = parser.OFPFlowMod(
            datapath=peer,
            cookie=(COOKIE_MARK - 1) << 48 | number,
            table_id=table,
            command=proto.OFPFC_ADD,
            priority=PUNT_PRIORITY,
            buffer_id=proto.OFP_NO_BUFFER,
            out_port=proto.OFPP_ANY,
            out_group=proto.OFPG_ANY,
            match=parser.OFPMatch(**fields),
            instructions=[parser.OFPInstructionActions(proto.OFPIT_APPLY_ACTIONS, outputs)],
        )
        found += peer.bytes_of(message, first_xid + number)
    return found


@given(versions, st.integers(0, 0xFFFFFFFF - PUNTS), st.integers(0, 254), st.booleans())
def test_punts_are_what_os_ken_writes(version: int, xid: int, table: int, forward: bool) -> None:
    assert punt_mods(version, xid, table, forward) == reference(version, xid, table, forward)


@pytest.mark.parametrize("version", [V1_3, V1_4])
def test_punts_are_as_many_as_they_are_said_to_be_and_not_ours_to_compare(version: int) -> None:
    data, count = punt_mods(version, 9, 3), 0
    while data:
        _, _, length, xid = HEADER.unpack_from(data)
        mod = decode_flow_mod(data[:length])
        assert xid == 9 + count
        assert is_punt(mod.cookie)
        assert mod.cookie & OUR_COOKIE_MASK != OUR_COOKIES
        assert isinstance(mod.entry, Foreign)
        assert mod.entry.key is None  # no entry of ours can have this match
        data, count = data[length:], count + 1
    assert count == PUNTS


def test_other_cookies_are_no_punts() -> None:
    assert not is_punt(OUR_COOKIES)
    assert not is_punt(0)
    assert not is_punt(2**64 - 1)


def test_punts_come_before_misses_and_after_everything_else() -> None:
    assert MISS_PRIORITY < PUNT_PRIORITY < DROP_PRIORITY


def test_a_switch_sends_whole_probes() -> None:
    assert len(build_probe(bytes(32), "s" * 64, 65279, 2**64 - 1)) <= MAX_FRAME
