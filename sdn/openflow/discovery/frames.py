"""The Ethernet frames of discovery: our LLDP probes, and announcements of hosts (ICMPv6).

Reading accepts any bytes and never raises: it returns None for all other frames.
"""

import struct
from hashlib import blake2b
from hmac import compare_digest
from typing import NamedTuple

from sdn.openflow.protocol.constants import ETH_IPV6

ETH_LLDP = 0x88CC
ICMPV6 = 58
NEIGHBOUR_SOLICITATION, NEIGHBOUR_ADVERTISEMENT = 135, 136
ECHO_REQUEST = 128

MAX_FRAME = 256
"""Longer frames are ignored without being read."""

LLDP_TYPE = ETH_LLDP.to_bytes(2, "big")
IPV6_TYPE = ETH_IPV6.to_bytes(2, "big")

# Bridges never forward frames for this address, so a probe stays on its cable.
_NEAREST_BRIDGE = bytes.fromhex("0180c200000e")
PROBE_MAC = bytes.fromhex("d2f100000001")
"""The source of probes of ports whose own MAC is not known."""

_CHASSIS, _PORT, _TTL, _OWN, _END = 1, 2, 3, 127, 0
_LOCAL = b"\x07"  # an id of which only we know the meaning
_SECONDS = (120).to_bytes(2, "big")
_OURS = bytes.fromhex("d2f10001")  # an OUI that is assigned to no one, and our kind of TLV
_NUMBERS = struct.Struct("!QQI")  # nonce, heard, port
_TAG = 16
_PERSON = b"dzflow probe"

_ETHERNET = 14
_ICMP = _ETHERNET + 40
_OPTIONS = _ICMP + 24
_HOP_LIMIT = 255  # with less, a packet has passed a router and says nothing of this network
_UNSPECIFIED = bytes(16)
_LOOPBACK = bytes(15) + b"\x01"
_SOLICITED_NODE = bytes.fromhex("ff0200000000000000000001ff")
_SOURCE_MAC, _TARGET_MAC = 1, 2
_ASKER = bytes.fromhex("fe80" + 6 * "00" + "d2f10001")
_ALL_NODES = bytes.fromhex("ff02" + 13 * "00" + "01")


class Probe(NamedTuple):
    """A frame that claims to be a probe of ours; `authentic` tells whether it is."""

    switch: str
    port: int
    nonce: int
    heard: int  # the nonce of the last probe that arrived at its port
    mac: bytes  # of its port
    signed: bytes
    tag: bytes

    def authentic(self, key: bytes) -> bool:
        """Whether it was made with the key, and not changed since."""
        return compare_digest(_tag(key, self.signed), self.tag)


class Announced(NamedTuple):
    """What a host announces: its MAC, one of its IPv6 addresses, and whose MAC it wants, if any."""

    mac: bytes
    address: bytes
    wanted: bytes = b""


def build_probe(
    key: bytes, switch: str, port: int, nonce: int, heard: int = 0, mac: bytes = PROBE_MAC
) -> bytes:
    """An LLDP frame that says which port it leaves by, with a tag over all of it.

    `heard` is the nonce of the last probe of another process that has arrived there, `mac` the
    port's own address.
    """
    name = switch.encode()
    # The first parts are for people who capture frames; we read the last part only.
    shown = (
        _tlv(_CHASSIS, _LOCAL + name)
        + _tlv(_PORT, _LOCAL + str(port).encode())
        + _tlv(_TTL, _SECONDS)
    )
    ours = _OURS + _NUMBERS.pack(nonce, heard, port) + name
    ethernet = _NEAREST_BRIDGE + mac + LLDP_TYPE
    signed = ethernet + shown + _tlv_head(_OWN, len(ours) + _TAG) + ours
    return signed + _tag(key, signed) + _tlv(_END, b"")


def build_question(asker: bytes) -> bytes:
    """A ping to all hosts of a cable; they ask for the MAC of the sender before they answer.

    So they announce themselves, and say which question it is about: `asker` is the address of the
    sender, which does not exist (`asker_at`).
    """
    addresses = asker + _ALL_NODES
    body = struct.pack("!BBHHH", ECHO_REQUEST, 0, 0, 0, 0)
    total: int = sum(struct.unpack(f"!{len(addresses + body) // 2}H", addresses + body))
    checksum = 0xFFFF - (total + len(body) + ICMPV6) % 0xFFFF
    ethernet = b"\x33\x33" + _ALL_NODES[12:] + PROBE_MAC + IPV6_TYPE
    header = struct.pack("!IHBB", 6 << 28, len(body), ICMPV6, _HOP_LIMIT)
    return ethernet + header + addresses + body[:2] + checksum.to_bytes(2, "big") + body[4:]


