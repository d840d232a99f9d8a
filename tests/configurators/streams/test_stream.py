"""Streams: what is told and asked, and what happens to strangers, the slow and the silent."""

import asyncio
import contextlib
import logging
import socket
import struct
import tracemalloc
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import uvloop
from msgspec import Struct

from configurators.streams import stream as stream_module
from configurators.streams.addresses import join_address, split_address
from configurators.streams.handshake import Handshake, NotTrusted
from configurators.streams.listener import CannotConnect, Listener, NoFreePort, connect
from configurators.streams.stream import (
    MessageTooLarge,
    RemoteError,
    Stream,
    StreamClosed,
    StreamOptions,
)
from dzflow.errors import BadInput
from tests.event_loop import TestLoop
from tests.support import WAIT, until

TOKEN = b"a token that both ends know"


class Say(Struct, frozen=True, array_like=True, tag="say"):
    text: str
    data: bytes = b""


class Fail(Struct, frozen=True, array_like=True, tag="fail"):
    kind: str


Message = Say | Fail


class End:
    """Keeps what it hears; answers asks with the same text in capitals."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[Any] = asyncio.Queue()
        self.go_on = asyncio.Event()
        self.go_on.set()

    def __call__(self, _: Stream, message: Message) -> Any:
        if isinstance(message, Fail):
            if message.kind == "bad input":
                raise BadInput("write something else")
            return self._fail_later()
        self.heard.put_nowait(message.text)
        if message.text == "nothing":
            return None
        if message.text == "large":
            return Say("x" * 2_000)
        if message.text == "later":
            return self._later()
        return Say(message.text.upper(), message.data)

    async def _later(self) -> Say:
        await self.go_on.wait()
        return Say("at last")

    async def _fail_later(self) -> Say:
        await asyncio.sleep(0)
        raise ZeroDivisionError("something odd")


@contextlib.asynccontextmanager
async def pair(
    options: StreamOptions | None = None, there: Callable[[Stream, Any], Any] | None = None
) -> AsyncIterator[tuple[Stream, End, Listener]]:
    end = End()
    async with Listener(
        "127.0.0.1:0", TOKEN, there or end, Message, name="listener", options=options
    ) as listener:
        stream = await connect(listener.address, TOKEN, End(), Message, "dialler", options)
        try:
            yield stream, end, listener
        finally:
            stream.close()
            await stream.closed.wait()


@pytest.mark.parametrize(
    "anyio_backend",
    [
        ("asyncio", {"loop_factory": TestLoop}),
        ("asyncio", {"loop_factory": uvloop.new_event_loop}),
    ],
    ids=["asyncio", "uvloop"],
)
async def test_what_is_told_and_asked_arrives_in_order() -> None:
    async with pair() as (stream, end, listener):
        assert stream.peer == "listener"
        assert [s.peer for s in listener.streams] == ["dialler"]
        for number in range(100):
            stream.tell(Say(str(number)))
        assert await stream.ask(Say("hello", b"\0\xff"), WAIT) == Say("HELLO", b"\0\xff")
        heard = [end.heard.get_nowait() for _ in range(101)]
        assert heard == [*map(str, range(100)), "hello"]
        assert await stream.ask(Say("nothing"), WAIT) is None


async def test_both_ends_may_tell_and_ask() -> None:
    async with pair() as (_, _, listener):
        (other,) = listener.streams
        assert await other.ask(Say("hi"), WAIT) == Say("HI")


async def test_a_large_message_arrives_whole() -> None:
    async with pair() as (stream, _, _):
        data = bytes(range(256)) * 40_000
        reply = await stream.ask(Say("x", data), WAIT)
        assert reply.data == data
        await stream.drained()


async def test_replies_may_overtake_each_other() -> None:
    async with pair() as (stream, end, _):
        end.go_on.clear()
        slow = asyncio.create_task(stream.ask(Say("later"), WAIT))
        assert await stream.ask(Say("quick"), WAIT) == Say("QUICK")
        end.go_on.set()
        assert await slow == Say("at last")


async def test_an_ask_gets_the_error_of_the_peer(caplog: pytest.LogCaptureFixture) -> None:
    async with pair() as (stream, _, _):
        with pytest.raises(RemoteError, match="BadInput: write something else"):
            await stream.ask(Fail("bad input"), WAIT)
        with pytest.raises(RemoteError, match="ZeroDivisionError: something odd"):
            await stream.ask(Fail("later"), WAIT)
        assert await stream.ask(Say("still there"), WAIT) == Say("STILL THERE")
    # What was not foreseen can be read in the log of the process where it happened.
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [
        ZeroDivisionError
    ]


@pytest.mark.parametrize("kind", ["bad input", "later"])
async def test_an_error_in_a_told_message_ends_the_stream(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with pair() as (stream, _, _):
        asked = asyncio.create_task(stream.ask(Say("later"), WAIT))
        await asyncio.sleep(0)
        stream.tell(Fail(kind))
        await asyncio.wait_for(stream.closed.wait(), WAIT)
        with contextlib.suppress(StreamClosed):
            await asked  # may have been answered before
        with pytest.raises(StreamClosed, match="listener"):
            stream.tell(Say("too late"))
        with pytest.raises(StreamClosed):
            await stream.ask(Say("too late"), WAIT)
    assert "closing the stream" in caplog.text


async def test_an_ask_that_is_not_answered_in_time_is_given_up() -> None:
    async with pair() as (stream, end, _):
        end.go_on.clear()
        with pytest.raises(TimeoutError):
            await stream.ask(Say("later"), 0.01)
        end.go_on.set()  # the late reply is passed over
        assert await stream.ask(Say("next"), WAIT) == Say("NEXT")


async def test_asks_leave_nothing_behind() -> None:
    async with pair() as (stream, end, _):
        for _ in range(100):
            await stream.ask(Say("once"), WAIT)
            end.heard.get_nowait()
        tracemalloc.start()
        try:
            for _ in range(2_000):
                await stream.ask(Say("again"), WAIT)
                end.heard.get_nowait()
            kept = tracemalloc.take_snapshot()
        finally:
            tracemalloc.stop()
    ours = kept.filter_traces([tracemalloc.Filter(True, stream_module.__file__)])
    assert sum(each.size for each in ours.statistics("filename")) < 20_000


async def test_asks_fail_when_the_stream_ends() -> None:
    async with pair() as (stream, end, listener):
        end.go_on.clear()
        asked = asyncio.create_task(stream.ask(Say("later"), WAIT))
        await end.heard.get()
        for other in listener.streams:
            other.close()
        with pytest.raises(StreamClosed, match="closed it"):
            await asked
        end.go_on.set()


async def test_messages_told_before_closing_arrive() -> None:
    async with pair() as (stream, end, _):
        stream.tell(Say("last words"))
        stream.close()
        assert await asyncio.wait_for(end.heard.get(), WAIT) == "last words"


# Who is not trusted


async def test_a_wrong_token_is_refused_on_both_sides() -> None:
    end = End()
    async with Listener("127.0.0.1:0", TOKEN, end, Message) as listener:
        with pytest.raises(CannotConnect):
            await connect(listener.address, b"another token", End(), Message, "stranger")
        assert not listener.streams
    assert end.heard.empty()


def test_a_listener_has_to_prove_itself_too() -> None:
    honest, false = Handshake(TOKEN, "d", listens=False), Handshake(b"other", "l", listens=True)
    challenge = false.first()
    assert challenge
    proof = honest.receive(challenge)
    assert proof
    with pytest.raises(NotTrusted, match="another token"):
        false.receive(proof)
    true = Handshake(TOKEN, "l", listens=True)
    first = true.first()
    assert first
    # What one session has proved is worth nothing in another one.
    with pytest.raises(NotTrusted):
        true.receive(proof)
    with pytest.raises(NotTrusted):  # nor can it be sent back
        honest.receive(proof)


def test_an_empty_token_is_refused() -> None:
    with pytest.raises(NotTrusted, match="empty"):
        Handshake(b"", "x", listens=True)


def frame(kind: int, body: bytes, number: int = 0) -> bytes:
    return struct.pack("!IBI", len(body) + 5, kind, number) + body


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        bytes(100),
        b"\xff" * 100,
        struct.pack("!IBI", 60 << 20, 5, 0),  # announces far too much
        frame(0, b"\xc0"),  # skips the handshake
        frame(5, b"\x93\x01\x02\x03"),
        frame(5, b"\x93\xc4\x01a\xa1b\xc4\x01c"),
    ],
)
async def test_garbage_ends_its_own_connection_only(data: bytes) -> None:
    async with pair() as (stream, _, listener):
        reader, writer = await asyncio.open_connection(*split_address(listener.address))
        writer.write(data)
        with contextlib.suppress(ConnectionResetError):
            await asyncio.wait_for(reader.read(), WAIT)
        writer.close()
        assert await stream.ask(Say("well"), WAIT) == Say("WELL")


async def test_silent_connections_are_cut_and_strangers_are_limited() -> None:
    options = StreamOptions(handshake=2.0, strangers=2)

    async with pair(options) as (stream, _, listener):
        strangers = [
            await asyncio.open_connection(*split_address(listener.address)) for _ in range(4)
        ]
        for reader, writer in strangers:
            with contextlib.suppress(ConnectionResetError):
                await asyncio.wait_for(reader.read(), WAIT)
            writer.close()
        assert await stream.ask(Say("well"), WAIT) == Say("WELL")
        another = await connect(listener.address, TOKEN, End(), Message, "again", options)
        another.close()
        await another.closed.wait()


@contextlib.asynccontextmanager
async def silent(
    listener: Listener, addresses: list[str]
) -> AsyncIterator[list[asyncio.StreamReader]]:
    """A connection from each address that says nothing, though the listener has sent its part."""
    host, port = split_address(listener.address)
    opened = []
    try:
        for address in addresses:
            opened.append(await asyncio.open_connection(host, port, local_addr=(address, 0)))
            assert await opened[-1][0].readexactly(4)
        yield [reader for reader, _ in opened]
    finally:
        for _, writer in opened:
            writer.transport.abort()


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2"])
async def test_silent_connections_do_not_use_up_a_listener(address: str) -> None:
    """With default limits; the listener would wait for each of them for ten minutes."""
    options = StreamOptions(handshake=600.0)
    async with (
        pair(options) as (stream, _, listener),
        silent(listener, [address] * 300) as strangers,
    ):
        for name in map(str, range(10)):
            another = await connect(listener.address, TOKEN, End(), Message, name, options)
            assert await another.ask(Say("in"), WAIT) == Say("IN")
            another.close()
            await another.closed.wait()
        # The oldest had to go; the stream that is open has never been disturbed.
        for reader in strangers[: 300 - options.strangers_of_address]:
            await cut(reader)
        assert await stream.ask(Say("well"), WAIT) == Say("WELL")


async def test_strangers_of_many_addresses_are_limited_in_total() -> None:
    options = StreamOptions(handshake=600.0, strangers=10, strangers_of_address=5)
    addresses = [f"127.0.0.{2 + number // 3}" for number in range(30)]
    async with (
        pair(options) as (stream, _, listener),
        silent(listener, addresses) as strangers,
    ):
        for reader in strangers[:20]:
            await cut(reader)
        another = await connect(listener.address, TOKEN, End(), Message, "again", options)
        another.close()
        await another.closed.wait()
        assert await stream.ask(Say("well"), WAIT) == Say("WELL")


async def test_refused_strangers_do_not_fill_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("configurators.streams.listener.REFUSALS_EVERY", 3600.0)
    addresses = [f"127.0.0.{2 + number}" for number in range(30)]
    async with pair() as (_, _, listener), silent(listener, addresses):
        pass
    assert caplog.text.count(" refused 127.0.0.") == 1


async def cut(reader: asyncio.StreamReader) -> None:
    """Wait until the other end cuts a connection."""
    with contextlib.suppress(ConnectionResetError):
        await asyncio.wait_for(reader.read(), WAIT)


async def test_listeners_take_the_first_free_port_of_a_range() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        used = taken.getsockname()[1]
        with socket.create_server(("127.0.0.1", 0)) as other:
            free = other.getsockname()[1]

        def listener(*ports: int) -> Listener:
            return Listener("127.0.0.1:0", TOKEN, End(), Message, ports=ports)

        async with listener(used, free) as found:
            assert found.address == f"127.0.0.1:{free}"
            with pytest.raises(NoFreePort, match=f"all ports from {used} to {free}"):
                async with listener(used, free):
                    pass


async def test_connecting_to_a_closed_port_fails() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        address = join_address("127.0.0.1", taken.getsockname()[1])
        with pytest.raises(CannotConnect, match=address):
            await connect(address, TOKEN, End(), Message, "dialler")


async def test_connecting_to_a_silent_listener_fails() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = join_address("127.0.0.1", silent.getsockname()[1])
        with pytest.raises(CannotConnect, match="in time"):
            await connect(address, TOKEN, End(), Message, "d", StreamOptions(handshake=0.1))


# Bounds


async def test_a_message_that_is_too_large_is_not_sent() -> None:
    async with pair(StreamOptions(frame=1_000)) as (stream, _, _):
        with pytest.raises(MessageTooLarge, match="in parts"):
            stream.tell(Say("x" * 1_001))
        with pytest.raises(RemoteError, match="MessageTooLarge"):
            await stream.ask(Say("large"), WAIT)
        assert await stream.ask(Say("small"), WAIT) == Say("SMALL")


async def test_a_frame_beyond_the_limit_ends_the_stream() -> None:
    end = End()
    async with Listener(
        "127.0.0.1:0", TOKEN, end, Message, options=StreamOptions(frame=100)
    ) as there:
        stream = await connect(there.address, TOKEN, end, Message, "d")
        stream.tell(Say("x" * 200))
        await asyncio.wait_for(stream.closed.wait(), WAIT)
        assert end.heard.empty()


async def test_a_message_of_another_type_ends_the_stream() -> None:
    class Other(Struct, frozen=True, array_like=True, tag="other"):
        x: int = 1

    async with pair() as (stream, _, _):
        stream.tell(Other())
        await asyncio.wait_for(stream.closed.wait(), WAIT)


async def test_a_peer_that_does_not_read_is_cut_off_at_a_bound() -> None:
    options = StreamOptions(outgoing=1 << 20)

    async with pair(options) as (stream, _, listener):
        (other,) = listener.streams
        other._reading().pause_reading()

        async def flood() -> None:
            for _ in range(1_000):
                stream.tell(Say("x", bytes(100_000)))
                await asyncio.sleep(0)

        with pytest.raises(StreamClosed, match="too slow"):
            await flood()
        await asyncio.wait_for(stream.closed.wait(), WAIT)
        other.cut("the test is over")


async def test_a_silent_peer_is_noticed_and_an_idle_one_is_not() -> None:
    options = StreamOptions(ping_every=0.05, silence=2.0)

    async with pair(options) as (stream, _, listener):
        (other,) = listener.streams
        # Idle for longer than the limit, which signs of life make up for.
        began = asyncio.get_running_loop().time()
        await until(lambda: asyncio.get_running_loop().time() - began > 2.5)
        assert not stream.closed.is_set()
        assert other._timer
        other._timer.cancel()  # from now on it is like a process that stands still
        await asyncio.wait_for(stream.closed.wait(), WAIT)
        assert "sign of life" in stream.reason


async def test_reading_stops_while_too_many_messages_are_handled() -> None:
    options = StreamOptions(in_progress=10)

    async with pair(options) as (stream, end, _):
        end.go_on.clear()
        data = bytes(300_000)
        asks = [asyncio.create_task(stream.ask(Say("later", data), WAIT)) for _ in range(40)]
        for _ in range(10):
            await asyncio.wait_for(end.heard.get(), WAIT)
        assert end.heard.qsize() < 15
        end.go_on.set()
        assert await asyncio.gather(*asks) == [Say("at last")] * 40


def test_addresses_are_read_and_written() -> None:
    assert split_address("127.0.0.1:80") == ("127.0.0.1", 80)
    assert split_address("[::1]:80") == ("::1", 80)
    assert join_address("::1", 80) == "[::1]:80"
    with pytest.raises(BadInput, match="host:port"):
        split_address("localhost")


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
