"""The server that switches connect to: handshake, keep-alive, and the end of each connection."""

import asyncio
from collections.abc import Callable
from functools import cached_property
from typing import Protocol

from dzflow.aio import BackgroundTasks
from sdn.openflow.connections.arrivals import Arrival, Arrivals
from sdn.openflow.connections.claims import ClaimRefused
from sdn.openflow.connections.connection import ConnectionLost, RequestRefused, SwitchConnection
from sdn.openflow.connections.listener import SwitchListener
from sdn.openflow.options import DriverOptions
from sdn.openflow.protocol.events import Event, PortChanged, Ready
from sdn.tables.flows import Change

MAX_PORTS = 10_000  # of a switch that have come or changed since the handshake


class SwitchPeer:
    """The switch at the other end of a connection: what it has said about itself so far."""

    def __init__(
        self, connection: SwitchConnection, on_admitted: Callable[[Arrival], None]
    ) -> None:
        self.connection = connection
        self.ready: Ready | None = None  # what it said in the handshake
        self._on_admitted = on_admitted
        self._changed_ports: dict[int, bool] = {}  # since the handshake: up or down

    def admit(self) -> None:
        """Keep the connection from now on, even if there are too many: a switch uses it."""
        self._on_admitted(self.connection.arrival)

    @property
    def ports(self) -> dict[int, bool]:
        """All ports of the switch by number: up or down."""
        known = self.ready.ports if self.ready else ()
        return {port.number: port.up for port in known if port.real} | self._changed_ports

    def note_port(self, event: PortChanged, declared: bool) -> bool:
        """Keep a change of a port; returns whether the port is up.

        A port that is gone is forgotten, unless it was there at the handshake or is `declared`, in
        the topology: container ports come and go on a hypervisor for as long as it runs.
        """
        number, gone = event.port.number, event.change is Change.DELETE
        up = event.port.up and not gone
        if gone and not declared and self.ready and number not in self._first_ports:
            self._changed_ports.pop(number, None)
            return False
        self._changed_ports[number] = up
        if len(self._changed_ports) > MAX_PORTS:
            self.connection.close(f"more than {MAX_PORTS} ports")
        return up

    @cached_property
    def _first_ports(self) -> frozenset[int]:
        """The ports of the handshake, which has to be complete."""
        assert self.ready
        return frozenset(port.number for port in self.ready.ports)


class SwitchHandler(Protocol):
    """Works with the switches that connect."""

    def echo_every(self, ready: Ready) -> float:
        """How often a switch that has connected is asked for a sign of life."""

    async def serve(self, peer: SwitchPeer, ready: Ready) -> None:
        """Work with a switch until its connection ends, or it cannot be used."""

    def event_received(self, peer: SwitchPeer, event: Event) -> None:
        """A switch has sent something that is no answer to a request."""

    def writing_resumed(self, peer: SwitchPeer) -> None:
        """A switch can be sent more, after it could not."""

    def switch_count(self) -> int:
        """How many switches the network has."""


class SwitchServer:
    """Accepts connections from switches; `port` is the real port once it has started."""

    def __init__(
        self, handler: SwitchHandler, options: DriverOptions, tasks: BackgroundTasks
    ) -> None:
        self.port = options.port
        self._handler = handler
        self._options = options
        self._tasks = tasks
        self._arrivals = Arrivals(options.admission, handler.switch_count)
        self._listener = SwitchListener(options, self._arrivals, self, tasks)
        self._stopping = False
        self._peers: dict[SwitchConnection, SwitchPeer] = {}
        self._serving: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen for switches."""
        self.port = await self._listener.start()

    async def stop(self) -> None:
        """Close the port and all connections."""
        self._stopping = True
        for connection in list(self._peers):
            connection.close("the driver stops")
        await self._listener.stop()
        # These tasks end by themselves when their connections have ended.
        await asyncio.gather(*self._serving, return_exceptions=True)

    # What connections report

    def connection_made(self, connection: SwitchConnection) -> None:
        """A switch has connected."""
        if self._stopping:
            connection.close("the driver stops")
            return
        peer = self._peers[connection] = SwitchPeer(connection, self._arrivals.admit)
        task = self._tasks.spawn(self._serve(peer), "connection of a switch")
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    def event_received(self, connection: SwitchConnection, event: Event) -> None:
        """A switch has sent something that is no answer to a request."""
        if peer := self._peers.get(connection):
            self._handler.event_received(peer, event)

    def writing_resumed(self, connection: SwitchConnection) -> None:
        """A switch has caught up after it read too slowly."""
        if peer := self._peers.get(connection):
            self._handler.writing_resumed(peer)

    # One connection

    async def _serve(self, peer: SwitchPeer) -> None:
        connection = peer.connection
        try:
            peer.ready = await connection.ready()
            every = self._handler.echo_every(peer.ready)
            keeping_alive = self._tasks.spawn(self._keep_alive(connection, every), "keep-alive")
            try:
                await self._handler.serve(peer, peer.ready)
            finally:
                keeping_alive.cancel()
        except (ClaimRefused, ConnectionLost, RequestRefused, TimeoutError) as error:
            connection.close(str(error) or "no answer in time")
        finally:
            connection.close("the driver has ended the connection")
            await connection.gone.wait()
            self._peers.pop(connection, None)

    async def _keep_alive(self, connection: SwitchConnection, every: float) -> None:
        while True:
            await asyncio.sleep(every)
            try:
                await connection.echo()
            except (ConnectionLost, RequestRefused, TimeoutError):
                connection.close(f"no sign of life within {connection.timeout:g} s")
                return
