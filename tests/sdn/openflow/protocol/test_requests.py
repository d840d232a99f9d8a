import pytest

from sdn.openflow.protocol import requests
from sdn.openflow.protocol.constants import (
    ALL_TABLES,
    ANY,
    OUR_COOKIE_MASK,
    OUR_COOKIES,
    V1_3,
    V1_4,
    Multipart,
    Role,
)
from tests.sdn.openflow.reference import Datapath

both = pytest.mark.parametrize("version", [V1_3, V1_4])


@both
def test_our_hello_offers_both_versions(version: int) -> None:
    hello = Datapath(version).parse(requests.hello(3))
    assert (hello.version, hello.xid) == (V1_4, 3)
    assert [element.versions for element in hello.elements] == [[V1_3, V1_4]]


@both
def test_requests_are_what_os_ken_writes(version: int) -> None:
    peer = Datapath(version)
    proto, parser = peer.ofproto, peer.ofproto_parser
    any_match = parser.OFPMatch()
    expected = {
        requests.role_request(version, 4, Role.MASTER, 1 << 40): parser.OFPRoleRequest(
            peer, proto.OFPCR_ROLE_MASTER, 1 << 40
        ),
        requests.packet_out(version, 4, 7, b"packet"): parser.OFPPacketOut(
            peer,
            buffer_id=proto.OFP_NO_BUFFER,
            in_port=proto.OFPP_CONTROLLER,
            actions=[parser.OFPActionOutput(7, 0)],
            data=b"packet",
        ),
        requests.flow_stats_request(version, 4, OUR_COOKIES, OUR_COOKIE_MASK, 3): (
            parser.OFPFlowStatsRequest(
                peer, 0, 3, ANY, ANY, OUR_COOKIES, OUR_COOKIE_MASK, any_match
            )
        ),
        requests.multipart_request(version, 4, Multipart.PORT_DESC): (
            parser.OFPPortDescStatsRequest(peer)
        ),
        requests.multipart_request(version, 4, Multipart.GROUP_DESC): (
            parser.OFPGroupDescStatsRequest(peer)
        ),
        requests.multipart_request(version, 4, Multipart.GROUP_FEATURES): (
            parser.OFPGroupFeaturesStatsRequest(peer)
        ),
        requests.multipart_request(version, 4, Multipart.TABLE_FEATURES): (
            parser.OFPTableFeaturesStatsRequest(peer, 0)
        ),
        requests.error(version, 4, 1, 6, b"d" * 64): parser.OFPErrorMsg(peer, 1, 6, b"d" * 64),
    }
    for ours, theirs in expected.items():
        assert ours == peer.bytes_of(theirs, 4), type(theirs)


def test_a_flow_monitor_is_what_os_ken_writes() -> None:
    peer = Datapath(V1_4)
    proto, parser = peer.ofproto, peer.ofproto_parser
    flags = (
        proto.OFPFMF_ADD | proto.OFPFMF_REMOVED | proto.OFPFMF_MODIFY | proto.OFPFMF_INSTRUCTIONS
    )
    theirs = parser.OFPFlowMonitorRequest(
        peer, 0, 9, ANY, ANY, flags, ALL_TABLES, proto.OFPFMC_ADD, parser.OFPMatch()
    )
    assert requests.flow_monitor_request(V1_4, 4, 9, on=True) == peer.bytes_of(theirs, 4)


def test_an_error_shows_the_beginning_of_what_it_answers() -> None:
    assert requests.error(V1_3, 4, 1, 6, b"d" * 500) == requests.error(V1_3, 4, 1, 6, b"d" * 64)
