"""Streams between processes: the handshake, frames, and what messages carry packed."""

import asyncio
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from random import Random
from typing import Any, cast

import msgspec

from configurators.histogram import HistogramCounts
from configurators.streams import messages
from configurators.streams.handshake import (
    MAGIC,
    NONCE,
    Challenge,
    Handshake,
    NotTrusted,
    Proof,
    Welcome,
)
from configurators.streams.packing import (
    BadPacking,
    pack_ops,
    pack_regions,
    unpack_ops,
    unpack_regions,
)
from configurators.streams.stream import Stream, StreamOptions
from dzflow.address import ALL, Match
from dzflow.region import FULL, Region
from sdn.network.findings import SeenHost
from sdn.network.topology import Host
from sdn.outcomes import Acknowledged
from sdn.tables.flows import Change, FlowEntry, FlowOp, Output, ToGroup
from sdn.tables.pipeline import SwitchNumbers
from tests.fuzz.mutation import ByteInputs
from tests.fuzz.target import REFUSED, Broken, Probe, Target
from tests.fuzz.transport import FakeTransport
from tests.simulation.loop import VirtualLoop

_TOKEN = b"a token that both ends know"
_HEAD = struct.Struct("!IBI")
_TIMERS = 256  # inputs after which the loop's timers are run
_TELL, _ASK, _REPLY, _ERROR, _PING, _HANDSHAKE = range(6)
_WORDS = (
    b"\xc0",
    b"\x90",
    b"\x80",
    b"\x91" * 20,
    b"\x91" * 1_000,
    b"\xdc\xff\xff",
    b"\xdd\xff\xff\xff\xff",
    b"\xdb\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff",
    b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\xa5tasks",
    b"\xa5apply",
    b"\xa5holds",
)


def _frame(kind: int, number: int, body: bytes) -> bytes:
    return _HEAD.pack(len(body) + _HEAD.size - 4, kind, number) + body


# The handshake alone


def _handshake_seeds() -> list[bytes]:
    """Every message of a handshake, with codes that are wrong: a stranger knows no token."""
    encode = msgspec.msgpack.encode
    nonce, code = bytes(range(NONCE)), bytes(32)
    found = Challenge(MAGIC, nonce), Proof(nonce, "stranger", code), Welcome("stranger", code)
    encoded = [encode(message) for message in found]
    # Members that a later version may have are skipped.
    return [*encoded, *(bytes((data[0] + 1,)) + data[1:] + b"\x90" for data in encoded)]


@contextmanager
def _open_handshake() -> Iterator[Probe]:
    def probe(data: bytes) -> str:
        listener = Handshake(_TOKEN, "listener", listens=True)
        listener.first()
        with suppress(NotTrusted):
            listener.receive(data)
            raise Broken("a listener takes what is not a proof")
        dialler = Handshake(_TOKEN, "dialler", listens=False)
        dialler.receive(data)
        with suppress(NotTrusted):
            dialler.receive(data)
            raise Broken("a dialler takes what is not a welcome")
        if listener.peer is not None or dialler.peer is not None:
            raise Broken("a stranger is trusted")
        return "challenge"

    yield probe


HANDSHAKE = Target(
    name="stream-handshake",
    border="stream handshake and frames",
    open=_open_handshake,
    inputs=lambda random: ByteInputs(random, _handshake_seeds(), _WORDS),
    refusals=(NotTrusted,),
    covers=("configurators.streams.handshake",),
    share=110,
)


# Whole streams

