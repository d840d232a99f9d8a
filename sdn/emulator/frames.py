"""Ethernet frames as they travel in the emulated network: events, neighbour discovery, others."""

from dzflow.address import EVENT_PORT
from sdn.openflow.protocol.constants import ETH_IPV6

# Numbers of match fields (OXM, basic class) that a frame can have.
ETH_DST, ETH_SRC, ETH_TYPE = 3, 4, 5
IP_PROTO, IPV4_SRC, IPV4_DST = 10, 11, 12
TCP_SRC, TCP_DST, UDP_SRC, UDP_DST = 13, 14, 15, 16
IPV6_SRC, IPV6_DST = 26, 27
ICMPV6_TYPE, ICMPV6_CODE, ND_TARGET = 29, 30, 31

IN_PORT = 0  # a match field that is not in the frame itself

ETH_IPV4 = 0x0800
LLDP = bytes.fromhex("88cc")
TCP, UDP, ICMPV6 = 6, 17, 58

_IPV6 = ETH_IPV6.to_bytes(2, "big")
_EVENT_PORTS = EVENT_PORT.to_bytes(2, "big") * 2
_SOLICITATION, _ADVERTISEMENT = 135, 136
_ECHO_REQUEST = 128
_OVERRIDE = 0x20000000
_ALL_NODES = 0xFF02 << 112 | 1
_HOP_LIMIT = 255

_ETHERNET = 14
_TRANSPORT = _ETHERNET + 40  # where the payload of an IPv6 packet begins
_UDP_HEADER = 8
# Where the checksum is, from the beginning of the inner packet.
_CHECKSUM_AT = {UDP: 6, TCP: 16, ICMPV6: 2}


def event(mac: bytes, source: int, destination: int, payload: bytes) -> bytes:
    """A host's event: a UDP datagram to a multicast address."""
    length = (_UDP_HEADER + len(payload)).to_bytes(2, "big")
    return _ipv6(mac, source, destination, UDP, _EVENT_PORTS + length + b"\0\0" + payload)


def read_event(frame: bytes) -> tuple[bytes, bytes] | None:
    """Destination and payload of an event as it arrives; None if the frame is something else."""
    if (
        len(frame) < _TRANSPORT + _UDP_HEADER
        or frame[12:14] != _IPV6
        or frame[20] != UDP
        or frame[_TRANSPORT + 2 : _TRANSPORT + 4] != _EVENT_PORTS[:2]
    ):
        return None
    return frame[38:54], frame[_TRANSPORT + _UDP_HEADER :]


def neighbour_advertisement(mac: bytes, address: int) -> bytes:
    """The announcement of a host that comes up: the MAC of its address."""
    body = bytes((_ADVERTISEMENT, 0, 0, 0)) + _OVERRIDE.to_bytes(4, "big")
    body += address.to_bytes(16, "big") + bytes((2, 1)) + mac
    return _ipv6(mac, address, _ALL_NODES, ICMPV6, body)


def neighbour_solicitation(mac: bytes, address: int, target: int) -> bytes:
    """The request of a host for the MAC of another one."""
    group = 0xFF02_0000_0000_0000_0000_0001_FF00_0000 | target & 0xFFFFFF
    body = bytes((_SOLICITATION, 0, 0, 0)) + bytes(4)
    body += target.to_bytes(16, "big") + bytes((1, 1)) + mac
    return _ipv6(mac, address, group, ICMPV6, body)


def asks_all(frame: bytes) -> int | None:
    """The sender of a ping to all hosts of a cable; None if the frame is something else."""
    if ipv6_destination(frame) != _ALL_NODES or frame[20] != ICMPV6 or len(frame) <= _TRANSPORT:
        return None
    return int.from_bytes(frame[22:38], "big") if frame[_TRANSPORT] == _ECHO_REQUEST else None


