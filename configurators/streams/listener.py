"""How streams between processes are opened: `connect` on one side, a `Listener` on the other."""

import asyncio
import errno
import logging
from collections.abc import Callable, Collection, Coroutine, Sequence
from types import TracebackType
from typing import Any, Protocol, Self

from configurators.streams.addresses import join_address, split_address
from configurators.streams.handshake import Handshake
from configurators.streams.stream import OnMessage, Receives, Stream, StreamOptions
from configurators.streams.tls import StreamTls, TlsGates, explain
from dzflow.aio import wait_for_any
from dzflow.errors import DzflowError
from dzflow.process.connections import ConnectionLimits, ConnectionTable
from dzflow.process.limited_log import LimitedLog

log = logging.getLogger(__name__)

REFUSALS_EVERY = 10.0  # seconds between two lines about refused connections


class CannotConnect(DzflowError):
    """No process answers at an address, or none that knows the token."""


class NoFreePort(DzflowError):
    """A listener cannot listen: other programs use all ports that it may use."""


async def connect(
    address: str,
    token: bytes,
    on_message: OnMessage,
    receives: Receives,
    name: str,
    options: StreamOptions | None = None,
    on_open: Callable[[Stream], None] | None = None,
    *,
    tls: StreamTls | None = None,
) -> Stream:
    """Open a stream to a listener; `receives` is the union of all messages that may come.

    `on_open` is called before the first message is handled. CannotConnect if no process that knows
    the token answers in time.
    """
    options = options or StreamOptions()
    opened = asyncio.Event()
    host, port = split_address(address)

    def trusted(stream: Stream) -> None:
        opened.set()
        if on_open:
            on_open(stream)

    def make() -> Stream:
        handshake = Handshake(token, name, listens=False)
        return Stream(handshake, on_message, receives, options, trusted)

    try:
        async with asyncio.timeout(options.handshake):
            loop, context = asyncio.get_running_loop(), tls.client if tls else None
            _, stream = await loop.create_connection(make, host, port, ssl=context)
    except (OSError, TimeoutError) as error:
        raise CannotConnect(f"{address}: {explain(error) or 'no answer in time'}") from error
    try:
        await wait_for_any(opened, stream.closed)
    except asyncio.CancelledError:
        stream.cut("no longer needed")
        raise
    if not opened.is_set():
        raise CannotConnect(f"{address}: {stream.reason}")
    return stream


class Connect(Protocol):
    """Opens a stream, as `connect` does."""

    def __call__(
        self,
        address: str,
        token: bytes,
        on_message: OnMessage,
        receives: Receives,
        name: str,
        options: StreamOptions | None = None,
        on_open: Callable[[Stream], None] | None = None,
    ) -> Coroutine[Any, Any, Stream]:
        """The stream, when it is open."""


class Listen(Protocol):
    """Makes a listener, as the class `Listener` does."""

    def __call__(
        self,
        address: str,
        token: bytes,
        on_message: OnMessage,
        receives: Receives,
        name: str = "",
        on_open: Callable[[Stream], None] | None = None,
        options: StreamOptions | None = None,
    ) -> "Listener":
        """The listener, which is used as an async context manager."""


class Listener:
    """Accepts streams; use as an async context manager. `address` is where it listens.

    Only so many connections may be in the handshake at once. When there are too many, the oldest
    one is cut: it had the most time to prove itself. Streams that are open are never cut for it.
    """

    def __init__(
        self,
        address: str,
        token: bytes,
        on_message: OnMessage,
        receives: Receives,
        name: str = "",
        on_open: Callable[[Stream], None] | None = None,
        options: StreamOptions | None = None,
        *,
        tls: StreamTls | None = None,
        ports: Sequence[int] = (),
    ) -> None:
        """If the address has the port 0, the first free one of `ports` is used, or any."""
        self.address = address
        self._ports = ports
        self._tls = tls
        self._token = token
        self._on_message = on_message
        self._receives = receives
        self._name = name
        self._on_open = on_open
        self._options = options or StreamOptions()
        limits = ConnectionLimits(self._options.strangers, self._options.strangers_of_address)
        self._strangers: ConnectionTable[Stream] = ConnectionTable(limits)
        self._known: set[_Accepted] = set()
        self._open: set[Stream] = set()
        self._server: asyncio.Server | None = None
        self._refusals = LimitedLog(log, logging.WARNING, REFUSALS_EVERY)
        self._gates = (
            TlsGates(tls, self._accept, self._options.handshake, limits, self._log_refusal)
            if tls
            else None
        )

    async def __aenter__(self) -> Self:
        host, port = split_address(self.address)
        make = self._gates.gate if self._gates else self._accept
        self._server = await self._listen(make, host, port)
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
        if self._gates:
            await self._gates.close()
        known = list(self._known)
        for stream in known:
            stream.close("the listener stops")
        for stream in known:
            await stream.closed.wait()
        await self._server.wait_closed()

    async def _listen(
        self, make: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        if port or not self._ports:
            return await loop.create_server(make, host, port)
        for each in self._ports:
            try:
                return await loop.create_server(make, host, each)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
        raise NoFreePort(
            f"all ports from {self._ports[0]} to {self._ports[-1]} of {host} are in use; choose"
            " more of them for streams"
        )

    @property
    def streams(self) -> Collection[Stream]:
        """The streams that are open."""
        return self._open

    def _accept(self) -> Stream:
        handshake = Handshake(self._token, self._name, listens=True)
        if self._tls:
            handshake.bind(self._tls.certificate)
        return _Accepted(self, handshake, self._on_message, self._receives, self._options)

    def admit(self, stream: "_Accepted", address: str) -> bool:
        """Whether a new connection may begin the handshake; cuts the one that makes room for it."""
        if self._server is not None and not self._server.is_serving():
            return False  # it came while the listener stopped
        evicted = self._strangers.admit(stream, address).evicted
        if evicted is not None:
            evicted.cut("too many connections that have not proved themselves")
        self._known.add(stream)
        return True

    def opened(self, stream: Stream) -> None:
        """Note that the peer of a stream has proved that it knows the token."""
        self._strangers.remove(stream)
        self._open.add(stream)
        if self._on_open:
            self._on_open(stream)

    def lost(self, stream: "_Accepted") -> None:
        """Note that a connection has ended."""
        self._strangers.remove(stream)
        self._known.discard(stream)
        if not stream.peer:
            self._log_refusal(stream.remote, stream.reason)
        self._open.discard(stream)

    def _log_refusal(self, remote: str, reason: str) -> None:
        listener = f"the stream listener of {self._name or 'this process'}"
        # One subject for all: strangers may come from many addresses.
        self._refusals.add("refused", f"{listener} refused {remote}: {reason}")


class _Accepted(Stream):
    """A stream that tells its listener when it comes and goes."""

    def __init__(
        self,
        listener: Listener,
        handshake: Handshake,
        on_message: OnMessage,
        receives: Receives,
        options: StreamOptions,
    ) -> None:
        super().__init__(handshake, on_message, receives, options, listener.opened)
        self._listener = listener

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        peer = transport.get_extra_info("peername") or ("",)  # nothing if it has gone already
        if not self._listener.admit(self, peer[0]):
            self.cut("the listener stops")

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._listener.lost(self)
