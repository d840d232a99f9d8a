import struct
from ipaddress import IPv6Address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from os_ken.lib.packet import ethernet, icmpv6, ipv6, lldp, packet

from sdn.emulator import frames as emulated
from sdn.openflow.discovery.frames import (
    MAX_FRAME,
    Announced,
    asker_at,
    build_probe,
    build_question,
    is_asker,
    is_link_local,
    read_announcement,
    read_probe,
)
from tests.sdn.openflow.cables import (
    ADDRESS,
    KEY,
    MAC,
    address_check,
    advertisement,
    solicitation,
    with_checksum,
)

names = st.from_regex(r"[A-Za-z0-9_.-]{1,64}", fullmatch=True)
SAID = Announced(bytes.fromhex("020000000011"), bytes.fromhex("fd00" + 13 * "00" + "11"))


@given(names, st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1))
def test_a_probe_is_read_as_it_was_built(switch: str, port: int, nonce: int) -> None:
    frame = build_probe(KEY, switch, port, nonce)
    probe = read_probe(frame)
    assert probe
    assert (probe.switch, probe.port, probe.nonce) == (switch, port, nonce)
    assert probe.authentic(KEY)
    assert not probe.authentic(KEY[::-1])
    assert len(frame) <= MAX_FRAME


def test_a_probe_is_lldp_by_the_book() -> None:
    parsed = packet.Packet(build_probe(KEY, "s1", 7, 9))
    assert parsed.protocols[0].dst == "01:80:c2:00:00:0e"
    chassis, port, ttl, ours, end = parsed.get_protocol(lldp.lldp).tlvs
    assert (chassis.chassis_id, port.port_id, ttl.ttl) == (b"s1", b"7", 120)
    assert isinstance(ours, lldp.OrganizationallySpecific)
    assert isinstance(end, lldp.End)


def test_whatever_byte_of_a_probe_is_changed_it_is_no_longer_authentic() -> None:
    frame = build_probe(KEY, "s1", 7, 9)
    for at in range(len(frame)):
        for bit in range(8):
            changed = bytearray(frame)
            changed[at] ^= 1 << bit
            probe = read_probe(bytes(changed))
            assert probe is None or not probe.authentic(KEY), (at, bit)


def test_a_probe_may_be_followed_by_a_check_sequence_but_not_be_cut() -> None:
    frame = build_probe(KEY, "s1", 7, 9)
    probe = read_probe(frame + b"\1\2\3\4")
    assert probe
    assert probe.authentic(KEY)
    assert not any(read_probe(frame[:length]) for length in range(len(frame)))


def test_the_lldp_of_others_is_no_probe() -> None:
    theirs = [
        lldp.ChassisID(subtype=lldp.ChassisID.SUB_LOCALLY_ASSIGNED, chassis_id=b"dpid:1"),
        lldp.PortID(subtype=lldp.PortID.SUB_PORT_COMPONENT, port_id=b"\0\0\0\1"),
        lldp.TTL(ttl=120),
        lldp.OrganizationallySpecific(oui=b"\x00\x12\x0f", subtype=1, info=b"info"),
        lldp.End(),
    ]
    body = lldp.lldp(theirs).serialize(None, None)
    assert read_probe(bytes.fromhex("0180c200000e 020000000001 88cc") + bytes(body)) is None


def test_long_frames_are_not_looked_into() -> None:
    assert read_probe(build_probe(KEY, "s1", 1, 1) + bytes(MAX_FRAME)) is None
    assert read_announcement(advertisement() + bytes(MAX_FRAME)) is None


@pytest.mark.parametrize("frame", [advertisement(), solicitation(), address_check()])
def test_a_host_says_its_mac_and_address(frame: bytes) -> None:
    said = read_announcement(frame)
    assert said
    assert said._replace(wanted=b"") == SAID
    assert read_announcement(frame + b"\0\0") == said  # what Ethernet puts behind it


@given(st.binary(min_size=6, max_size=6), st.integers(1, 2**120), st.integers(1, 2**120))
def test_emulated_hosts_are_understood(mac: bytes, low: int, target: int) -> None:
    mac = bytes((mac[0] & 0xFE | 2,)) + mac[1:]
    address = 0xFD << 120 | low
    said = Announced(mac, address.to_bytes(16, "big"))
    assert read_announcement(emulated.neighbour_advertisement(mac, address)) == said
    wanted = 0xFD << 120 | target
    asked = emulated.neighbour_solicitation(mac, address, wanted)
    assert read_announcement(asked) == said._replace(wanted=wanted.to_bytes(16, "big"))