def link_local(mac: bytes) -> int:
    """The address that a host gives itself."""
    halves = bytes((mac[0] ^ 2,)) + mac[1:3] + b"\xff\xfe" + mac[3:]
    return 0xFE80 << 112 | int.from_bytes(halves, "big")


def ipv6_destination(frame: bytes) -> int | None:
    """Where an IPv6 packet goes; None if the frame is something else."""
    if frame[12:14] != _IPV6 or len(frame) < _TRANSPORT:
        return None
    return int.from_bytes(frame[38:54], "big")


def fields(frame: bytes) -> dict[int, int]:
    """The values that entries may ask for, by the number of the field."""

    def number(start: int, end: int) -> int:
        return int.from_bytes(frame[start:end], "big")

    found = {ETH_DST: number(0, 6), ETH_SRC: number(6, 12), ETH_TYPE: number(12, 14)}
    if found[ETH_TYPE] == ETH_IPV6 and len(frame) >= _TRANSPORT:
        inner = _TRANSPORT
        found |= {IP_PROTO: frame[20], IPV6_SRC: number(22, 38), IPV6_DST: number(38, 54)}
    elif found[ETH_TYPE] == ETH_IPV4 and len(frame) >= _ETHERNET + 20:
        inner = _ETHERNET + 4 * (frame[14] & 0xF)
        found |= {IP_PROTO: frame[23], IPV4_SRC: number(26, 30), IPV4_DST: number(30, 34)}
    else:
        return found
    protocol = found[IP_PROTO]
    if protocol == UDP:
        found |= {UDP_SRC: number(inner, inner + 2), UDP_DST: number(inner + 2, inner + 4)}
    elif protocol == TCP:
        found |= {TCP_SRC: number(inner, inner + 2), TCP_DST: number(inner + 2, inner + 4)}
    elif protocol == ICMPV6 and len(frame) >= inner + 8:
        found |= {ICMPV6_TYPE: frame[inner], ICMPV6_CODE: frame[inner + 1]}
        if frame[inner] in (_SOLICITATION, _ADVERTISEMENT):
            found[ND_TARGET] = number(inner + 8, inner + 24)
    return found


_PLACES = {ETH_DST: (0, 6), ETH_SRC: (6, 12), IPV6_SRC: (22, 38), IPV6_DST: (38, 54)}
SETTABLE = {field: end - start for field, (start, end) in _PLACES.items()}
"""The fields that an action may set, with their lengths."""


def with_field(frame: bytes, field: int, value: bytes) -> bytes:
    """A frame with one field changed, and its checksum if that covers the field."""
    start, end = _PLACES[field]
    inside = field in (IPV6_SRC, IPV6_DST)
    if inside and ipv6_destination(frame) is None:
        return frame
    frame = frame[:start] + value + frame[end:]
    return _with_checksum(frame) if inside else frame


def _ipv6(mac: bytes, source: int, destination: int, protocol: int, body: bytes) -> bytes:
    target = destination.to_bytes(16, "big")
    header = b"\x60\0\0\0" + len(body).to_bytes(2, "big") + bytes((protocol, _HOP_LIMIT))
    addresses = source.to_bytes(16, "big") + target
    return _with_checksum(b"\x33\x33" + target[12:] + mac + _IPV6 + header + addresses + body)


def _with_checksum(frame: bytes) -> bytes:
    protocol = frame[20]
    if protocol not in _CHECKSUM_AT:
        return frame
    at = _TRANSPORT + _CHECKSUM_AT[protocol]
    body = frame[_TRANSPORT:at] + b"\0\0" + frame[at + 2 :]
    covered = frame[22:54] + body + b"\0" * (len(body) % 2)
    # 2^16 is 1 modulo 2^16-1, so the remainder of the whole is the sum of its 16-bit words.
    total = int.from_bytes(covered, "big") + len(body) + protocol
    return frame[:at] + (0xFFFF - total % 0xFFFF).to_bytes(2, "big") + frame[at + 2 :]
