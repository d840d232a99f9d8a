"""Accepts connections: limits their number, and does the TLS handshake."""

import asyncio
import logging
import socket

from dzflow.aio import BackgroundTasks
from dzflow.process.limited_log import LimitedLog
from sdn.openflow.connections.arrivals import Arrival, Arrivals, address_of
from sdn.openflow.connections.connection import ConnectionOwner, SwitchConnection
from sdn.openflow.options import DriverOptions

log = logging.getLogger(__name__)

BACKLOG = 128
ACCEPTED_AT_ONCE = 16  # before the event loop does something else
PAUSE = 1.0  # seconds, when the process has no file descriptor left
_NO_ROOM = "too many connections: the one goes that has not finished its handshake for longest"


class SwitchListener:
    """Listens at the address of the options; each connection reports to `owner`."""

    def __init__(
        self,
        options: DriverOptions,
        arrivals: Arrivals,
        owner: ConnectionOwner,
        tasks: BackgroundTasks,
    ) -> None:
        self._options = options
        self._arrivals = arrivals
        self._owner = owner
        self._tasks = tasks
        self._refused = LimitedLog(log, logging.WARNING, options.admission.log_every)
        self._sockets: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._held: dict[Arrival, asyncio.Task[None]] = {}

    async def start(self) -> int:
        """Listen; returns the port."""
        options = self._options
        found = await asyncio.get_running_loop().getaddrinfo(
            options.host, options.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, _, _, _, address in dict.fromkeys(found):
            listening = socket.create_server(address, family=family, backlog=BACKLOG)
            listening.setblocking(False)
            # Accepted sockets inherit it. Without it, a flow-mod may wait 40 ms for the
            # acknowledgement of the one before. uvloop sets it on every socket, asyncio does not.
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._sockets.append(listening)
        for listening in self._sockets:
            self._accepting.append(self._tasks.spawn(self._accept(listening), "accept switches"))
        port: int = self._sockets[0].getsockname()[1]
        return port

    async def stop(self) -> None:
        """Accept no more connections, and end all."""
        tasks = [*self._accepting, *self._held.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for listening in self._sockets:
            listening.close()

    async def _accept(self, listening: socket.socket) -> None:
        # Not by `loop.sock_accept`: cancelled in the wrong moment, it loses a connection.
        loop = asyncio.get_running_loop()
        waiting = asyncio.Event()
        while True:
            loop.add_reader(listening, waiting.set)
            try:
                await waiting.wait()
            finally:
                loop.remove_reader(listening)
            waiting.clear()
            try:
                self._accept_waiting(listening)
            except OSError as error:
                self._refused.add("accept", f"switches cannot connect: {error}")
                await asyncio.sleep(PAUSE)

    def _accept_waiting(self, listening: socket.socket) -> None:
        """Accept the connections that wait, but not so many that others have to."""
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                sock, peer = listening.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            sock.setblocking(False)
            self._arrived(sock, address_of(peer[0]))

    def _arrived(self, sock: socket.socket, address: str) -> None:
        arrival = Arrival(address)
        if victim := self._arrivals.add(arrival, asyncio.get_running_loop().time()):
            self._refused.add(victim.address, f"closed one from {victim.address}: {_NO_ROOM}")
            if victim is arrival:
                sock.close()
                return
            self._held[victim].cancel()
        connection = SwitchConnection(self._owner, self._options, arrival)
        held = self._tasks.spawn(self._hold(sock, connection), "connection of a switch")
        self._held[arrival] = held
        # Not in the task itself: if it is cancelled before its first step, none of it runs.
        held.add_done_callback(lambda _: self._ended(sock, connection))

    async def _hold(self, sock: socket.socket, connection: SwitchConnection) -> None:
        """Do the TLS handshake, and wait until the connection is closed."""
        tls = self._options.tls
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                sock,
                ssl=tls,
                ssl_handshake_timeout=self._options.admission.handshake_timeout if tls else None,
            )
            await connection.gone.wait()
        except OSError as error:  # TimeoutError and those of TLS are OSErrors, too
            connection.close(f"the TLS handshake failed: {error}")

    def _ended(self, sock: socket.socket, connection: SwitchConnection) -> None:
        arrival = connection.arrival
        connection.close(_NO_ROOM)  # its task was cancelled, if it is not closed
        sock.close()
        del self._held[arrival]
        self._arrivals.remove(arrival)
        if not arrival.admitted:
            self._arrivals.failed(arrival.address, asyncio.get_running_loop().time())
            refused = f"a connection from {arrival.address} was not admitted"
            self._refused.add(arrival.address, f"{refused}: {connection.lost}")
