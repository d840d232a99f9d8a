"""Streams with TLS: what a listener on the way sees, and who is refused, with which log."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

import pytest
import uvloop
from msgspec import Struct

from configurators.streams.addresses import join_address, split_address
from configurators.streams.handshake import Handshake, NotTrusted
from configurators.streams.listener import CannotConnect, Listener, connect
from configurators.streams.stream import Stream, StreamOptions
from configurators.streams.tls import BadCertificates, StreamTls
from tests.certificates import Keys, make_keys, sign
from tests.event_loop import TestLoop
from tests.socket_server import SocketServer, connected
from tests.support import WAIT, until

TOKEN = b"a token that both ends know"
SECRET = "price > 420 and symbol == ACME"  # noqa: S105 - not one
QUICK = StreamOptions(handshake=0.3)


class Say(Struct, frozen=True, array_like=True, tag="say"):
    text: str
    data: bytes = b""


def echo(_: Stream, message: Say) -> Say:
    return Say(message.text[::-1], message.data)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return make_keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def tls(keys: Keys) -> StreamTls:
    return loaded(keys)


@pytest.fixture(scope="module")
def strange(tmp_path_factory: pytest.TempPathFactory) -> StreamTls:
    """The certificates of another installation."""
    return loaded(make_keys(tmp_path_factory.mktemp("strange")))


@pytest.fixture(params=[TestLoop, uvloop.new_event_loop], ids=["asyncio", "uvloop"], autouse=True)
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": request.param}


def loaded(keys: Keys) -> StreamTls:
    return StreamTls(keys.certificate, keys.key, keys.authority)


def listening(tls: StreamTls | None, options: StreamOptions | None = None) -> Listener:
    return Listener("127.0.0.1:0", TOKEN, echo, Say, "listener", options=options, tls=tls)


async def dial(
    address: str, tls: StreamTls | None, options: StreamOptions | None = None, token: bytes = TOKEN
) -> Stream:
    return await connect(address, token, echo, Say, "dialler", options, tls=tls)


class Between:
    """Passes bytes between two ends, and keeps them; perhaps with TLS of its own."""

    def __init__(self, target: str, own: StreamTls | None = None) -> None:
        self.seen = bytearray()
        self._target = split_address(target)
        self._own = own
        self._server = SocketServer(self._pass_on, tls=own.server if own else None)

    @property
    def address(self) -> str:
        return join_address(*self._server.address)

    async def __aenter__(self) -> Self:
        await self._server.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._server.__aexit__(*error)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        context = self._own.client if self._own else None
        async with connected(self._target, context) as (there, back):
            await asyncio.gather(self._copy(reader, back), self._copy(there, writer))

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                self.seen += data
                writer.write(data)
                await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def pair(tls: StreamTls | None) -> AsyncIterator[tuple[Stream, Between]]:
    async with listening(tls) as listener, Between(listener.address) as between:
        stream = await dial(between.address, tls)
        try:
            yield stream, between
        finally:
            stream.close()
            await stream.closed.wait()


async def test_no_message_is_in_the_clear_between_the_ends(tls: StreamTls) -> None:
    for used, visible in ((None, True), (tls, False)):
        async with pair(used) as (stream, between):
            assert stream.peer == "listener"
            assert await stream.ask(Say(SECRET), WAIT) == Say(SECRET[::-1])
            assert (SECRET.encode() in between.seen) is visible
            assert (b"listener" in between.seen) is visible


async def test_large_messages_arrive_whole(tls: StreamTls) -> None:
    data = bytes(range(256)) * 40_000
    async with pair(tls) as (stream, _):
        assert (await stream.ask(Say("x", data), WAIT)).data == data
        await stream.drained()


async def test_a_certificate_of_another_ca_is_refused_by_both_sides(
    tls: StreamTls, strange: StreamTls, caplog: pytest.LogCaptureFixture
) -> None:
    for there, here in ((tls, strange), (strange, tls)):
        async with listening(there) as listener:
            with pytest.raises(CannotConnect, match="its certificate is not accepted"):
                await dial(listener.address, here)
            await until(lambda: "the stream listener of listener refused 127.0.0.1" in caplog.text)
            assert not listener.streams
        caplog.clear()


async def test_a_listener_refuses_a_dialler_that_trusts_it_but_is_of_another_ca(
    keys: Keys, tls: StreamTls, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = make_keys(tmp_path)
    intruder = StreamTls(other.certificate, other.key, keys.authority)
    async with listening(tls) as listener:
        with pytest.raises(CannotConnect):
            await dial(listener.address, intruder)
        await until(lambda: "refused 127.0.0.1" in caplog.text)
        assert "its certificate is not accepted" in caplog.text
        assert not listener.streams


async def test_a_dialler_without_certificate_is_refused(keys: Keys, tls: StreamTls) -> None:
    nothing = ssl.create_default_context(cafile=keys.authority)
    async with listening(tls) as listener:
        async with connected(split_address(listener.address), nothing) as (reader, _):
            with contextlib.suppress(OSError):
                assert await asyncio.wait_for(reader.read(), WAIT) == b""
        assert not listener.streams


async def test_a_plain_dialler_is_refused_with_a_clear_log(
    tls: StreamTls, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(tls, QUICK) as listener:
        with pytest.raises(CannotConnect):
            await dial(listener.address, None)
        await until(lambda: "give all processes the same kind of [streams] settings" in caplog.text)


async def test_a_plain_listener_is_refused_with_a_clear_error(
    tls: StreamTls, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(None) as listener:
        with pytest.raises(CannotConnect, match="TLS failed; give all processes the same kind of"):
            await dial(listener.address, tls)
        await until(lambda: "listener refused 127.0.0.1" in caplog.text)


async def test_the_token_is_asked_for_inside_of_tls(tls: StreamTls) -> None:
    async with listening(tls) as listener:
        with pytest.raises(CannotConnect):
            await dial(listener.address, tls, token=b"another token of this length")
        assert not listener.streams


async def test_a_member_of_the_ca_cannot_sit_in_between(keys: Keys, tls: StreamTls) -> None:
    """It has a certificate of the same CA, but not the token, and passes the proofs on."""
    other = loaded(sign(keys.authority, "other", ["IP:127.0.0.1"]))
    async with listening(tls) as listener, Between(listener.address, other) as between:
        with pytest.raises(CannotConnect):
            await dial(between.address, tls)
        assert b"dialler" in between.seen, "it saw the proof"
        assert not listener.streams


async def test_a_dialler_that_speaks_before_it_is_asked_is_cut_off(tls: StreamTls) -> None:
    async with listening(tls) as listener:
        async with connected(split_address(listener.address), tls.client) as (reader, writer):
            writer.write(b"\0\0\0\x05\0\0\0\0\0" * 100)
            with contextlib.suppress(OSError):
                await asyncio.wait_for(reader.read(), WAIT)
        assert not listener.streams


async def test_connections_without_tls_count_as_strangers(tls: StreamTls) -> None:
    async with listening(tls, StreamOptions(strangers=1)) as listener:
        place = split_address(listener.address)
        async with connected(place) as (reader, _), connected(place):
            with contextlib.suppress(ConnectionError):
                assert await asyncio.wait_for(reader.read(), WAIT) == b""


async def test_silent_connections_do_not_use_up_a_listener_with_tls(tls: StreamTls) -> None:
    options = StreamOptions(handshake=600.0, strangers=10, strangers_of_address=5)
    async with listening(tls, options) as listener:
        where = split_address(listener.address)
        async with contextlib.AsyncExitStack() as stack:
            silent = [await stack.enter_async_context(connected(where)) for _ in range(20)]
            stream = await connect(listener.address, TOKEN, echo, Say, "d", options, tls=tls)
            assert await stream.ask(Say("in"), WAIT) == Say("ni")
            for reader, _ in silent[:15]:
                with contextlib.suppress(ConnectionResetError):
                    await asyncio.wait_for(reader.read(), WAIT)
        stream.close()
        await stream.closed.wait()


async def test_a_listener_stops_while_a_connection_is_silent(tls: StreamTls) -> None:
    async with asyncio.timeout(WAIT):
        listener = listening(tls)
        await listener.__aenter__()
        async with connected(split_address(listener.address)) as (_, writer):
            await until(lambda: writer.transport.get_extra_info("peername") is not None)
            await listener.__aexit__(None, None, None)


def test_proofs_are_bound_to_the_certificate() -> None:
    def greet(listeners: bytes, seen: bytes) -> None:
        listener = Handshake(TOKEN, "l", listens=True)
        listener.bind(listeners)
        listener.connected(b"that of the dialler does not matter")
        dialler = Handshake(TOKEN, "d", listens=False)
        dialler.connected(seen)
        first = listener.first()
        assert first
        proof = dialler.receive(first)
        assert proof
        welcome = listener.receive(proof)
        assert welcome
        dialler.receive(welcome)
        assert (listener.peer, dialler.peer) == ("d", "l")

    greet(b"c1", b"c1")
    for listeners, seen in ((b"c1", b"c2"), (b"c1", b""), (b"", b"c1")):
        with pytest.raises(NotTrusted):
            greet(listeners, seen)


def test_files_that_do_not_fit_are_refused(keys: Keys, tmp_path: Path) -> None:
    other = make_keys(tmp_path)
    with pytest.raises(BadCertificates, match=r"dzflow\.key"):
        StreamTls(keys.certificate, other.key, keys.authority)
    with pytest.raises(BadCertificates, match="no certificate"):
        StreamTls(keys.key, keys.key, keys.authority)