_ENTRY = FlowEntry(3, 100, Match(0xFF1E << 112, ALL ^ (ALL >> 16)), (Output(2), ToGroup(7)), 4, 5)
_OPS = pack_ops([FlowOp(change, _ENTRY) for change in Change])
_REGIONS = pack_regions([Region(0, 0), Region(1 << 95, 3 << 94), Region(FULL, FULL)])
_TASK = messages.Task("s1-abc", 3, "h1", False, _REGIONS, b"")
_DONE = messages.Done("1.0.0", "s1-abc", 3, 77, "done")
_WORK = messages.WorkCounters(7, 9, 8, 0.5, 0.25, 0.125, 3, 40)
_LOAD = messages.PartitionLoad("1.0.0", 7, "ready", 1, 2, 3, 4, None, 1, 0.5, _WORK)
_WAITS = HistogramCounts((0, 2, 1), 0.5)
_COUNTERS = messages.ConfiguratorCounters(1.5e9, 7, 1, 2, 3, _WAITS)
_MESSAGES: tuple[tuple[Any, tuple[msgspec.Struct, ...]], ...] = (
    (
        messages.ToConfigurator,
        (messages.Tasks({"1.0.0": [_TASK]}, {"1.0.0": 7}), messages.Offers({"1.0.0": 3})),
    ),
    (
        messages.FromConfigurator,
        (
            messages.Dones([_DONE]),
            messages.Waiting("1.0.0", [("s1-abc", 3)], "s2 does not answer"),
            messages.Load("c1", 5, [_LOAD], 1 << 28, 12.5, [_LOAD], [], True, _COUNTERS),
            messages.Take("1.0.0", 7, 10),
        ),
    ),
    (
        messages.ToSouthbound,
        (
            messages.Apply("1.0.0", 7, {"s1": _OPS}),
            messages.RaiseEpochs({"1.0.0": 7}),
            messages.Declare({"1.0.0": 7}, {"1.0.0": {"s1": _OPS}}, True, ["s1"]),
            messages.ReadFlows("s1"),
            messages.FindVacant("s1", SwitchNumbers(frozenset({3}), frozenset({1 << 31}))),
        ),
    ),
    (
        messages.FromSouthbound,
        (
            messages.Applied({"s1": Acknowledged()}, None),
            messages.Raised({"1.0.0": "older"}, ["1.0.1"]),
            messages.Flows(_OPS),
            messages.Vacant(SwitchNumbers(frozenset({3})), "not up"),
            messages.SwitchReport("b1", ["s1"], {"s2": "no connection"}, 5, [("s1", 2)]),
            messages.FoundNetwork("b1", (7,), (), ((("s1", 2), ("s2", 3)),), {9: "why"}),
            messages.FoundHosts("b1", (SeenHost(Host("host-02", "s1", 3), 1.5),)),
            messages.SouthboundCounters(
                "b1", 1.5e9, {"s1": messages.SwitchCounters(1, 2, 3, 4, 5, 6)}, _WAITS
            ),
        ),
    ),
)


class _Frames(ByteInputs):
    """Frames with a changed body and a right length, or changed as a whole.

    The first byte of an input says which messages the stream takes, and whether it is trusted.
    """

    def __init__(self, random: Random) -> None:
        encode = msgspec.msgpack.encode
        seeds = []
        for role, (_, known) in enumerate(_MESSAGES):
            for message in known:
                for kind, number in ((_TELL, 0), (_ASK, 7), (_REPLY, 1)):
                    seeds.append(bytes((role,)) + _frame(kind, number, encode(message)))
            seeds.append(bytes((role,)) + _frame(_ERROR, 1, encode("it failed")))
            seeds.append(bytes((role,)) + _frame(_PING, 0, b""))
        strangers = [_frame(_HANDSHAKE, 0, body) for body in _handshake_seeds()]
        seeds += [b"\x04" + frame for frame in strangers] + [b"\x05" + strangers[0] + strangers[2]]
        super().__init__(random, seeds, _WORDS)
        self._chance = random

    def next(self) -> bytes:
        data = super().next()
        if len(data) > _HEAD.size and self._chance.random() < 0.7:
            rest = (len(data) - 5).to_bytes(4, "big")
            kind = data[5] if data[5] < 6 else data[5] % 6
            data = data[:1] + rest + bytes((kind,)) + data[6:]
        if self._chance.random() < 0.1:
            data += super().next()[1:]
        return data


@contextmanager
def _open_stream() -> Iterator[Probe]:
    loop = VirtualLoop(1)
    asyncio.set_event_loop(loop)
    options = StreamOptions(frame=1 << 20)
    number = 0
    unhandled: list[str] = []
    loop.set_exception_handler(lambda _, context: unhandled.append(str(context)))

    def probe(data: bytes) -> str:
        nonlocal number
        number += 1
        loop.steps = 0
        loop.made.clear()
        if number % _TIMERS == 0:
            loop.run_until_complete(asyncio.sleep(60.0))  # drops the timers of all streams
        outcome = loop.run_until_complete(_exchange(data, options))
        if unhandled:
            raise Broken(f"nobody handles an error: {unhandled.pop()}")
        return outcome

    try:
        yield probe
    finally:
        asyncio.set_event_loop(None)
        loop.finish()


