"""The actions of entries, buckets and packet-outs, read from the bytes of a message."""

from collections.abc import Iterator
from functools import lru_cache

from msgspec import Struct

from sdn.emulator.frames import SETTABLE
from sdn.emulator.refused import (
    BAD_ACTION_LEN,
    BAD_ACTION_TYPE,
    BAD_INSTRUCTION_LEN,
    BAD_SET_LEN,
    BAD_SET_TYPE,
    DUPLICATE_INSTRUCTION,
    UNKNOWN_INSTRUCTION,
    UNSUPPORTED_INSTRUCTION,
    ErrorCode,
    Refused,
)
from sdn.openflow.protocol.constants import ActionType, InstructionType
from sdn.openflow.protocol.layouts import APPLY, BUCKET, GOTO, OUTPUT, TO_GROUP
from sdn.openflow.protocol.wire import TYPE_LENGTH, MalformedMessage, read
from sdn.tables.flows import Output, ToGroup

IN_PORT = 0xFFFFFFF8
TABLE = 0xFFFFFFF9  # in packet-outs only
FLOOD = 0xFFFFFFFB
ALL_PORTS = 0xFFFFFFFC

_BASIC_CLASS = 0x8000
_LAST_INSTRUCTION = 6  # of those that OpenFlow 1.3 and 1.4 define
_REMEMBERED = 256  # longer ones are not cached, so that a peer cannot fill our memory


class SetField(Struct, frozen=True, gc=False):
    """Change a field of the packet."""

    field: int
    value: bytes


Step = Output | ToGroup | SetField
Steps = tuple[Step, ...]


def parse_actions(data: bytes) -> Steps:
    """A list of actions; raises Refused if the switch does not know one."""
    steps: list[Step] = []
    for kind, at, after in _pieces(data, BAD_ACTION_LEN):
        if kind == ActionType.OUTPUT:
            _check_length(after - at == OUTPUT.size, BAD_ACTION_LEN)
            steps.append(Output(OUTPUT.unpack_from(data, at)[2]))
        elif kind == ActionType.GROUP:
            _check_length(after - at == TO_GROUP.size, BAD_ACTION_LEN)
            steps.append(ToGroup(TO_GROUP.unpack_from(data, at)[2]))
        elif kind == ActionType.SET_FIELD:
            steps.append(_set_field(data[at + TYPE_LENGTH.size : after]))
        else:
            raise Refused(BAD_ACTION_TYPE)
    return tuple(steps)


def parse_instructions(data: bytes) -> tuple[Steps, int | None]:
    """The actions of an entry and the table that follows; raises Refused for unknown ones."""
    return (_parse_remembered if len(data) <= _REMEMBERED else _parse)(data)


def _parse(data: bytes) -> tuple[Steps, int | None]:
    steps: Steps = ()
    goto: int | None = None
    seen: set[int] = set()
    for kind, at, after in _pieces(data, BAD_INSTRUCTION_LEN):
        if kind in seen:
            raise Refused(DUPLICATE_INSTRUCTION)
        seen.add(kind)
        if kind == InstructionType.GOTO_TABLE:
            _check_length(after - at == GOTO.size, BAD_INSTRUCTION_LEN)
            goto = data[at + TYPE_LENGTH.size]
        elif kind == InstructionType.APPLY_ACTIONS:
            steps = parse_actions(data[at + APPLY.size : after])
        else:
            known = 0 < kind <= _LAST_INSTRUCTION
            raise Refused(UNSUPPORTED_INSTRUCTION if known else UNKNOWN_INSTRUCTION)
    return steps, goto


_parse_remembered = lru_cache(maxsize=4096)(_parse)


def parse_buckets(data: bytes) -> tuple[Steps, ...]:
    """What each bucket of a group does."""
    buckets, at = [], 0
    while at < len(data):
        length, *_ = read(BUCKET, data, at)
        after = at + length
        if length < BUCKET.size or after > len(data):
            raise MalformedMessage(f"a bucket of {length} bytes, {len(data) - at} are left")
        buckets.append(parse_actions(data[at + BUCKET.size : after]))
        at = after
    return tuple(buckets)


def _set_field(data: bytes) -> SetField:
    header = int.from_bytes(data[:4], "big")
    field, length = header >> 9 & 0x7F, header & 0xFF
    if header >> 16 != _BASIC_CLASS or header & 0x100 or field not in SETTABLE:
        raise Refused(BAD_SET_TYPE)
    if length != SETTABLE[field] or len(data) < 4 + length:
        raise Refused(BAD_SET_LEN)
    return SetField(field, data[4 : 4 + length])


def _pieces(data: bytes, error: ErrorCode) -> Iterator[tuple[int, int, int]]:
    """Type, begin and end of all instructions or actions."""
    at = 0
    while at < len(data):
        _check_length(len(data) - at >= 8, error)
        kind, length = TYPE_LENGTH.unpack_from(data, at)
        after = at + length
        _check_length(length >= 8 and length % 8 == 0 and after <= len(data), error)
        yield kind, at, after
        at = after


def _check_length(fits: bool, error: ErrorCode) -> None:
    if not fits:
        raise Refused(error)
