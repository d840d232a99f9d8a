"""OpenFlow: what a switch sends us, what an emulated switch gets, and frames of discovery."""

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random

from sdn.emulator.switch import EmulatedSwitch
from sdn.openflow.discovery.frames import build_probe, read_announcement, read_probe
from sdn.openflow.protocol.codec import (
    barrier,
    decode_flow_mod,
    decode_group_mod,
    encode_group_ops,
    encode_ops,
)
from sdn.openflow.protocol.constants import V1_4, VERSIONS
from sdn.openflow.protocol.events import Closed
from sdn.openflow.protocol.session import Session
from sdn.openflow.protocol.wire import MAX_MESSAGE, MalformedMessage
from sdn.tables.flows import Change, FlowOp
from tests.fuzz.mutation import ByteInputs
from tests.fuzz.target import REFUSED, Broken, Probe, Target
from tests.sdn.emulator.support import PORTS, group
from tests.sdn.openflow import peer
from tests.sdn.openflow.cables import KEY, address_check, advertisement, solicitation
from tests.sdn.openflow.session_seeds import ENTRY, SEEDS, started

_LENGTH = struct.Struct("!H")
_HEAD = 8
_MOST_ENTRIES = 2_000  # after which the emulated switch is replaced
_OPTIONS = struct.pack("!HH", 0, 8)


class _Messages(ByteInputs):
    """Changed messages whose length is mostly right, so that more than the header is tried."""

    def __init__(self, random: Random, seeds: Sequence[bytes]) -> None:
        super().__init__(random, seeds, (_OPTIONS, bytes(8), b"\xff" * 8))
        self._chance = random

    def next(self) -> bytes:
        data = super().next()
        if len(data) < _HEAD or len(data) > MAX_MESSAGE or self._chance.random() < 0.2:
            return data
        return data[:2] + _LENGTH.pack(len(data)) + data[4:]


def _all_seeds() -> list[bytes]:
    return [message for version in VERSIONS for message in SEEDS[version]]


@contextmanager
def _open_session() -> Iterator[Probe]:
    ready = {version: started(version, True) for version in VERSIONS}
    number = 0

    def probe(data: bytes) -> str:
        nonlocal number
        number += 1
        version = data[0] if data and data[0] in VERSIONS else V1_4
        # Every tenth input meets a session that has heard nothing yet.
        fresh = number % 10 == 0
        session = started(version, False) if fresh else ready[version]
        cut = len(data) // 3 if number % 2 else len(data)
        events = [*session.feed(data[:cut]), *session.feed(data[cut:])]
        _check(session, events)
        if not fresh and (session.closed is not None or session.buffered or number % 7 == 0):
            ready[version] = started(version, True)
        if session.closed is not None:
            return f"{REFUSED}{_kind(data)}"
        return f"{_kind(data)}: {' '.join(type(event).__name__ for event in events[:3])}"

    yield probe


def _check(session: Session, events: Sequence[object]) -> None:
    if any(isinstance(event, Closed) for event in events[:-1]):
        raise Broken("a session says something after its end")
    if session.buffered > MAX_MESSAGE:
        raise Broken(f"a session keeps {session.buffered} bytes")
    ended = bool(events) and isinstance(events[-1], Closed)
    if ended != (session.closed is not None):
        raise Broken("a session that is over does not say so")
    answer = session.outgoing()
    if answer and sum(map(len, peer.split(answer))) != len(answer):
        raise Broken("an answer does not consist of whole messages")


def _kind(data: bytes) -> str:
    return f"type {data[1]}" if len(data) > 1 and data[1] < 36 else "no message"


SESSION = Target(
    name="openflow",
    border="OpenFlow",
    open=_open_session,
    inputs=lambda random: _Messages(random, _all_seeds()),
    refusals=(),
    covers=(
        "sdn.openflow.protocol.receiver",
        "sdn.openflow.protocol.replies",
        "sdn.openflow.protocol.decode",
        "sdn.openflow.protocol.pending",
    ),
    share=160,
)


def _controller_seeds() -> list[bytes]:
    """What a controller sends to a switch: all that a session ever asks for."""
    found = []
    for version in VERSIONS:
        session = Session()
        session.feed(peer.hello(version, version))
        found += peer.split(session.outgoing())
        session = started(version, True)
        session.request_flow_stats()
        session.request_group_desc()
        session.request_table_features()
        found += peer.split(session.outgoing())
        found += [encode_ops(version, [FlowOp(change, ENTRY)], 1) for change in Change]
        found.append(encode_group_ops(version, [group(7, 2)], 1))
        found.append(barrier(version, 9))
    return found


@contextmanager
def _open_switch() -> Iterator[Probe]:
    def new() -> EmulatedSwitch:
        return EmulatedSwitch("s1", 0xD2, PORTS)

    switch = new()
    connection = switch.connect()
    number = 0

    def probe(data: bytes) -> str:
        nonlocal switch, connection, number
        number += 1
        if connection.closed is not None or number % 500 == 0:
            if number % 500 == 0 or len(switch.entries()) > _MOST_ENTRIES:
                switch = new()
            connection = switch.connect()
            version = data[0] if data and data[0] in VERSIONS else V1_4
            switch.feed(connection, peer.hello(version, version), 0.0)
        connection.outgoing()
        switch.feed(connection, data, 0.0)
        answer = connection.outgoing()
        if answer and sum(map(len, peer.split(answer))) != len(answer):
            raise Broken("an answer does not consist of whole messages")
        if connection.closed is not None:
            switch.disconnect(connection)
            return f"{REFUSED}{_kind(data)}"
        return f"{_kind(data)}, {_kind(answer)}"

    yield probe


SWITCH = Target(
    name="openflow-switch",
    border="OpenFlow",
    open=_open_switch,
    inputs=lambda random: _Messages(random, _controller_seeds()),
    refusals=(),
    covers=("sdn.emulator.connection", "sdn.emulator.control", "sdn.emulator.actions"),
    share=50,
)


@contextmanager
def _open_mods() -> Iterator[Probe]:
    def probe(data: bytes) -> str:
        if len(data) > 1 and data[1] == 15:
            decode_group_mod(data)
            return "group-mod"
        decode_flow_mod(data)
        return "flow-mod"

    yield probe


def _mods() -> list[bytes]:
    found = []
    for version in VERSIONS:
        found += [encode_ops(version, [FlowOp(change, ENTRY)], 1) for change in Change]
        found.append(encode_group_ops(version, [group(7, 2)], 1))
    return found


MODS = Target(
    name="openflow-mods",
    border="OpenFlow",
    open=_open_mods,
    inputs=lambda random: _Messages(random, _mods()),
    refusals=(MalformedMessage,),
    covers=("sdn.openflow.protocol.decode",),
    share=120,
)


@contextmanager
def _open_frames() -> Iterator[Probe]:
    def probe(data: bytes) -> str:
        found = read_probe(data)
        if found is not None:
            return f"probe, authentic: {found.authentic(KEY)}"
        return f"{REFUSED}not ours" if read_announcement(data) is None else "announcement"

    yield probe


FRAMES = Target(
    name="discovery",
    border="OpenFlow",
    open=_open_frames,
    inputs=lambda random: ByteInputs(
        random,
        [build_probe(KEY, "s1", 7, 9), advertisement(), solicitation(), address_check()],
        (b"\xfe\x00", b"\x06\x01", b"\x00\x00"),
    ),
    refusals=(),
    covers=("sdn.openflow.discovery.frames",),
    share=90,
)