async def _exchange(data: bytes, options: StreamOptions) -> str:
    """Send data to a stream; the first byte chooses what the stream expects."""
    role = data[0] % 6 if data else 0
    heard: list[Any] = []
    trusted: list[Stream] = []
    receives, _ = _MESSAGES[role % 4]
    handshake = Handshake(_TOKEN, "one", listens=role != 5)
    stream = Stream(
        handshake, lambda _, told: heard.append(told), receives, options, trusted.append
    )
    transport = FakeTransport(stream)
    stream.connection_made(cast(asyncio.Transport, transport))
    await asyncio.sleep(0)
    asked: asyncio.Task[Any] | None = None
    if role < 4:
        other = Handshake(_TOKEN, "two", listens=False)
        (challenge,) = _bodies(transport.take())
        proof = other.receive(challenge)
        assert proof
        stream.data_received(_frame(_HANDSHAKE, 0, proof))
        await asyncio.sleep(0)
        transport.take()
        asked = asyncio.create_task(stream.ask(_MESSAGES[role][1][0], 1e8))
        await asyncio.sleep(0)
    rest = data[1:]
    cut = len(rest) // 2 if len(rest) % 2 else len(rest)
    for part in (rest[:cut], rest[cut:]):
        if part and not transport.is_closing():
            stream.data_received(part)
    await asyncio.sleep(0)
    if role >= 4 and (heard or trusted):
        raise Broken("a stranger's message was handled")
    _check_again(receives, heard)
    outcome = _outcome(stream, transport, heard, asked)
    stream.cut("the input is over")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    if not transport.lost:
        raise Broken("a stream that was cut keeps its connection")
    if asked is not None:
        await asyncio.wait([asked])
        if not asked.cancelled():
            asked.exception()
    return outcome


def _bodies(written: bytes) -> list[bytes]:
    found = []
    while written:
        length, _, _ = _HEAD.unpack_from(written)
        found.append(written[_HEAD.size : 4 + length])
        written = written[4 + length :]
    return found


def _check_again(receives: Any, heard: Sequence[Any]) -> None:
    for message in heard:
        again = msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=receives)
        if repr(again) != repr(message):
            raise Broken(f"{message!r} becomes {again!r}")


def _outcome(
    stream: Stream,
    transport: FakeTransport,
    heard: Sequence[Any],
    asked: "asyncio.Task[Any] | None",
) -> str:
    if transport.is_closing():
        if not stream.reason:
            raise Broken("a stream was cut without a reason")
        return f"{REFUSED}{stream.reason[:25]}"
    answered = asked is not None and asked.done()
    return f"open, {' '.join(type(one).__name__ for one in heard)}{' answered' * answered}"


STREAM = Target(
    name="stream-frames",
    border="stream handshake and frames",
    open=_open_stream,
    inputs=_Frames,
    refusals=(),
    covers=("configurators.streams.stream",),
    share=50,
)


@contextmanager
def _open_packing() -> Iterator[Probe]:
    def probe(data: bytes) -> str:
        if data[:1] == b"r":
            regions = unpack_regions(data[1:])
            if pack_regions(regions) != data[1:]:
                raise Broken("regions are not the same after they were unpacked")
            return "regions"
        ops = unpack_ops(data[1:])
        if unpack_ops(pack_ops(ops)) != ops:
            raise Broken("operations are not the same after they were packed again")
        return "operations"

    yield probe


PACKING = Target(
    name="stream-packing",
    border="stream handshake and frames",
    open=_open_packing,
    inputs=lambda random: ByteInputs(random, [b"r" + _REGIONS, b"o" + _OPS], (b"\xff" * 12,)),
    refusals=(BadPacking,),
    covers=("configurators.streams.packing",),
    share=90,
)
