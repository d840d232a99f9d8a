"""Encodes the frequent messages: flow-mods, group-mods, barriers, flow statistics.

The part after the match repeats from entry to entry, so it is packed once and then looked up.
"""

import struct
from collections.abc import Iterable
from functools import lru_cache
from struct import Struct

from dzflow.address import ALL, Match
from dzflow.errors import BadInput
from sdn.openflow.protocol.constants import (
    ANY,
    GROUP_ALL,
    MORE,
    NO_BUFFER,
    OUR_COOKIE_MASK,
    ActionType,
    FlowCommand,
    GroupCommand,
    InstructionType,
    Multipart,
    Oxm,
    Type,
)
from sdn.openflow.protocol.layouts import (
    APPLY,
    BUCKET_HEAD,
    BUCKET_PORT,
    EXACT,
    FLOW_MOD,
    FLOW_STAT,
    GOTO,
    GROUP_MOD,
    IN_PORT,
    IPV6,
    MASKED,
    MASKED_MATCH,
    OUTPUT,
    TO_GROUP,
)
from sdn.openflow.protocol.messages import FlowStat, Foreign
from sdn.openflow.protocol.wire import MAX_MESSAGE, MULTIPART, TYPE_LENGTH, message, multipart
from sdn.tables.flows import Action, Change, FlowEntry, FlowOp, GroupOp, Output, cookie_of

_ANYWHERE = struct.pack("!III", NO_BUFFER, ANY, ANY)
_ANY_IPV6 = Match(0, 0)
# The most frequent match is packed in one go with all that is before it.
_FLOW_MOD_MASKED = Struct("!IIQQBB4xH30s32s2x")
_ANYWHERE_MASKED = _ANYWHERE + bytes(4) + MASKED_MATCH

# Plain numbers and names: members of an enum are slow to get and to pack.
_ADD, _MODIFY = Change.ADD, Change.MODIFY
_FLOW_MOD_TYPE = int(Type.FLOW_MOD)
_FLOW_ADD = int(FlowCommand.ADD)
_FLOW_MODIFY = int(FlowCommand.MODIFY_STRICT)
_FLOW_DELETE = int(FlowCommand.DELETE_STRICT)

_ANY_COOKIE_BIT = 0xFFFFFFFFFFFFFFFF
_LONGEST_ACTIONS = MAX_MESSAGE - 256  # leaves room for the rest of a message


class NotEncodable(BadInput):
    """A value of an operation does not fit into a message; nothing of its batch was encoded."""


def barrier(version: int, xid: int) -> bytes:
    """A barrier request."""
    return message(version, Type.BARRIER_REQUEST, xid)


def encode_ops(version: int, ops: Iterable[FlowOp], first_xid: int) -> bytes:
    """A flow-mod for each operation, with rising xids.

    Modifying and deleting is strict and touches no entry without our cookie.
    """
    head = version << 24 | _FLOW_MOD_TYPE << 16
    head_masked = head + _FLOW_MOD_MASKED.size
    pack_masked = _FLOW_MOD_MASKED.pack
    parts: list[bytes] = []
    for xid, op in enumerate(ops, first_xid):
        entry, change = op.entry, op.change
        try:
            if change is _ADD:
                command, cookie_mask = _FLOW_ADD, 0
                rest = _instructions(entry.actions, entry.goto)
            elif change is _MODIFY:
                command, cookie_mask = _FLOW_MODIFY, OUR_COOKIE_MASK
                rest = _instructions(entry.actions, entry.goto)
            else:
                command, cookie_mask, rest = _FLOW_DELETE, OUR_COOKIE_MASK, b""
            match = entry.match
            masked = _masked(match) if match is not None and entry.in_port is None else None
            if masked is not None:
                parts.append(
                    pack_masked(
                        head_masked + len(rest),
                        xid,
                        masked[0],
                        cookie_mask,
                        entry.table,
                        command,
                        entry.priority,
                        _ANYWHERE_MASKED,
                        masked[1],
                    )
                )
            else:
                fields = _match(entry.in_port, match)
                parts.append(
                    FLOW_MOD.pack(
                        head + FLOW_MOD.size + len(fields) + len(rest),
                        xid,
                        entry.cookie,
                        cookie_mask,
                        entry.table,
                        command,
                        entry.priority,
                        _ANYWHERE,
                    )
                )
                parts.append(fields)
            parts.append(rest)
        except (struct.error, OverflowError) as error:
            raise NotEncodable(f"{op} cannot be sent with xid {xid}: {error}") from error
    return b"".join(parts)


