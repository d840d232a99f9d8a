"""Decodes the frequent messages: flow-mods, group-mods, flow statistics.

An entry that is not of a form we write becomes a `Foreign` one: never an error, never one of ours.
Lengths that contradict each other raise MalformedMessage.
"""

from collections.abc import Iterator
from functools import lru_cache
from struct import Struct

from dzflow.address import ALL, Match
from sdn.openflow.protocol.constants import (
    ETH_IPV6,
    GROUP_ALL,
    ActionType,
    GroupCommand,
    InstructionType,
    Oxm,
    Type,
)
from sdn.openflow.protocol.layouts import (
    APPLY,
    BUCKET,
    BUCKET_PORT,
    BUCKET_SIZE,
    DELIVER,
    FLOW_MOD_READ,
    FLOW_STAT,
    GOTO,
    GROUP_DESC,
    GROUP_MOD,
    MASKED_MATCH,
    MASKED_MATCH_SIZE,
    OUTPUT,
    TO_GROUP,
)
from sdn.openflow.protocol.messages import FlowMod, FlowStat, Foreign, GroupDesc, GroupMod
from sdn.openflow.protocol.wire import TYPE_LENGTH, MalformedMessage, pad8, read
from sdn.tables.flows import Action, FlowEntry, FlowKey, Output, ToGroup

# Plain numbers: members of an enum are slow to get.
_IN_PORT, _ETH_TYPE = int(Oxm.IN_PORT), int(Oxm.ETH_TYPE)
_IPV6_DST, _IPV6_DST_MASKED = int(Oxm.IPV6_DST), int(Oxm.IPV6_DST_MASKED)

_OXM = Struct("!I")
_OXM_MATCH = 1
_IPV6 = ETH_IPV6.to_bytes(2, "big")
_REMEMBERED = 256  # longer instructions are not cached, so that a peer cannot fill our memory

Instructions = tuple[tuple[Action, ...], int | None]
Fields = list[tuple[int, bytes]]


def decode_flow_mod(data: bytes) -> FlowMod:
    """A flow-mod, given as a whole message."""
    (
        _,
        kind,
        length,
        xid,
        cookie,
        cookie_mask,
        table,
        command,
        timeouts,
        priority,
        out_port,
        out_group,
        flags,
    ) = read(FLOW_MOD_READ, data)
    _check_whole(data, kind, Type.FLOW_MOD, length)
    entry = decode_entry(data, FLOW_MOD_READ.size, length, table, priority, bool(timeouts))
    return FlowMod(xid, command, cookie, cookie_mask, out_port, out_group, flags, entry)


def decode_flow_stats(data: bytes, at: int = 0) -> list[FlowStat]:
    """All entries in the body of a reply with flow statistics, which begins `at` a place."""
    stats = []
    end = len(data)
    size = FLOW_STAT.size
    unpack = FLOW_STAT.unpack_from
    while at < end:
        if end - at < size:
            raise MalformedMessage(f"flow statistics end with {end - at} bytes too many")
        length, table, priority, timeouts, cookie, packets, octets = unpack(data, at)
        after = at + length
        if length < size or after > end:
            raise MalformedMessage(f"flow statistics of {length} bytes, {end - at} are left")
        entry = decode_entry(data, at + size, after, table, priority, bool(timeouts))
        stats.append(FlowStat(cookie, packets, octets, entry))
        at = after
    return stats


def decode_entry(
    data: bytes, at: int, end: int, table: int, priority: int, expires: bool
) -> FlowEntry | Foreign:
    """The entry whose match and instructions stand between two places of a message."""
    if data.startswith(MASKED_MATCH, at) and at + MASKED_MATCH_SIZE <= end:
        address = int.from_bytes(data[at + 14 : at + 30], "big")
        mask = int.from_bytes(data[at + 30 : at + 46], "big")
        match: Match | None = Match(address, mask)
        known, in_port = address & mask == address, None
        after = at + MASKED_MATCH_SIZE
    else:
        fields, after = match_fields(data, at, end)
        known, in_port, match = _parse_match(fields)
    rest = data[after:end]
    parse = _parse_remembered if len(rest) <= _REMEMBERED else _parse_instructions
    instructions = parse(rest)
    if instructions is not None and known and not expires:
        return FlowEntry(table, priority, match, *instructions, in_port)
    key = FlowKey(table, priority, in_port, match) if known else None
    return Foreign(table, priority, key, data[at:after], rest)


def match_fields(data: bytes, at: int, end: int) -> tuple[Fields | None, int]:
    """The header and the value of each field of a match, and where it ends with its padding.

    None instead of fields stands for a match that does not consist of them.
    """
    kind, length = read(TYPE_LENGTH, data, at)
    after = at + pad8(length)
    if length < TYPE_LENGTH.size or after > end:
        raise MalformedMessage(f"a match of {length} bytes, {end - at} are left")
    if kind != _OXM_MATCH:
        return None, after
    fields = []
    at, end = at + TYPE_LENGTH.size, at + length
    while at < end:
        (header,) = read(_OXM, data, at)
        value_at = at + _OXM.size
        at = value_at + (header & 0xFF)
        if at > end:
            raise MalformedMessage(f"a match ends in the middle of field {header:#010x}")
        fields.append((header, data[value_at:at]))
    return fields, after


