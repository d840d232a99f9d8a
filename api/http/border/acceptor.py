"""Accepts connections within limits, also those whose TLS handshake never ends.

asyncio's own servers make a connection known only when its TLS handshake is complete: until then
nobody could count or close it.
"""

import asyncio
import errno
import logging
import socket as sockets
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from dzflow.process.connections import ConnectionTable

log = logging.getLogger(__name__)

_AT_ONCE = 64  # connections that are accepted in one turn of the event loop
_OUT_OF_FILES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_PAUSE = 0.5  # seconds until accepting is tried again then
_WARN_EVERY = 60.0  # seconds between warnings about full tables


class Guest(asyncio.Protocol, ABC):
    """The protocol of an accepted connection; it removes itself from the table when it is lost."""

    @abstractmethod
    def evict(self) -> None:
        """Close the connection at once: another one needs its place."""


G = TypeVar("G", bound=Guest)


class Acceptor(Generic[G]):
    """Accepts the connections of one socket from `start` to `stop`; `make` gives each a protocol.

    A TLS handshake may take `handshake` seconds. The caller owns the socket.
    """

    def __init__(
        self,
        listener: sockets.socket,
        table: ConnectionTable[G],
        make: Callable[[], G],
        tls: ssl.SSLContext | None = None,
        handshake: float | None = None,
        prepare: Callable[[sockets.socket], None] | None = None,
    ) -> None:
        self._listener = listener
        self._table = table
        self._make = make
        self._tls = tls
        self._handshake = handshake if tls else None
        self._prepare = prepare
        self._loop = asyncio.get_running_loop()
        self._connecting: dict[G, asyncio.Task[None]] = {}
        self._pause: asyncio.TimerHandle | None = None
        self._warned_at = -_WARN_EVERY

    def start(self, backlog: int) -> None:
        """Listen and accept."""
        self._listener.setblocking(False)
        self._listener.listen(backlog)
        self._loop.add_reader(self._listener, self._accept)

    async def stop(self) -> None:
        """Accept no more, and give up handshakes in progress."""
        self._loop.remove_reader(self._listener)
        if self._pause is not None:
            self._pause.cancel()
        tasks = list(self._connecting.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                accepted, peer = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _OUT_OF_FILES:
                    raise
                log.error("cannot accept connections for %g s: %s", _PAUSE, error.strerror)
                self._loop.remove_reader(self._listener)
                self._pause = self._loop.call_later(_PAUSE, self._resume)
                return
            self._admit(accepted, peer[0])

    def _resume(self) -> None:
        self._pause = None
        self._loop.add_reader(self._listener, self._accept)

    def _admit(self, accepted: sockets.socket, address: str) -> None:
        guest = self._make()
        found = self._table.admit(guest, address)
        if found.evicted is not None or not found.admitted:
            self._warn(address)
        if found.evicted is not None:
            self._evict(found.evicted)
        if not found.admitted:
            accepted.close()
            return
        accepted.setblocking(False)
        accepted.setsockopt(sockets.IPPROTO_TCP, sockets.TCP_NODELAY, 1)
        if self._prepare is not None:
            self._prepare(accepted)
        task = self._loop.create_task(self._connect(guest, accepted))
        self._connecting[guest] = task
        task.add_done_callback(partial(self._connected, guest, accepted))

    def _evict(self, guest: G) -> None:
        connecting = self._connecting.get(guest)
        if connecting is not None:
            connecting.cancel()
        else:
            guest.evict()

    async def _connect(self, guest: G, accepted: sockets.socket) -> None:
        await self._loop.connect_accepted_socket(
            lambda: guest, accepted, ssl=self._tls, ssl_handshake_timeout=self._handshake
        )

    def _connected(self, guest: G, accepted: sockets.socket, task: "asyncio.Task[None]") -> None:
        del self._connecting[guest]
        error = None if task.cancelled() else task.exception()
        if not task.cancelled() and error is None:
            return
        self._table.remove(guest)
        accepted.close()
        if isinstance(error, OSError):
            log.debug("a handshake failed, or took too long: %s", error)
        elif error is not None:
            log.error("a connection could not be made", exc_info=error)

    def _warn(self, address: str) -> None:
        """Report that connections are closed; not for each of them, there may be thousands."""
        now = self._loop.time()
        if now - self._warned_at >= _WARN_EVERY:
            self._warned_at = now
            host, port = self._listener.getsockname()[:2]
            text = (
                "%s:%d has %d connections, the limit (the last one is from %s): closing idle ones"
            )
            log.warning(text, host, port, len(self._table), address)
