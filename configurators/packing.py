"""Regions, flow operations and flow entries as bytes: the bulk of what processes tell each other.

Regions are 24 bytes each. Operations and entries are a table of the different tails (where packets
are sent, and which table is next) and then a record of 44 bytes each, all alike so that reading
takes one step; the same few thousand matches and tails come again and again, and are remembered.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from struct import Struct

from dzflow.address import Match
from dzflow.errors import BadInput
from dzflow.region import FULL, Region
from sdn.flows import Action, Change, FlowEntry, FlowOp, Output, ToGroup

_REGION = Struct("!12s12s")
_HEAD = Struct("!I")  # how many tails
_TAIL = Struct("!hH")  # the next table, or -1; how many actions
_ACTION = Struct("!BI")  # whether it is a group; its number or the port
_RECORD = Struct("!BBHII32s")  # flags, table, priority, port, tail, address and mask

_CHANGES = (Change.ADD, Change.MODIFY, Change.DELETE)
_FLAGS = {change: number for number, change in enumerate(_CHANGES)}
_CHANGE = 3
_MATCHED = 4
_PORTED = 8
_REMEMBERED = 1 << 16

Tail = tuple[tuple[Action, ...], int | None]


class BadPacking(BadInput):
    """Bytes that are not what they should be: the peer is broken or speaks another version."""


# Regions


def pack_regions(regions: Iterable[Region]) -> bytes:
    """24 bytes for each region."""
    return b"".join(r.bits.to_bytes(12, "big") + r.mask.to_bytes(12, "big") for r in regions)


def unpack_regions(data: bytes) -> tuple[Region, ...]:
    """The regions that were packed."""
    if len(data) % _REGION.size:
        raise BadPacking(f"{len(data)} bytes are not regions of {_REGION.size} bytes each")
    return tuple(_region(data[at : at + 24]) for at in range(0, len(data), 24))


@lru_cache(_REMEMBERED)
def _region(data: bytes) -> Region:
    whole = int.from_bytes(data, "big")
    bits, mask = whole >> 96, whole & FULL
    if bits & mask != bits:
        raise BadPacking("a region has bits that its mask leaves open")
    return Region(bits, mask)


# Operations and entries


def pack_ops(ops: Sequence[FlowOp]) -> bytes:
    """Operations in order."""
    flags = _FLAGS
    return _pack((flags[op.change], op.entry) for op in ops)


def unpack_ops(data: bytes) -> list[FlowOp]:
    """The operations that were packed."""
    changes = _CHANGES
    try:
        return [FlowOp(changes[flags & _CHANGE], entry) for flags, entry in _unpack(data)]
    except IndexError:
        raise BadPacking("an operation of unknown kind, or a tail that is missing") from None


def pack_entries(entries: Iterable[FlowEntry]) -> bytes:
    """Entries in order."""
    return _pack((0, entry) for entry in entries)


def unpack_entries(data: bytes) -> list[FlowEntry]:
    """The entries that were packed."""
    try:
        return [entry for _, entry in _unpack(data)]
    except IndexError:
        raise BadPacking("an entry with a tail that is missing") from None


def _pack(flagged: Iterable[tuple[int, FlowEntry]]) -> bytes:
    numbers: dict[Tail, int] = {}
    records: list[bytes] = []
    pack = _RECORD.pack
    try:
        for flags, entry in flagged:
            tail = entry.actions, entry.goto
            number = numbers.setdefault(tail, len(numbers))
            match, port = entry.match, entry.in_port
            address = b""
            if match is not None:
                flags |= _MATCHED
                address = match.address.to_bytes(16, "big") + match.mask.to_bytes(16, "big")
            if port is None:
                port = 0
            else:
                flags |= _PORTED
            records.append(pack(flags, entry.table, entry.priority, port, number, address))
        return b"".join((_HEAD.pack(len(numbers)), *map(_pack_tail, numbers), *records))
    except (struct.error, OverflowError) as error:
        raise BadPacking(f"an entry holds a number that no switch has: {error}") from error


def _unpack(data: bytes) -> Iterator[tuple[int, FlowEntry]]:
    """Flags and entry of each record; IndexError if one names a tail that is not there."""
    tails, at = _unpack_tails(data)
    records = memoryview(data)[at:]
    if len(records) % _RECORD.size:
        raise BadPacking(f"{len(records)} bytes are not records of {_RECORD.size} bytes each")
    known = _match
    for flags, table, priority, port, number, raw in _RECORD.iter_unpack(records):
        actions, goto = tails[number]
        yield (
            flags,
            FlowEntry(
                table,
                priority,
                known(raw) if flags & _MATCHED else None,
                actions,
                goto,
                port if flags & _PORTED else None,
            ),
        )


@lru_cache(_REMEMBERED)
def _match(raw: bytes) -> Match:
    match = Match(int.from_bytes(raw[:16], "big"), int.from_bytes(raw[16:], "big"))
    if match.address & match.mask != match.address:
        raise BadPacking("a match has bits that its mask leaves open")
    return match


@lru_cache(_REMEMBERED)
def _pack_tail(tail: Tail) -> bytes:
    actions, goto = tail
    parts = [_TAIL.pack(-1 if goto is None else goto, len(actions))]
    for action in actions:
        if isinstance(action, Output):
            parts.append(_ACTION.pack(0, action.port))
        else:
            parts.append(_ACTION.pack(1, action.group))
    return b"".join(parts)


def _unpack_tails(data: bytes) -> tuple[list[Tail], int]:
    tails: list[Tail] = []
    try:
        (count,) = _HEAD.unpack_from(data)
        at = _HEAD.size
        for _ in range(count):
            goto, length = _TAIL.unpack_from(data, at)
            at += _TAIL.size
            after = at + length * _ACTION.size
            tails.append((_actions(data[at:after]), None if goto < 0 else goto))
            at = after
    except struct.error:
        raise BadPacking(f"{len(data)} bytes end in the middle of what entries do") from None
    if at > len(data):
        raise BadPacking(f"{len(data)} bytes end in the middle of an action")
    return tails, at


@lru_cache(_REMEMBERED)
def _actions(data: bytes) -> tuple[Action, ...]:
    return tuple(
        ToGroup(number) if group else Output(number) for group, number in _ACTION.iter_unpack(data)
    )
