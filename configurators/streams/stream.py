"""Streams of messages between processes: how they are opened, and taken up by a listener."""

import asyncio
from collections.abc import Callable, Collection, Coroutine
from types import TracebackType
from typing import Any, Protocol, Self

from configurators.streams.channel import (
    CannotConnect,
    Habits,
    Hear,
    RemoteError,
    Stream,
    StreamClosed,
    TooLarge,
)
from configurators.streams.handshake import Handshake
from dzflow.errors import BadInput

__all__ = [
    "CannotConnect",
    "Connect",
    "Habits",
    "Hear",
    "Listen",
    "Listener",
    "RemoteError",
    "Stream",
    "StreamClosed",
    "TooLarge",
    "connect",
    "join_address",
    "split_address",
]


async def connect(
    address: str,
    token: bytes,
    hear: Hear,
    receives: Any,
    name: str,
    habits: Habits | None = None,
    on_open: Callable[[Stream], None] | None = None,
) -> Stream:
    """Open a stream to a listener; `receives` is the union of all messages that may come.

    `on_open` is called before the first of them is heard. CannotConnect if nobody is there in time,
    or nobody who knows the token.
    """
    habits = habits or Habits()
    opened = asyncio.Event()
    host, port = split_address(address)

    def trusted(stream: Stream) -> None:
        opened.set()
        if on_open:
            on_open(stream)

    def make() -> Stream:
        return Stream(Handshake(token, name, listens=False), hear, receives, habits, trusted)

    try:
        async with asyncio.timeout(habits.handshake):
            _, stream = await asyncio.get_running_loop().create_connection(make, host, port)
    except (OSError, TimeoutError) as error:
        raise CannotConnect(f"{address}: {error or 'no answer in time'}") from error
    waits = [asyncio.ensure_future(event.wait()) for event in (opened, stream.closed)]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        stream.cut("not wanted any more")
        raise
    finally:
        for wait in waits:
            wait.cancel()
    if not opened.is_set():
        raise CannotConnect(f"{address}: {stream.reason}")
    return stream


class Connect(Protocol):
    """Opens a stream, as `connect` does."""

    def __call__(
        self,
        address: str,
        token: bytes,
        hear: Hear,
        receives: Any,
        name: str,
        habits: Habits | None = None,
        on_open: Callable[[Stream], None] | None = None,
    ) -> Coroutine[Any, Any, Stream]:
        """The stream, when it is open."""


class Listen(Protocol):
    """Makes a listener, as the class `Listener` does."""

    def __call__(
        self,
        address: str,
        token: bytes,
        hear: Hear,
        receives: Any,
        name: str = "",
        on_open: Callable[[Stream], None] | None = None,
        habits: Habits | None = None,
    ) -> "Listener":
        """The listener, which is used as an async context manager."""


class Listener:
    """Takes up streams; use as an async context manager. `address` is where it listens."""

    def __init__(
        self,
        address: str,
        token: bytes,
        hear: Hear,
        receives: Any,
        name: str = "",
        on_open: Callable[[Stream], None] | None = None,
        habits: Habits | None = None,
    ) -> None:
        self.address = address
        self._token = token
        self._hear = hear
        self._receives = receives
        self._name = name
        self._on_open = on_open
        self._habits = habits or Habits()
        self._known: set[_Accepted] = set()
        self._open: set[Stream] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        host, port = split_address(self.address)
        self._server = await asyncio.get_running_loop().create_server(self._accept, host, port)
        self.address = join_address(host, self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        assert self._server
        self._server.close()
        known = list(self._known)
        for stream in known:
            stream.close("the listener stops")
        for stream in known:
            await stream.closed.wait()
        await self._server.wait_closed()

    @property
    def streams(self) -> Collection[Stream]:
        """The streams that are open."""
        return self._open

    def _accept(self) -> Stream:
        return _Accepted(
            self, Handshake(self._token, self._name, listens=True), self._hear, self._receives
        )

    def made(self, stream: "_Accepted") -> bool:
        """Somebody has connected; whether there is room for one more stranger."""
        if self._server is not None and not self._server.is_serving():
            return False  # it came while the listener stopped
        if len(self._known) - len(self._open) >= self._habits.strangers:
            return False
        self._known.add(stream)
        return True

    def opened(self, stream: Stream) -> None:
        """Somebody has proved to be trusted."""
        self._open.add(stream)
        if self._on_open:
            self._on_open(stream)

    def lost(self, stream: "_Accepted") -> None:
        """Somebody is gone."""
        self._known.discard(stream)
        self._open.discard(stream)


class _Accepted(Stream):
    """A stream that its listener keeps account of."""

    def __init__(self, listener: Listener, handshake: Handshake, hear: Hear, receives: Any) -> None:
        super().__init__(handshake, hear, receives, listener._habits, listener.opened)
        self._listener = listener

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if not self._listener.made(self):
            self.cut("too many connections that have not proved themselves")

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._listener.lost(self)


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `host:port`; an IPv6 address is written in brackets."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise BadInput(f"{address!r} is not an address; write host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def join_address(host: str, port: int) -> str:
    """The opposite."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