def encode_removals(version: int, stats: Iterable[FlowStat], first_xid: int) -> bytes:
    """A strict deletion of each entry that was read back, also of those of foreign form."""
    head = version << 24 | _FLOW_MOD_TYPE << 16
    parts: list[bytes] = []
    for xid, stat in enumerate(stats, first_xid):
        fields = _entry_match(stat.entry)
        parts.append(
            FLOW_MOD.pack(
                head + FLOW_MOD.size + len(fields),
                xid,
                stat.cookie,
                _ANY_COOKIE_BIT,
                stat.entry.table,
                _FLOW_DELETE,
                stat.entry.priority,
                _ANYWHERE,
            )
        )
        parts.append(fields)
    return b"".join(parts)


def encode_group_ops(version: int, ops: Iterable[GroupOp], first_xid: int) -> bytes:
    """A group-mod for each operation, with rising xids."""
    parts: list[bytes] = []
    for xid, op in enumerate(ops, first_xid):
        command, bucket = GroupCommand.DELETE, b""
        try:
            if op.change is not Change.DELETE:
                command = GroupCommand.ADD if op.change is _ADD else GroupCommand.MODIFY
                bucket = BUCKET_HEAD + BUCKET_PORT.pack(op.group.port)
            length = GROUP_MOD.size + len(bucket)
            parts.append(
                GROUP_MOD.pack(
                    version, Type.GROUP_MOD, length, xid, command, GROUP_ALL, op.group.group
                )
            )
        except struct.error as error:
            raise NotEncodable(f"{op} cannot be sent with xid {xid}: {error}") from error
        parts.append(bucket)
    return b"".join(parts)


def encode_flow_stats(version: int, xid: int, stats: Iterable[FlowStat]) -> bytes:
    """The whole answer of a switch to a request for flow statistics, in as many parts as needed."""
    room = MAX_MESSAGE - MULTIPART.size
    bodies: list[list[bytes]] = [[]]
    used = 0
    for stat in stats:
        entry = stat.entry
        if isinstance(entry, Foreign):
            rest = entry.instructions
        else:
            rest = _instructions(entry.actions, entry.goto)
        fields = _entry_match(entry)
        length = FLOW_STAT.size + len(fields) + len(rest)
        if length > room:
            raise NotEncodable(f"an entry of {length} bytes does not fit into a message")
        if used + length > room:
            bodies.append([])
            used = 0
        used += length
        fixed = FLOW_STAT.pack(
            length, entry.table, entry.priority, 0, stat.cookie, stat.packets, stat.octets
        )
        bodies[-1] += (fixed, fields, rest)
    last = len(bodies) - 1
    return b"".join(
        multipart(
            version,
            Type.MULTIPART_REPLY,
            Multipart.FLOW,
            xid,
            b"".join(body),
            MORE * (number < last),
        )
        for number, body in enumerate(bodies)
    )


def _entry_match(entry: FlowEntry | Foreign) -> bytes:
    return entry.match if isinstance(entry, Foreign) else _match(entry.in_port, entry.match)


def _match(in_port: int | None, match: Match | None) -> bytes:
    fields = b"" if in_port is None else IN_PORT.pack(Oxm.IN_PORT, in_port)
    if match is not None:
        address = match.address.to_bytes(16, "big")
        if match.mask == ALL:
            fields += EXACT + address
        elif match == _ANY_IPV6:
            fields += (
                IPV6  # switches leave out a field that fixes nothing when they report an entry
            )
        else:
            fields += MASKED + address + match.mask.to_bytes(16, "big")
    length = TYPE_LENGTH.size + len(fields)
    return TYPE_LENGTH.pack(1, length) + fields + bytes(-length % 8)


@lru_cache(maxsize=1 << 14)  # about 7 MB
def _masked(match: Match) -> tuple[int, bytes] | None:
    """Cookie, and address and mask, of a match that has a mask; None if it has none to write."""
    if not 0 < match.mask < ALL:
        return None
    return cookie_of(match), match.address.to_bytes(16, "big") + match.mask.to_bytes(16, "big")


@lru_cache(maxsize=4096)
def _instructions(actions: tuple[Action, ...], goto: int | None) -> bytes:
    parts = []
    if actions:
        body = b"".join(
            OUTPUT.pack(ActionType.OUTPUT, OUTPUT.size, action.port, 0)
            if isinstance(action, Output)
            else TO_GROUP.pack(ActionType.GROUP, TO_GROUP.size, action.group)
            for action in actions
        )
        if len(body) > _LONGEST_ACTIONS:
            raise struct.error(f"{len(actions)} actions are more than a message holds")
        parts += [APPLY.pack(InstructionType.APPLY_ACTIONS, APPLY.size + len(body)), body]
    if goto is not None:
        parts.append(GOTO.pack(InstructionType.GOTO_TABLE, GOTO.size, goto))
    return b"".join(parts)