def test_whatever_byte_of_a_checked_announcement_is_changed_it_says_nothing_else() -> None:
    for frame in (advertisement(), solicitation()):
        said = read_announcement(frame)
        assert said
        for at in range(len(frame)):
            for bit in range(8):
                changed = bytearray(frame)
                changed[at] ^= 1 << bit
                assert read_announcement(bytes(changed)) in (None, said), (at, bit)
        assert not any(read_announcement(frame[:length]) for length in range(len(frame)))


def patched(frame: bytes, at: int, value: bytes) -> bytes:
    """A frame with other bytes at a place, and a checksum that is right again."""
    return with_checksum(frame[:at] + value + frame[at + len(value) :])


@pytest.mark.parametrize(
    ("why", "frame"),
    [
        ("it came through a router", patched(advertisement(), 21, b"\xfe")),
        ("its code is not 0", patched(advertisement(), 55, b"\1")),
        ("an echo request", patched(advertisement(), 54, b"\x80")),
        ("IPv4 in what should be IPv6", patched(advertisement(), 14, b"\x45")),
        ("a VLAN tag", advertisement()[:12] + b"\x81\0\0\1" + advertisement()[12:]),
        ("the MAC of a group", advertisement("03:00:00:00:00:11")),
        ("no MAC", advertisement("00:00:00:00:00:00")),
        ("another MAC inside", advertisement(said_mac="02:00:00:00:00:12")),
        ("another MAC inside", solicitation(said_mac="02:00:00:00:00:12")),
        ("the address of a group", advertisement(address="ff02::5")),
        ("no address", advertisement(address="::")),
        ("its own loopback", solicitation(address="::1")),
        ("the target is a group", solicitation(target="ff02::5")),
        ("solicited by all", patched(advertisement(), 58, b"\x60")),
        ("an option without length", patched(advertisement(), 79, b"\0")),
        ("an option that is too long", patched(advertisement(), 79, b"\2")),
        ("a check of an address that tells a MAC", patched(solicitation(), 22, bytes(16))),
        (
            "a check of an address that goes to one host",
            patched(address_check(), 38, bytes.fromhex("fd00" + 14 * "00")),
        ),
    ],
)
def test_an_announcement_that_breaks_a_rule_says_nothing(why: str, frame: bytes) -> None:
    assert read_announcement(frame) is None, why


def test_a_fragmented_option_says_nothing() -> None:
    frame = advertisement()
    shorter = frame[:18] + struct.pack("!H", 25) + frame[20:79]
    assert read_announcement(with_checksum(shorter)) is None


@pytest.mark.parametrize(
    ("address", "local"),
    [("fe80", True), ("febf", True), ("fec0", False), ("fd00", False), ("2001", False)],
)
def test_link_local_addresses_are_known(address: str, local: bool) -> None:
    assert is_link_local(bytes.fromhex(address) + bytes(14)) is local


def test_the_tools_of_the_tests_agree() -> None:
    assert all(with_checksum(f) == f for f in (advertisement(), solicitation(), address_check()))
    assert SAID.mac.hex(":") == MAC
    parsed: Any = packet.Packet(advertisement())
    assert parsed.protocols[1].src == ADDRESS


def test_a_question_to_hosts_is_a_ping_to_all_nodes_from_an_address_of_the_port() -> None:
    asker = asker_at("s1", 3)
    frame = build_question(asker)
    found = packet.Packet(frame)
    [asked] = found.get_protocols(icmpv6.icmpv6)
    [header] = found.get_protocols(ipv6.ipv6)
    [lower] = found.get_protocols(ethernet.ethernet)
    assert asked.type_ == icmpv6.ICMPV6_ECHO_REQUEST
    assert (header.dst, header.hop_limit) == ("ff02::1", 255)
    assert IPv6Address(header.src).packed == asker
    assert lower.dst == "33:33:00:00:00:01"
    assert with_checksum(frame) == frame
    assert read_announcement(frame) is None
    assert is_link_local(asker)
    assert is_asker(asker)
    assert not is_asker(IPv6Address("fe80::1").packed)
    assert len({asker, asker_at("s1", 4), asker_at("s2", 3)}) == 3


def test_a_host_that_is_asked_says_by_whom() -> None:
    asker = IPv6Address(asker_at("s1", 3))
    said = read_announcement(solicitation(target=str(asker)))
    assert said is not None
    assert said.wanted == asker.packed
    said = read_announcement(advertisement())
    assert said is not None
    assert not said.wanted
