"""Datagrams that reach a host: events for the SDK, and messages to an emulated host."""

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import msgspec

from dzflow import host_protocol
from dzflow.address import DELIVERY
from dzflow.sdk.events import datagrams
from dzflow.sdk.events.inbox import ThreadInbox
from dzflow.sdk.events.sorter import Interest, Sorter
from dzflow.sdk.space_view import Expression, SpaceView
from tests.fuzz.mutation import ByteInputs, JsonInputs, Mixed
from tests.fuzz.target import REFUSED, Broken, Probe, Target

_PENDING = 1_000  # events that may wait to be classified
_RENEW = 2_500  # inputs of one application
_SPACE = {
    "name": "stocks",
    "number": 5,
    "version": 1,
    "prefix": 0xFF1E,
    "trees": [0],
    "attributes": [
        {"name": "price", "type": "float", "min": 0, "max": 1000},
        {"name": "symbol", "type": "string"},
        {"name": "side", "type": "enum", "values": ["buy", "sell"]},
        {"name": "at", "type": "int", "min": 0, "max": 100},
        {"name": "open", "type": "bool"},
    ],
    "index": {"kind": "fields", "budget": 2, "shapes": 4},
}
_VIEW = SpaceView.from_json(_SPACE)
_EVENTS = (
    {"price": 420.5, "symbol": "ACME", "side": "buy", "at": 3, "open": True},
    {"price": 0, "symbol": "", "side": "sell", "at": 100, "open": False},
    {"price": 999.999, "symbol": "Ünïcödé \0 \x1b[2J", "side": "buy", "at": 0, "open": True},
)
_FILTERS = ("price > 400", 'symbol prefix "AC"', "at between 0 and 50 and open == true")
_WORDS = (
    b"\x81\xa1a\x01",
    b"\xa5price",
    b"\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00",  # a float that is not a number
    b"\xcb\x7f\xf0\x00\x00\x00\x00\x00\x00",  # infinity
    b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\xd9\xff",
    b"\xdb\xff\xff\xff\xff",
    b"\xdd\xff\xff\xff\xff",
    b"\xdf\x7f\xff\xff\xff",
    b"\xc7\x0c\xff" + bytes(12),  # a time
    b"\xd6\xff" + bytes(4),
    b"\xc1",
    b"\x91" * 60,
    b"\x81\xa1a" * 60,
    b"\x91" * 1_100,
    b"\x81\xa1a" * 380,
)


def _payloads() -> list[bytes]:
    found = [datagrams.encode(_id(5, 1, n), event) for n, event in enumerate(_EVENTS)]
    found += [datagrams.copy(payload) for payload in found]
    found.append(datagrams.encode(_id(5, 2, 7), _EVENTS[0]))
    found.append(datagrams.encode(_id(6, 1, 8), {"x": [1, {"y": None}]}))
    return found


def _id(space: int, version: int, number: int) -> int:
    return space << 54 | version << 52 | number


class _Events(JsonInputs):
    """Datagrams whose event was changed as a value."""

    def __init__(self, random: Random) -> None:
        super().__init__(random, _EVENTS, ("price", "side", "ACME", 3, 4.5, True, [1], {"x": 1}))
        encoded = [msgspec.msgpack.encode(event) for event in _EVENTS]
        self._heads = [
            payload.removesuffix(event)
            for payload, event in zip(_payloads(), encoded * 2, strict=False)
        ]
        self._chance = random

    def next(self) -> bytes:
        try:
            event = msgspec.json.decode(super().next())
            body = msgspec.msgpack.encode(event)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError):
            body = b"\xc1"
        return self._chance.choice(self._heads) + body


def _inputs(random: Random) -> Mixed:
    return Mixed(ByteInputs(random, _payloads(), _WORDS), _Events(random))


@contextmanager
def _open() -> Iterator[Probe]:
    sorter = _new_sorter()
    number = 0

    def probe(data: bytes) -> str:
        nonlocal number, sorter
        number += 1
        sorter.sort(data, 1.0)
        if max(len(sorter.unknown_version), len(sorter.unmatched)) > _PENDING:
            raise Broken("too many events wait to be classified")
        if number % _RENEW == 0:
            if _total(sorter) != _RENEW:
                raise Broken("not every datagram was counted once")
            sorter.classify({})
            sorter = _new_sorter()
        return _reread(data)

    yield probe


def _new_sorter() -> Sorter:
    sorter = Sorter()
    sorter.add_view(_VIEW)
    for text in _FILTERS:
        sorter.add(_VIEW.number, Interest(ThreadInbox(50), (Expression(text),)))
    return sorter


def _total(sorter: Sorter) -> int:
    return sorter.undecodable + sum(found.received for found in sorter.counters().values())


def _reread(data: bytes) -> str:
    """An event that was decoded is the same after it was encoded and decoded again."""
    found = datagrams.decode(data)
    if found is None:
        return f"{REFUSED}not an event"
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(found.event))
    if repr(again) != repr(found.event):  # by repr, for not-a-number does not equal itself
        raise Broken(f"{found.event!r} becomes {again!r}")
    return "event"


EVENTS = Target(
    name="events",
    border="SDK datagrams",
    open=_open,
    inputs=_inputs,
    refusals=(),
    covers=("dzflow.sdk.events.datagrams", "dzflow.sdk.events.sorter"),
    share=90,
)


def _host_inputs(random: Random) -> ByteInputs:
    payload = _payloads()[0]
    seeds = [
        bytes((host_protocol.VERSION, host_protocol.JOIN)),
        bytes((host_protocol.VERSION, host_protocol.LEAVE)),
        host_protocol.send(DELIVERY, payload),
        host_protocol.deliver(DELIVERY.to_bytes(16, "big"), payload),
        host_protocol.joined(True),
        host_protocol.joined(False),
    ]
    return ByteInputs(random, seeds, (b"x" * 1_200,))


@contextmanager
def _open_host() -> Iterator[Probe]:
    def probe(data: bytes) -> str:
        parsed = host_protocol.parse(data)
        if isinstance(parsed, host_protocol.Send):
            if host_protocol.send(*parsed) != data:
                raise Broken("a SEND is not the same after it was parsed")
            return "send"
        delivered = host_protocol.parse_delivery(data)
        if parsed is not None and delivered is not None:
            raise Broken("a datagram is both to and from a host")
        if parsed is None and delivered is None:
            return f"{REFUSED}not a message"
        return "other message"

    yield probe


HOSTS = Target(
    name="host-datagrams",
    border="SDK datagrams",
    open=_open_host,
    inputs=_host_inputs,
    refusals=(),
    covers=("dzflow.host_protocol",),
    share=98,
)