def asker_at(switch: str, port: int) -> bytes:
    """The link-local address from which hosts at a port are asked; another one for each port."""
    return _ASKER + blake2b(f"{switch}:{port}".encode(), digest_size=4, person=_PERSON).digest()


def is_asker(address: bytes) -> bool:
    """Whether hosts at some port are asked from an address."""
    return address.startswith(_ASKER)


def read_probe(frame: bytes) -> Probe | None:
    """The probe that a frame claims to be; None for the LLDP of others and for all else."""
    if frame[12:14] != LLDP_TYPE or len(frame) > MAX_FRAME:
        return None
    at = _ETHERNET
    while at + 2 <= len(frame):
        header = int.from_bytes(frame[at : at + 2], "big")
        kind, begin = header >> 9, at + 2
        at = begin + (header & 0x1FF)
        if kind == _END or at > len(frame):
            return None
        if kind == _OWN and frame.startswith(_OURS, begin):
            return _read_ours(frame, begin + len(_OURS), at)
    return None


def read_announcement(frame: bytes) -> Announced | None:
    """What a host announces in a neighbour solicitation or advertisement (RFC 4861)."""
    if (
        not _OPTIONS <= len(frame) <= MAX_FRAME
        or frame[12:14] != IPV6_TYPE
        or frame[14] >> 4 != 6
        or frame[20] != ICMPV6
        or frame[21] != _HOP_LIMIT
        or frame[_ICMP + 1] != 0
    ):
        return None
    mac, source, destination = frame[6:12], frame[22:38], frame[38:54]
    end = _ICMP + int.from_bytes(frame[18:20], "big")
    options = _options(frame, end)
    if options is None or not is_station(mac) or not _checksum_holds(frame, end):
        return None
    target = frame[_ICMP + 8 : _OPTIONS]
    if not _is_host(target):
        return None
    kind = frame[_ICMP]
    if kind == NEIGHBOUR_SOLICITATION:
        if source == _UNSPECIFIED:
            # Only a host that checks whether its address is free sends this.
            asks_all = destination.startswith(_SOLICITED_NODE)
            return Announced(mac, target) if asks_all and _SOURCE_MAC not in options else None
        said, address, wanted = options.get(_SOURCE_MAC, mac), source, target
    elif kind == NEIGHBOUR_ADVERTISEMENT:
        if destination[0] == 0xFF and frame[_ICMP + 4] & 0x40:  # it cannot be solicited
            return None
        said, address, wanted = options.get(_TARGET_MAC, mac), target, b""
    else:
        return None
    return Announced(mac, address, wanted) if said == mac and _is_host(source) else None


def is_station(mac: bytes) -> bool:
    """Whether a MAC can be that of a port or a host: it is no group's, and not empty."""
    return not mac[0] & 1 and any(mac)


def is_link_local(address: bytes) -> bool:
    """Whether an IPv6 address means something on one cable only."""
    return address[0] == 0xFE and address[1] & 0xC0 == 0x80


def _tlv(kind: int, value: bytes) -> bytes:
    return _tlv_head(kind, len(value)) + value


def _tlv_head(kind: int, length: int) -> bytes:
    return (kind << 9 | length).to_bytes(2, "big")


def _tag(key: bytes, signed: bytes) -> bytes:
    return blake2b(signed, digest_size=_TAG, key=key, person=_PERSON).digest()


def _read_ours(frame: bytes, at: int, end: int) -> Probe | None:
    name_at, tag_at = at + _NUMBERS.size, end - _TAG
    if tag_at <= name_at or frame[end : end + 2] != _tlv(_END, b""):
        return None
    nonce, heard, port = _NUMBERS.unpack_from(frame, at)
    try:
        name = frame[name_at:tag_at].decode()
    except UnicodeDecodeError:
        return None
    return Probe(name, port, nonce, heard, frame[6:12], frame[:tag_at], frame[tag_at:end])


def _options(frame: bytes, end: int) -> dict[int, bytes] | None:
    """The options behind the target by their kind; None if they do not fill the frame."""
    if not _OPTIONS <= end <= len(frame):
        return None
    found: dict[int, bytes] = {}
    at = _OPTIONS
    while at < end:
        after = at + 8 * frame[at + 1] if at + 2 <= end else at
        if not at < after <= end:
            return None
        found[frame[at]] = frame[at + 2 : after]
        at = after
    return found


def _checksum_holds(frame: bytes, end: int) -> bool:
    covered = frame[22:end] + b"\0" * (end % 2)
    # 2^16 is 1 modulo 2^16-1, so the remainder of the whole is the sum of its 16-bit words.
    return (int.from_bytes(covered, "big") + end - _ICMP + ICMPV6) % 0xFFFF == 0


def _is_host(address: bytes) -> bool:
    return address[0] != 0xFF and address not in (_UNSPECIFIED, _LOOPBACK)
