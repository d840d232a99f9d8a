"""Streams to all processes that are registered: they come, go, and come back."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from msgspec import Struct

from configurators.store.documents import encode
from configurators.store.etcd.client import Etcd
from configurators.store.keys import CONFIGURATORS
from configurators.store.model import Process
from configurators.streams.listener import Listener
from configurators.streams.peers import Peers
from configurators.streams.stream import Stream
from tests.etcd import TestEtcd
from tests.support import WAIT

TOKEN = b"token"


class Say(Struct, frozen=True, array_like=True, tag="say"):
    text: str


def echo(_: Stream, message: Say) -> Say:
    return message


class Told:
    """Who has a stream at the moment, as told."""

    def __init__(self) -> None:
        self.open: dict[str, Stream] = {}
        self.registered: set[str] = set()
        self._changed = asyncio.Event()

    def opened(self, name: str, stream: Stream) -> None:
        self.open[name] = stream
        self._changed.set()

    def closed(self, name: str, stream: Stream) -> None:
        assert self.open.pop(name) is stream
        self._changed.set()

    def changed(self) -> None:
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


@contextlib.asynccontextmanager
async def peers(etcd: Etcd) -> AsyncIterator[tuple[Peers, Told]]:
    told = Told()
    async with Peers(
        etcd, CONFIGURATORS, TOKEN, echo, Say, told.opened, told.closed,
        name="me", on_change=told.changed,
    ) as made:  # fmt: skip
        yield made, told


def listener(name: str, address: str = "127.0.0.1:0") -> Listener:
    return Listener(address, TOKEN, echo, Say, name=name)


async def register(etcd: Etcd, name: str, address: str, pid: int = 1, lease: int = 0) -> None:
    await etcd.put(CONFIGURATORS + name, encode(Process(name, address, pid, "node")), lease)


async def test_processes_that_are_there_or_come_are_reached(etcd_server: TestEtcd) -> None:
    async with (
        Etcd(etcd_server.access()) as etcd,
        listener("c1") as one,
        listener("c2") as two,
    ):
        await register(etcd, "c1", one.address)
        async with peers(etcd) as (made, told):
            assert made.processes.keys() == {"c1"}
            await told.until(lambda: told.open.keys() == {"c1"})
            await register(etcd, "c2", two.address)
            await told.until(lambda: told.open.keys() == {"c1", "c2"})
            stream = made["c2"]
            assert stream is told.open["c2"]
            assert await stream.ask(Say("hello"), WAIT) == Say("hello")
            assert made.streams().keys() == {"c1", "c2"}
            assert made["nobody"] is None
        assert not told.open


async def test_a_process_that_is_not_registered_any_more_is_left(etcd_server: TestEtcd) -> None:
    async with Etcd(etcd_server.access()) as etcd, listener("c1") as one, peers(etcd) as pair:
        made, told = pair
        async with etcd.lease(5) as lease:
            await register(etcd, "c1", one.address, lease=lease.id)
            await told.until(lambda: made["c1"] is not None)
            stream = made["c1"]
            assert stream
        await told.until(lambda: not told.open and not made.processes)
        await asyncio.wait_for(stream.closed.wait(), WAIT)
        assert made["c1"] is None


async def test_a_stream_is_reported_before_its_first_message(etcd_server: TestEtcd) -> None:
    order: list[str] = []
    told = asyncio.Event()

    def hear(_: Stream, message: Say) -> None:
        order.append(message.text)
        told.set()

    greeting = Listener(
        "127.0.0.1:0", TOKEN, echo, Say, "c1", on_open=lambda stream: stream.tell(Say("hello"))
    )
    async with Etcd(etcd_server.access()) as etcd, greeting as one:
        await register(etcd, "c1", one.address)
        async with Peers(etcd, CONFIGURATORS, TOKEN, hear, Say, lambda name, _: order.append(name)):
            await asyncio.wait_for(told.wait(), WAIT)
    assert order == ["c1", "hello"]


async def test_a_lost_stream_is_opened_again(etcd_server: TestEtcd) -> None:
    async with Etcd(etcd_server.access()) as etcd, listener("c1") as one, peers(etcd) as pair:
        made, told = pair
        await register(etcd, "c1", one.address)
        await told.until(lambda: made["c1"] is not None)
        before = made["c1"]
        for stream in list(one.streams):
            stream.cut("the cable was pulled")
        await told.until(lambda: made["c1"] not in (None, before))


async def test_a_process_that_moved_is_found_at_its_new_place(etcd_server: TestEtcd) -> None:
    async with Etcd(etcd_server.access()) as etcd, peers(etcd) as (made, told):
        async with listener("c1") as one:
            await register(etcd, "c1", one.address)
            await told.until(lambda: made["c1"] is not None)
        await told.until(lambda: made["c1"] is None)
        async with listener("c1") as one:
            await register(etcd, "c1", one.address, pid=2)
            await told.until(lambda: made["c1"] is not None)
            assert made.processes["c1"].pid == 2


async def test_another_process_at_the_address_is_not_used(
    etcd_server: TestEtcd,
) -> None:
    async with Etcd(etcd_server.access()) as etcd, peers(etcd) as (made, told):
        async with listener("somebody else") as other:
            await register(etcd, "c1", other.address)
            address = other.address
            await told.until(lambda: "c1" in made.processes)
        async with listener("c1", address):
            await told.until(lambda: made["c1"] is not None)


async def test_an_unreadable_registration_does_not_affect_others(etcd_server: TestEtcd) -> None:
    async with Etcd(etcd_server.access()) as etcd, listener("c1") as one:
        await etcd.put(CONFIGURATORS + "broken", b"\xc1")
        async with peers(etcd) as (made, told):
            await register(etcd, "c1", one.address)
            await told.until(lambda: made["c1"] is not None)
            assert "broken" not in made.processes
