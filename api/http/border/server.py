"""The HTTP server: uvicorn, with connections that are accepted within limits."""

import logging
import math
import resource
import socket as sockets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn

from api.http.app_settings import ApiSettings
from api.http.border.acceptor import Acceptor
from api.http.border.http_protocol import Protocol
from dzflow.process.connections import ConnectionLimits, ConnectionTable

log = logging.getLogger("dzflow.api")

_BACKLOG = 4096  # connections that wait to be accepted; the kernel has a limit of its own
_OTHER_FILES = 256  # file descriptors for everything that is not a connection of a client


def _nobody() -> None:
    """Tell nobody."""


class Server(uvicorn.Server):
    """Serves an application on sockets that are bound already; leaves signals to others.

    `listening` is called when it listens. `table` has the connections.
    """

    def __init__(
        self,
        app: Any,
        settings: ApiSettings,
        cert: Path | None = None,
        key: Path | None = None,
        listening: Callable[[], None] = _nobody,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                loop="none",
                http="httptools",
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                # Nobody but these is believed: not even processes of this machine.
                proxy_headers=bool(settings.proxies),
                forwarded_allow_ips=list(settings.proxies),
                timeout_keep_alive=settings.idle_timeout,
                timeout_graceful_shutdown=math.ceil(settings.drain),
                ssl_certfile=cert,
                ssl_keyfile=str(key) if key else None,
            )
        )
        self.table: ConnectionTable[Protocol] = ConnectionTable(
            ConnectionLimits(
                most=_affordable(settings.max_connections),
                most_of_address=settings.max_address_connections,
                reserve=settings.reserve,
                proxies=settings.proxies,
            )
        )
        self._settings = settings
        self._listening = listening
        self._acceptors: list[Acceptor[Protocol]] = []

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing about signals."""
        yield

    async def startup(self, sockets: list[sockets.socket] | None = None) -> None:
        """Start the application, then listen."""
        await super().startup([])  # without uvicorn's own servers
        if not self.started:
            return
        for socket in sockets or []:
            acceptor = Acceptor(
                socket,
                self.table,
                self._make_protocol,
                self.config.ssl,
                self._settings.head_timeout,
                self._prepare,
            )
            acceptor.start(_BACKLOG)
            self._acceptors.append(acceptor)
        self._listening()

    async def shutdown(self, sockets: list[sockets.socket] | None = None) -> None:
        """Accept no more connections, and finish the requests in progress."""
        for acceptor in self._acceptors:
            await acceptor.stop()
        await super().shutdown(sockets)

    def _make_protocol(self) -> Protocol:
        state = self.lifespan.state
        return Protocol(self.config, self.server_state, state, self._settings, self.table)

    def _prepare(self, accepted: sockets.socket) -> None:
        """Let the kernel end connections whose client has died, or reads nothing at all."""
        milliseconds = int(self._settings.send_timeout * 1_000)
        accepted.setsockopt(sockets.SOL_SOCKET, sockets.SO_KEEPALIVE, 1)
        accepted.setsockopt(sockets.IPPROTO_TCP, sockets.TCP_USER_TIMEOUT, milliseconds)


def _affordable(wanted: int) -> int:
    """So many connections, or as many as the process may have files for."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY or wanted + _OTHER_FILES <= files:
        return wanted
    fewer = max(1, files - _OTHER_FILES)
    log.warning("%d connections at most: `ulimit -n` allows %d files", fewer, files)
    return fewer
