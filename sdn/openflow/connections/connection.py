"""One connection from a switch: moves bytes between socket and session, and awaits answers."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Protocol, cast

from dzflow.errors import DzflowError
from sdn.openflow.connections.arrivals import Arrival
from sdn.openflow.connections.certificates import named_dpids
from sdn.openflow.connections.reading_pace import ReadingPace
from sdn.openflow.options import DriverOptions
from sdn.openflow.protocol.constants import ALL_TABLES, Role, Type
from sdn.openflow.protocol.events import (
    BarrierReply,
    Closed,
    EchoReply,
    Event,
    FlowStats,
    GroupDescs,
    GroupFeatures,
    Ready,
    RoleReply,
    SwitchError,
    TableFeatures,
)
from sdn.openflow.protocol.messages import FlowStat, GroupDesc
from sdn.openflow.protocol.pending import TooManyRequests
from sdn.openflow.protocol.session import Sent, Session
from sdn.tables.flows import FlowOp, GroupOp

_HIGH_WATER = 1 << 18  # bytes that the socket has not taken
_GRACE = 0.2  # seconds to read what came while this process itself stood still

Answer = (
    BarrierReply | EchoReply | FlowStats | GroupDescs | GroupFeatures | RoleReply | TableFeatures
)


class ConnectionLost(DzflowError):
    """The connection ended before the answer came."""


class RequestRefused(DzflowError):
    """The switch answered a request with `error`."""

    def __init__(self, error: SwitchError) -> None:
        super().__init__(error.text)
        self.error = error


class Run:
    """Operations in progress that one barrier acknowledges.

    `finished` is called once: when the barrier is answered, or with the reason why it will not be.
    """

    __slots__ = ("errors", "finished", "sent")

    def __init__(self, sent: Sent, finished: "Finished") -> None:
        self.sent = sent
        self.finished = finished
        self.errors: dict[int, SwitchError] = {}  # by position in the run


Finished = Callable[[Run, str | None], None]


class ConnectionOwner(Protocol):
    """Gets the events of a connection."""

    def connection_made(self, connection: "SwitchConnection") -> None:
        """The connection is open."""

    def event_received(self, connection: "SwitchConnection", event: Event) -> None:
        """The switch has sent something that is no answer to a request."""

    def writing_resumed(self, connection: "SwitchConnection") -> None:
        """The switch has caught up after the connection was not writable."""


class SwitchConnection(asyncio.Protocol):
    """A session with its socket.

    `lost` has the reason when the connection has ended. `writable` is False while the switch reads
    more slowly than it is sent messages.
    """

    def __init__(self, owner: ConnectionOwner, options: DriverOptions, arrival: Arrival) -> None:
        self.session = Session()
        self.timeout = options.timeout
        self.arrival = arrival
        self.writable = True
        self._owner = owner
        self._tls = options.tls is not None
        self._handshake_timeout = min(options.timeout, options.admission.handshake_timeout)
        self._pace = ReadingPace(options.admission.message_rate)
        self._unasked = 0  # events since the last bytes that no request has asked for
        self._resuming: asyncio.TimerHandle | None = None  # set while nothing is read
        self._sign_of_life: asyncio.Future[bool] | None = None
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, asyncio.Future[list[Answer]]] = {}  # by xid
        self._parts: dict[int, list[Answer]] = {}
        self._runs: dict[int, Run] = {}  # by the xid of their barrier, in the order of sending
        self._ready: asyncio.Future[Ready] = asyncio.get_running_loop().create_future()
        self.lost: str | None = None
        self.ended = asyncio.Event()  # no request is possible any more
        self.gone = asyncio.Event()  # the socket is closed

    async def ready(self) -> Ready:
        """Wait for the end of the handshake: what the switch says about itself."""
        async with asyncio.timeout(self._handshake_timeout):
            return await asyncio.shield(self._ready)

    @property
    def named_dpids(self) -> frozenset[int] | None:
        """The datapath ids that the switch's certificate names; None without TLS."""
        if not self._tls:
            return None
        assert self._transport
        return named_dpids(self._transport.get_extra_info("peercert") or {})

    async def is_alive(self, within: float) -> bool:
        """Whether the switch sends anything within so many seconds after an echo request.

        Not only the echo counts: a slow switch may have many flow-mods to carry out before it.
        """
        if self.lost is not None or self._resuming:
            return self.lost is None  # what is not read now, has been sent
        with contextlib.suppress(TooManyRequests):  # then any other answer will do
            self.session.forget(self._live.request_echo())
        self._flush()
        sign: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._sign_of_life = sign
        try:
            for seconds in (within, _GRACE):
                await asyncio.wait([sign], timeout=seconds)
                if sign.done():
                    return sign.result()
            return False
        finally:
            self._sign_of_life = None

    def close(self, reason: str) -> None:
        """End the connection from our side."""
        self._lose(reason)
        if self._transport:
            self._transport.abort()

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is connected; send hello to the switch."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_HIGH_WATER)
        if self.lost is not None:
            self._transport.abort()
            return
        self._owner.connection_made(self)
        self._flush()

    def data_received(self, data: bytes) -> None:
        """Handle messages of the switch."""
        if self.lost is not None:
            return
        if self._sign_of_life and not self._sign_of_life.done():
            self._sign_of_life.set_result(True)
        for event in self.session.feed(data):
            self._handle(event)
        self._flush()
        if self._unasked or self.session.ignored:
            self._slow_down()
        if self.lost is not None:  # an error message for the switch is sent before the end
            assert self._transport
            if not self.writable:  # it does not read
                self._transport.abort()
                return
            self._transport.close()
            asyncio.get_running_loop().call_later(self.timeout, self._transport.abort)

    def eof_received(self) -> None:
        """The switch has closed its side; the event loop closes the connection then."""
        for event in self.session.eof():
            self._handle(event)

    def connection_lost(self, error: Exception | None) -> None:
        """The socket is closed."""
        self._lose(f"the connection broke: {error}" if error else "the connection was closed")
        self.gone.set()

    def pause_writing(self) -> None:
        """The switch reads more slowly than it is sent messages."""
        self.writable = False

    def resume_writing(self) -> None:
        """The switch has caught up."""
        self.writable = True
        self._flush()
        self._owner.writing_resumed(self)

    # Requests

    def send_ops(self, ops: Sequence[FlowOp], finished: Finished) -> None:
        """Send flow operations and a barrier; `finished` is called when the barrier is answered."""
        sent = self._live.send_ops(ops)
        self._runs[sent.barrier_xid] = Run(sent, finished)
        self._flush()

    async def barrier(self) -> None:
        """Wait until the switch has carried out all messages that were sent."""
        await self._barrier_reply(self._live.send_ops(()))

    async def group_ops(self, ops: Sequence[GroupOp]) -> Run:
        """Carry out operations on groups; wait for the barrier."""
        return await self._barrier_reply(self._live.send_group_ops(ops))

    async def removals(self, stats: Sequence[FlowStat]) -> Run:
        """Remove entries in a form that we never write; wait for the barrier."""
        return await self._barrier_reply(self._live.send_removals(stats))

    async def role(self, role: Role, generation: int) -> RoleReply:
        """Request a role; RequestRefused if the generation is stale."""
        (reply,) = await self._answer(self._live.request_role(role, generation))
        assert isinstance(reply, RoleReply)
        if reply.role is not role:
            raise ConnectionLost(
                f"asked for the role {role.name}, the switch gave {reply.role.name}"
            )
        return reply

    async def flow_stats(self, table: int = ALL_TABLES) -> list[FlowStat]:
        """Our entries as the switch has them, after all messages that were sent before."""
        barrier = self._live.send_barrier()  # then all earlier flow-mods are in the tables
        found: list[FlowStat] = []
        try:
            for part in await self._answer(self._live.request_flow_stats(table=table)):
                assert isinstance(part, FlowStats)
                found += part.entries
        finally:
            self.session.forget(barrier)
        return found

    async def group_descs(self) -> tuple[GroupDesc, ...]:
        """All groups of the switch."""
        (reply,) = await self._answer(self._live.request_group_desc())
        assert isinstance(reply, GroupDescs)
        return reply.groups

    async def group_features(self) -> GroupFeatures:
        """The features of groups."""
        (reply,) = await self._answer(self._live.request_group_features())
        assert isinstance(reply, GroupFeatures)
        return reply

    async def table_features(self) -> TableFeatures:
        """The features of tables."""
        (reply,) = await self._answer(self._live.request_table_features())
        assert isinstance(reply, TableFeatures)
        return reply

    def monitor(self, on: bool) -> None:
        """Start or stop the flow monitor (1.4): events for table changes that others make."""
        start, stop = self._live.start_flow_monitor, self._live.stop_flow_monitor
        xid = (start if on else stop)()
        # The answer may be empty, and then it causes no event.
        self.session.forget(xid)
        self._flush()

    def send(self, kind: Type, body: bytes) -> None:
        """Send a message that has no answer."""
        self._live.send(kind, body)
        self._flush()

    async def echo(self) -> None:
        """Wait for a sign of life."""
        await self._answer(self._live.request_echo())

    def packet_out(self, port: int, data: bytes) -> None:
        """Send a packet out of a port."""
        self._live.packet_out(port, data)
        self._flush()

    # Internals

    @property
    def _live(self) -> Session:
        """The session; ConnectionLost if it is over."""
        if self.lost is not None:
            raise ConnectionLost(self.lost)
        return self.session

    async def _barrier_reply(self, sent: Sent) -> Run:
        """Wait for the barrier after the messages that were just sent."""
        done: asyncio.Future[Run] = asyncio.get_running_loop().create_future()

        def finished(run: Run, reason: str | None) -> None:
            if done.done():
                return
            if reason is None:
                done.set_result(run)
            else:
                done.set_exception(ConnectionLost(reason))

        self._runs[sent.barrier_xid] = Run(sent, finished)
        self._flush()
        try:
            async with asyncio.timeout(self.timeout):
                return await done
        finally:
            self._runs.pop(sent.barrier_xid, None)
            self.session.forget(sent.barrier_xid)

    async def _answer(self, xid: int) -> list[Answer]:
        future: asyncio.Future[list[Answer]] = asyncio.get_running_loop().create_future()
        self._waiting[xid] = future
        self._flush()
        try:
            async with asyncio.timeout(self.timeout):
                return await future
        finally:
            self._waiting.pop(xid, None)
            self._parts.pop(xid, None)
            self.session.forget(xid)

    def _flush(self) -> None:
        data = self.session.outgoing(taken=self.writable)
        if data and self._transport and not self._transport.is_closing():
            self._transport.write(data)

    def _handle(self, event: Event) -> None:
        if type(event) is BarrierReply:  # by far the most frequent
            if run := self._runs.pop(event.xid, None):
                run.finished(run, None)
            return
        match event:
            case Ready():
                self._ready.set_result(event)
            case SwitchError(xid):
                self._refused(xid, event)
            case FlowStats(xid, entries, False):
                if entries:
                    self._parts.setdefault(xid, []).append(event)
            case FlowStats() | GroupDescs() | GroupFeatures() | TableFeatures():
                self._answered(event.xid, event)
            case RoleReply() | EchoReply():
                self._answered(event.xid, event)
            case Closed():
                self._lose(event.reason)
            case _:
                self._unasked += 1
                self._owner.event_received(self, event)

    def _slow_down(self) -> None:
        """Read nothing for a while if the switch sends too much that nobody has asked for."""
        count = self._unasked + self.session.ignored
        self._unasked = self.session.ignored = 0
        loop = asyncio.get_running_loop()
        pause = self._pace.count(count, loop.time())
        if pause and self._transport and not self._transport.is_closing() and not self._resuming:
            self._transport.pause_reading()
            self._resuming = loop.call_later(pause, self._resume_reading)

    def _resume_reading(self) -> None:
        self._resuming = None
        if self._transport and not self._transport.is_closing():
            self._transport.resume_reading()

    def _answered(self, xid: int, answer: Answer) -> None:
        future = self._waiting.get(xid)
        if future and not future.done():
            future.set_result([*self._parts.pop(xid, []), answer])

    def _refused(self, xid: int, error: SwitchError) -> None:
        future = self._waiting.get(xid)
        if future and not future.done():
            future.set_exception(RequestRefused(error))
            return
        for run in self._runs.values():
            position = xid - run.sent.first_xid
            if 0 <= position < run.sent.barrier_xid - run.sent.first_xid:
                run.errors[position] = error
                return
        self._unasked += 1
        self._owner.event_received(self, error)

    def _lose(self, reason: str) -> None:
        if self.lost is None:
            self.lost = reason
            self.ended.set()
            if self._resuming:
                self._resuming.cancel()
            if self._sign_of_life and not self._sign_of_life.done():
                self._sign_of_life.set_result(False)
            lost = ConnectionLost(reason)
            if not self._ready.done():
                self._ready.set_exception(lost)
                self._ready.exception()  # marks it as retrieved: there may be no caller that waits
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(lost)
            runs, self._runs = self._runs, {}
            for run in runs.values():
                run.finished(run, reason)