def _parse_match(fields: Fields | None) -> tuple[bool, int | None, Match | None]:
    """Whether a match is one of ours, and if so its port and its addresses."""
    values = dict(fields or ())
    if fields is None or len(values) < len(fields):
        return False, None, None
    in_port = values.pop(_IN_PORT, None)
    eth_type = values.pop(_ETH_TYPE, None)
    exact = values.pop(_IPV6_DST, None)
    masked = values.pop(_IPV6_DST_MASKED, None)
    match = None
    if eth_type is not None:
        match = Match(0, 0)
    if exact is not None:
        match = Match(int.from_bytes(exact, "big"), ALL)
    elif masked is not None:
        match = Match(int.from_bytes(masked[:16], "big"), int.from_bytes(masked[16:], "big"))
    known = (
        not values
        and (exact is None or masked is None)
        and (eth_type == _IPV6 or match is None)
        and (match is None or match.address & match.mask == match.address)
    )
    return known, None if in_port is None else int.from_bytes(in_port, "big"), match


def _parse_instructions(data: bytes) -> Instructions | None:
    """What instructions do with a packet; None if we never write such instructions."""
    actions: tuple[Action, ...] | None = None
    goto: int | None = None
    known = True
    for kind, at, after in _pieces(data, 0, "instruction"):
        if kind == InstructionType.GOTO_TABLE and goto is None and after - at == GOTO.size:
            goto = data[at + TYPE_LENGTH.size]
        elif kind == InstructionType.APPLY_ACTIONS and actions is None:
            actions = _parse_actions(data[at + APPLY.size : after])
            known = known and actions is not None
        else:
            known = False
    return (actions or (), goto) if known else None


_parse_remembered = lru_cache(maxsize=4096)(_parse_instructions)


def _parse_actions(data: bytes) -> tuple[Action, ...] | None:
    actions: list[Action] = []
    known = True
    for kind, at, after in _pieces(data, 0, "action"):
        if kind == ActionType.OUTPUT and after - at == OUTPUT.size:
            actions.append(Output(OUTPUT.unpack_from(data, at)[2]))
        elif kind == ActionType.GROUP and after - at == TO_GROUP.size:
            actions.append(ToGroup(TO_GROUP.unpack_from(data, at)[2]))
        else:
            known = False
    return tuple(actions) if known else None


def _pieces(data: bytes, at: int, what: str) -> Iterator[tuple[int, int, int]]:
    """Type, begin and end of all instructions or actions from a place on."""
    while at < len(data):
        kind, length = read(TYPE_LENGTH, data, at)
        after = at + length
        if length < 8 or length % 8 or after > len(data):
            raise MalformedMessage(f"an {what} of {length} bytes, {len(data) - at} are left")
        yield kind, at, after
        at = after


def decode_group_mod(data: bytes) -> GroupMod:
    """A group-mod, given as a whole message."""
    _, type_, length, xid, command, kind, group = read(GROUP_MOD, data)
    _check_whole(data, type_, Type.GROUP_MOD, length)
    port = _parse_buckets(data, GROUP_MOD.size, length) if kind == GROUP_ALL else None
    foreign = port is None and command != GroupCommand.DELETE
    return GroupMod(xid, command, group, port, foreign)


def decode_group_descs(data: bytes, at: int = 0) -> list[GroupDesc]:
    """All groups in the body of a reply with their descriptions, which begins `at` a place."""
    groups = []
    while at < len(data):
        length, kind, group = read(GROUP_DESC, data, at)
        after = at + length
        if length < GROUP_DESC.size or after > len(data):
            raise MalformedMessage(f"a group of {length} bytes, {len(data) - at} are left")
        port = _parse_buckets(data, at + GROUP_DESC.size, after) if kind == GROUP_ALL else None
        groups.append(GroupDesc(group, port))
        at = after
    return groups


def _parse_buckets(data: bytes, at: int, end: int) -> int | None:
    """The port of the one bucket that a host's group has; None if there is anything else.

    Weight and watched port mean nothing in a group of type all, so any will do.
    """
    ports = []
    while at < end:
        length, *_ = read(BUCKET, data, at)
        after = at + length
        if length < BUCKET.size or after > end:
            raise MalformedMessage(f"a bucket of {length} bytes, {end - at} are left")
        at += BUCKET.size
        ours = length == BUCKET_SIZE and data.startswith(DELIVER, at)
        ports.append(BUCKET_PORT.unpack_from(data, at + len(DELIVER))[0] if ours else None)
        at = after
    return ports[0] if len(ports) == 1 else None


def _check_whole(data: bytes, kind: int, expected: Type, length: int) -> None:
    if kind != expected or length != len(data):
        raise MalformedMessage(
            f"{len(data)} bytes with type {kind} and length {length}"
            f" are not one {expected.name.lower()} message"
        )
