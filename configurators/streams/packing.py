"""Regions, flow operations and flow entries as bytes: the bulk of what processes send each other.

Regions have 24 bytes each. Operations and entries are packed as a table of the different tails
(actions and next table), followed by one record of 44 bytes for each entry. All records have the
same layout, so that one call unpacks them. Regions, matches and tails repeat often when they are
unpacked, and are cached, so that equal ones are one object.
"""

import struct
from collections.abc import Iterable, Mapping
from functools import lru_cache
from struct import Struct

from dzflow.address import Match
from dzflow.errors import BadInput
from dzflow.region import FULL, Region
from sdn.tables.flows import Action, Change, FlowEntry, FlowOp, Output, ToGroup

_REGION = Struct("!12s12s")
REGION_BYTES = _REGION.size
_HEAD = Struct("!I")  # bytes of all tails
_TAIL = Struct("!hH")  # the next table, or -1; how many actions
_ACTION = Struct("!BI")  # whether it is a group; its number or the port
_RECORD = Struct("!BBHII32s")  # flags, table, priority, port, tail, address and mask

_CHANGES = (Change.ADD, Change.MODIFY, Change.DELETE)
_CHANGE = 3
_MATCHED = 4
_PORTED = 8
_REMEMBERED = 1 << 14  # regions and matches: about 5 MB each
_TAILS = 1 << 12  # tails, and lists of them, of which ever new ones come: about 2 MB

Tail = tuple[tuple[Action, ...], int | None]


class BadPacking(BadInput):
    """The bytes are malformed: the peer is broken, or has another version."""


# Regions


def pack_regions(regions: Iterable[Region]) -> bytes:
    """24 bytes for each region."""
    return b"".join(r.bits.to_bytes(12, "big") + r.mask.to_bytes(12, "big") for r in regions)


def unpack_regions(data: bytes) -> tuple[Region, ...]:
    """The regions that were packed."""
    size = REGION_BYTES
    if len(data) % size:
        raise BadPacking(f"{len(data)} bytes are not regions of {size} bytes each")
    known = _region
    return tuple([known(data[at : at + size]) for at in range(0, len(data), size)])


@lru_cache(_REMEMBERED)
def _region(data: bytes) -> Region:
    whole = int.from_bytes(data, "big")
    bits, mask = whole >> 96, whole & FULL
    if bits & mask != bits:
        raise BadPacking("a region has bits that its mask leaves open")
    return Region(bits, mask)


# Operations and entries


def pack_batch(batch: Mapping[str, Iterable[FlowOp]]) -> dict[str, bytes]:
    """The operations of each switch, in order."""
    written: dict[Match, bytes] = {}  # most matches are on many switches
    return {switch: pack_ops(ops, written) for switch, ops in batch.items()}


def pack_ops(ops: Iterable[FlowOp], written: dict[Match, bytes] | None = None) -> bytes:
    """Operations in order; `written` has matches that were packed before, and gets the others."""
    written = {} if written is None else written
    add, modify = Change.ADD, Change.MODIFY
    numbers: dict[Tail, int] = {}
    records: list[bytes] = []
    pack = _RECORD.pack
    try:
        for op in ops:
            change, entry = op.change, op.entry
            flags = 0 if change is add else 1 if change is modify else 2
            tail = entry.actions, entry.goto
            number = numbers.get(tail)
            if number is None:
                number = numbers[tail] = len(numbers)
            match, port = entry.match, entry.in_port
            raw: bytes | None = b""
            if match is not None:
                flags |= _MATCHED
                raw = written.get(match)
                if raw is None:
                    raw = match.address.to_bytes(16, "big") + match.mask.to_bytes(16, "big")
                    written[match] = raw
            if port is None:
                port = 0
            else:
                flags |= _PORTED
            records.append(pack(flags, entry.table, entry.priority, port, number, raw))
        tails = b"".join(map(_pack_tail, numbers))
        return b"".join((_HEAD.pack(len(tails)), tails, *records))
    except (struct.error, OverflowError) as error:
        raise BadPacking(f"an entry has a number that is out of range: {error}") from error


def unpack_ops(data: bytes) -> list[FlowOp]:
    """The operations that were packed."""
    tails, records = _split(data)
    changes, known = _CHANGES, _match
    ops: list[FlowOp] = []
    try:
        for flags, table, priority, port, number, raw in _RECORD.iter_unpack(records):
            actions, goto = tails[number]
            match = known(raw) if flags & _MATCHED else None
            in_port = port if flags & _PORTED else None
            entry = FlowEntry(table, priority, match, actions, goto, in_port)
            ops.append(FlowOp(changes[flags & _CHANGE], entry))
    except IndexError:
        raise BadPacking("an operation of unknown kind, or a tail that is missing") from None
    return ops


def pack_entries(entries: Iterable[FlowEntry]) -> bytes:
    """Entries in order."""
    return pack_ops(FlowOp(Change.ADD, entry) for entry in entries)


def unpack_entries(data: bytes) -> list[FlowEntry]:
    """The entries that were packed."""
    return [op.entry for op in unpack_ops(data)]


def _split(data: bytes) -> tuple[tuple[Tail, ...], memoryview]:
    """The tails, and the bytes of all records."""
    if len(data) < _HEAD.size:
        raise BadPacking(f"{len(data)} bytes are too few")
    at = _HEAD.size + _HEAD.unpack_from(data)[0]
    records = memoryview(data)[at:]
    if at > len(data) or len(records) % _RECORD.size:
        raise BadPacking(f"{len(data)} bytes end in the middle of a record")
    return _unpack_tails(data[_HEAD.size : at]), records


@lru_cache(_REMEMBERED)
def _match(raw: bytes) -> Match:
    match = Match(int.from_bytes(raw[:16], "big"), int.from_bytes(raw[16:], "big"))
    if match.address & match.mask != match.address:
        raise BadPacking("a match has bits that its mask leaves open")
    return match


@lru_cache(_TAILS)
def _pack_tail(tail: Tail) -> bytes:
    actions, goto = tail
    parts = [_TAIL.pack(-1 if goto is None else goto, len(actions))]
    for action in actions:
        if isinstance(action, Output):
            parts.append(_ACTION.pack(0, action.port))
        else:
            parts.append(_ACTION.pack(1, action.group))
    return b"".join(parts)


@lru_cache(_TAILS)
def _unpack_tails(data: bytes) -> tuple[Tail, ...]:
    tails: list[Tail] = []
    at = 0
    while at < len(data):
        if len(data) - at < _TAIL.size:
            raise BadPacking("a tail is too short")
        goto, length = _TAIL.unpack_from(data, at)
        at += _TAIL.size
        after = at + length * _ACTION.size
        if after > len(data):
            raise BadPacking("a tail ends in the middle of an action")
        tails.append((_actions(data[at:after]), None if goto < 0 else goto))
        at = after
    return tuple(tails)


@lru_cache(_TAILS)
def _actions(data: bytes) -> tuple[Action, ...]:
    return tuple(
        ToGroup(number) if group else Output(number) for group, number in _ACTION.iter_unpack(data)
    )
