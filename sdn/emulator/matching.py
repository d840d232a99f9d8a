"""Matches of any form: read, compared with each other, and with packets."""

from collections.abc import Mapping

from sdn.emulator import frames
from sdn.emulator.refused import (
    BAD_FIELD,
    BAD_MASK,
    BAD_MATCH_LEN,
    BAD_MATCH_TYPE,
    BAD_PREREQUISITE,
    BAD_WILDCARDS,
    DUPLICATE_FIELD,
    Refused,
)
from sdn.openflow.protocol.constants import ETH_IPV6
from sdn.openflow.protocol.decode import match_fields
from sdn.tables.flows import FlowKey

Fields = dict[int, tuple[int, int]]
"""Value and mask of each field of a match that fixes something, by the field's number."""

_BASIC_CLASS = 0x8000

LENGTHS = {
    frames.IN_PORT: 4,
    frames.ETH_DST: 6,
    frames.ETH_SRC: 6,
    frames.ETH_TYPE: 2,
    frames.IP_PROTO: 1,
    frames.IPV4_SRC: 4,
    frames.IPV4_DST: 4,
    frames.TCP_SRC: 2,
    frames.TCP_DST: 2,
    frames.UDP_SRC: 2,
    frames.UDP_DST: 2,
    frames.IPV6_SRC: 16,
    frames.IPV6_DST: 16,
    frames.ICMPV6_TYPE: 1,
    frames.ICMPV6_CODE: 1,
    frames.ND_TARGET: 16,
}
"""The fields that a match may have, with their lengths."""

MASKABLE = frozenset(
    {
        frames.ETH_DST,
        frames.ETH_SRC,
        frames.IPV4_SRC,
        frames.IPV4_DST,
        frames.IPV6_SRC,
        frames.IPV6_DST,
        frames.ND_TARGET,
    }
)
"""The fields that may have a mask."""

# Fields that need another field with one of these values.
_NEEDS: dict[int, tuple[int, tuple[int, ...]]] = {
    frames.IP_PROTO: (frames.ETH_TYPE, (ETH_IPV6, frames.ETH_IPV4)),
    frames.IPV4_SRC: (frames.ETH_TYPE, (frames.ETH_IPV4,)),
    frames.IPV4_DST: (frames.ETH_TYPE, (frames.ETH_IPV4,)),
    frames.IPV6_SRC: (frames.ETH_TYPE, (ETH_IPV6,)),
    frames.IPV6_DST: (frames.ETH_TYPE, (ETH_IPV6,)),
    frames.TCP_SRC: (frames.IP_PROTO, (frames.TCP,)),
    frames.TCP_DST: (frames.IP_PROTO, (frames.TCP,)),
    frames.UDP_SRC: (frames.IP_PROTO, (frames.UDP,)),
    frames.UDP_DST: (frames.IP_PROTO, (frames.UDP,)),
    frames.ICMPV6_TYPE: (frames.IP_PROTO, (frames.ICMPV6,)),
    frames.ICMPV6_CODE: (frames.IP_PROTO, (frames.ICMPV6,)),
    frames.ND_TARGET: (frames.ICMPV6_TYPE, (135, 136)),
}


def parse_match(match: bytes) -> Fields:
    """The fields of a match as it stands in a message; raises Refused if a switch cannot do it."""
    parts, _ = match_fields(match, 0, len(match))
    if parts is None:
        raise Refused(BAD_MATCH_TYPE)
    found: Fields = {}
    for header, data in parts:
        field = header >> 9 & 0x7F
        length = LENGTHS.get(field)
        if header >> 16 != _BASIC_CLASS or length is None:
            raise Refused(BAD_FIELD)
        masked = bool(header & 0x100)
        if masked and field not in MASKABLE:
            raise Refused(BAD_MASK)
        if len(data) != length * (2 if masked else 1):
            raise Refused(BAD_MATCH_LEN)
        if field in found:
            raise Refused(DUPLICATE_FIELD)
        value = int.from_bytes(data[:length], "big")
        mask = int.from_bytes(data[length:], "big") if masked else (1 << 8 * length) - 1
        if value & mask != value:
            raise Refused(BAD_WILDCARDS)
        found[field] = value, mask
    for field in found:
        if field in _NEEDS:
            other, values = _NEEDS[field]
            if found.get(other, (None, 0))[0] not in values:
                raise Refused(BAD_PREREQUISITE)
    return {field: pair for field, pair in found.items() if pair[1]}


def fields_of_key(key: FlowKey) -> Fields:
    """The same for a match of the form that we write."""
    found: Fields = {}
    if key.in_port is not None:
        found[frames.IN_PORT] = key.in_port, 0xFFFFFFFF
    if key.match is not None:
        found[frames.ETH_TYPE] = ETH_IPV6, 0xFFFF
        if key.match.mask:
            found[frames.IPV6_DST] = key.match.address, key.match.mask
    return found


def within(narrow: Fields, wide: Fields) -> bool:
    """Whether all packets of one match are also in the other."""
    for field, (value, mask) in wide.items():
        if field not in narrow:
            return False
        own_value, own_mask = narrow[field]
        if own_mask & mask != mask or own_value & mask != value:
            return False
    return True


def holds(match: Fields, packet: Mapping[int, int]) -> bool:
    """Whether a packet has the values that a match asks for."""
    for field, (value, mask) in match.items():
        actual = packet.get(field)
        if actual is None or actual & mask != value:
            return False
    return True
