"""Keeps an emulated switch connected to its controllers, over TCP or TLS."""

import asyncio
import ssl
from collections.abc import Callable, Sequence
from typing import cast

from msgspec import Struct

from dzflow.aio import OncePerTurn
from sdn.emulator.connection import ControllerConnection
from sdn.emulator.datapath import Frames
from sdn.emulator.switch import EmulatedSwitch
from sdn.openflow.protocol.constants import Type
from sdn.openflow.protocol.wire import message

Address = tuple[str, int]
Carry = Callable[[str, Frames], None]
"""Carries frames that leave the named switch."""

MakeSwitch = Callable[[Callable[[], None]], EmulatedSwitch]
"""Makes a switch, from what it calls when it has work that nothing from outside has caused."""


class Dialling(Struct, frozen=True):
    """How controllers are reached; all times are in seconds.

    A switch sends an echo request to a controller that was silent for `probe_every`, and closes the
    connection if it is silent for as long again.
    """

    tls: ssl.SSLContext | None = None
    server_name: str | None = None
    timeout: float = 5.0
    first_retry: float = 0.05
    longest_retry: float = 1.0
    probe_every: float = 15.0


class Agent:
    """Keeps one switch connected; `reached` is set while it has a controller."""

    def __init__(
        self,
        make_switch: MakeSwitch,
        controllers: Sequence[Address],
        carry: Carry,
        dialling: Dialling | None = None,
    ) -> None:
        self.switch = make_switch(self._wake)
        self.reached = asyncio.Event()
        self._controllers = tuple(controllers)
        self._carry = carry
        self._dialling = dialling or Dialling()
        self._wanted = asyncio.Event()  # cleared while the switch stays away
        self._wanted.set()
        self._channels: list[_Channel] = []
        self._dials: dict[Address, asyncio.Task[None]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._return: asyncio.TimerHandle | None = None
        self._work = OncePerTurn(self._do_work)
        self._started = False

    def start(self) -> None:
        """Connect to all controllers, and again whenever a connection is lost."""
        self._started = True
        self.set_controllers(self._controllers)

    def set_controllers(self, controllers: Sequence[Address]) -> None:
        """Connect to exactly these controllers from now on."""
        for address in self._dials.keys() - set(controllers):
            self._dials[address].cancel()
            self._tasks.append(self._dials.pop(address))
        self._tasks = [task for task in self._tasks if not task.done()]
        for address in controllers:
            if address not in self._dials:
                self._dials[address] = asyncio.create_task(
                    self._keep_connected(address), name=f"{self.switch.name} dials"
                )

    def _wake(self) -> None:
        if self._started:
            self._work.schedule()

    async def stop(self) -> None:
        """End all connections, and wait until they are closed."""
        tasks = [*self._dials.values(), *self._tasks]
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        channels = list(self._channels)
        for channel in channels:
            channel.abort()
        async with asyncio.timeout(self._dialling.timeout):
            for channel in channels:
                await channel.ended.wait()
        for timer in (self._timer, self._return):
            if timer is not None:
                timer.cancel()
        for end in ends:
            if isinstance(end, Exception):  # other than being cancelled
                raise end

    def drop(self, seconds: float | None = None) -> None:
        """Lose all connections and stay away for a time, or until `come_back`."""
        self._wanted.clear()
        self._cancel_return()
        if seconds is not None:
            self._return = asyncio.get_running_loop().call_later(seconds, self.come_back)
        for channel in list(self._channels):
            channel.abort()

    def come_back(self) -> None:
        """Connect again."""
        self._cancel_return()
        self._wanted.set()

    def restart(self, keep_tables: bool = False, seconds: float | None = 0.0) -> None:
        """Restart the switch, with empty tables unless they are kept, and stay away for a time."""
        self.switch.restart(keep_tables)
        self.drop(seconds)

    def _cancel_return(self) -> None:
        if self._return is not None:
            self._return.cancel()
            self._return = None

    async def _keep_connected(self, address: Address) -> None:
        delay = self._dialling.first_retry
        while True:
            await self._wanted.wait()
            channel = await self._dial(address)
            if channel is not None:
                try:
                    await channel.ended.wait()
                except asyncio.CancelledError:
                    channel.abort()
                    raise
            if channel is not None and channel.connection.version:
                delay = self._dialling.first_retry
                continue
            # Switches that lost the same controller do not all come back at the same moment.
            await asyncio.sleep(delay * (0.5 + self.switch.dpid % 32 / 32))
            delay = min(2 * delay, self._dialling.longest_retry)

    async def _dial(self, address: Address) -> "_Channel | None":
        dialling = self._dialling
        try:
            async with asyncio.timeout(dialling.timeout):
                _, channel = await asyncio.get_running_loop().create_connection(
                    lambda: _Channel(self, dialling.probe_every),
                    *address,
                    ssl=dialling.tls,
                    server_hostname=dialling.server_name if dialling.tls else None,
                )
        except (OSError, TimeoutError):  # no controller there yet, or no agreement: try later
            return None
        if not self._wanted.is_set():
            channel.abort()
        return channel

    # Reports of the channels.

    def channel_opened(self, channel: "_Channel") -> ControllerConnection:
        """A controller is connected."""
        self._channels.append(channel)
        return self.switch.connect()

    def received(self, connection: ControllerConnection, data: bytes) -> None:
        """A controller has sent something."""
        self._send_results(self.switch.feed(connection, data, asyncio.get_running_loop().time()))

    def congested(self, connection: ControllerConnection, congested: bool) -> None:
        """A controller reads too slowly, or has caught up."""
        self.switch.congested(connection, congested)
        self._work.schedule()

    def channel_closed(self, channel: "_Channel") -> None:
        """A controller has disconnected."""
        self._channels.remove(channel)
        self.switch.disconnect(channel.connection)
        self._note_reached()

    def _do_work(self) -> None:
        """Do what is due, though no controller has just sent anything."""
        frames = self.switch.tick(asyncio.get_running_loop().time())
        for channel in list(self._channels):
            if channel.connection.stalled and not channel.connection.congested:
                now = asyncio.get_running_loop().time()
                frames += self.switch.feed(channel.connection, b"", now)
        self._send_results(frames)

    def _send_results(self, frames: Frames) -> None:
        """Send all answers and frames, and set the timer for the next work."""
        busy = self.switch.busy
        for channel in list(self._channels):
            channel.flush()
            channel.read(not busy and not channel.connection.congested)
            if channel.connection.stalled and not channel.connection.congested:
                self._work.schedule()
        self._note_reached()
        if frames:
            self._carry(self.switch.name, frames)
        self._schedule()

    def _note_reached(self) -> None:
        if any(channel.connection.ready for channel in self._channels):
            self.reached.set()
        else:
            self.reached.clear()

    def _schedule(self) -> None:
        wake_at = self.switch.wake_at
        if self._timer is not None:
            if wake_at == self._timer.when() and not self._timer.cancelled():
                return
            self._timer.cancel()
            self._timer = None
        if wake_at is not None:
            self._timer = asyncio.get_running_loop().call_at(wake_at, self._timer_expired)

    def _timer_expired(self) -> None:
        # A loop may be early by a fraction of a millisecond: then the timer is set again.
        self._timer = None
        self._do_work()


class _Channel(asyncio.Protocol):
    """One connection to a controller."""

    transport: asyncio.Transport
    connection: ControllerConnection

    def __init__(self, agent: Agent, probe_every: float) -> None:
        self.ended = asyncio.Event()
        self._agent = agent
        self._probe_every = probe_every
        self._heard = True
        self._reading = True
        self._probe: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio.Transport.
        self.transport = cast("asyncio.Transport", transport)
        self.connection = self._agent.channel_opened(self)
        self.flush()
        self._wait_for_message()

    def data_received(self, data: bytes) -> None:
        self._heard = True
        self._agent.received(self.connection, data)

    def pause_writing(self) -> None:
        self._agent.congested(self.connection, True)

    def resume_writing(self) -> None:
        self._agent.congested(self.connection, False)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        if self._probe is not None:
            self._probe.cancel()
        self._agent.channel_closed(self)
        self.ended.set()

    def flush(self) -> None:
        """Send all messages that wait."""
        data = self.connection.outgoing()
        if data and not self.transport.is_closing():
            self.transport.write(data)
        if self.connection.closed is not None:
            self.transport.close()

    def read(self, wanted: bool) -> None:
        """Read from the controller, or pause."""
        if wanted != self._reading and not self.transport.is_closing():
            self._reading = wanted
            if wanted:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()

    def abort(self) -> None:
        """End the connection at once."""
        self.transport.abort()

    def _wait_for_message(self) -> None:
        self._heard = False
        loop = asyncio.get_running_loop()
        self._probe = loop.call_later(self._probe_every, self._probe_if_silent)

    def _probe_if_silent(self) -> None:
        if self._heard or not self._reading:
            self._wait_for_message()
        elif self.connection.ready:
            self.connection.send(message(self.connection.version, Type.ECHO_REQUEST, 0))
            self.flush()
            loop = asyncio.get_running_loop()
            self._probe = loop.call_later(self._probe_every, self._close_if_silent)
        else:
            self.abort()

    def _close_if_silent(self) -> None:
        if self._heard:
            self._wait_for_message()
        else:
            self.abort()
