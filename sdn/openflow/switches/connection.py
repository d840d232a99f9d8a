"""One connection from a switch: moves bytes between a socket and a session, and awaits answers."""

import asyncio
from collections.abc import Callable, Sequence
from typing import cast

from dzflow.errors import DzflowError
from sdn.flows import FlowOp, GroupOp
from sdn.openflow.protocol.constants import Role, Type
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
from sdn.openflow.protocol.session import Sent, Session

_HIGH_WATER = 1 << 18  # bytes that the socket has not taken

Answer = (
    BarrierReply | EchoReply | FlowStats | GroupDescs | GroupFeatures | RoleReply | TableFeatures
)


class ConnectionLost(DzflowError):
    """The connection ended before the answer came."""


class Refused(DzflowError):
    """The switch answered with an error; `error` is it."""

    def __init__(self, error: SwitchError) -> None:
        super().__init__(error.text)
        self.error = error


class Run:
    """Operations under way, acknowledged by one barrier.

    `finished` is called once: when the barrier is answered, or with the reason why it never will.
    """

    __slots__ = ("errors", "finished", "sent")

    def __init__(self, sent: Sent, finished: "Finished") -> None:
        self.sent = sent
        self.finished = finished
        self.errors: dict[int, SwitchError] = {}  # by place in the run


Finished = Callable[[Run, str | None], None]


class Connection(asyncio.Protocol):
    """A session with its socket; everything the switch says unasked goes to `on_event`.

    `on_made` is called when it stands, `on_writable` when it can be sent more after it could not.
    """

    def __init__(
        self,
        on_event: Callable[[Event], None],
        timeout: float,
        on_made: Callable[["Connection"], None],
    ) -> None:
        self.session = Session()
        self.timeout = timeout
        self.writable = True  # whether the socket takes what is sent
        self.on_writable: Callable[[], None] = _nothing
        self._on_event = on_event
        self._on_made = on_made
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, asyncio.Future[list[Answer]]] = {}
        self._parts: dict[int, list[Answer]] = {}
        self._runs: dict[int, Run] = {}  # by the xid of their barrier, in the order of sending
        self._ready: asyncio.Future[Ready] = asyncio.get_running_loop().create_future()
        self.lost: str | None = None
        self.ended = asyncio.Event()  # nothing can be asked any more
        self.gone = asyncio.Event()  # the socket is closed

    async def ready(self) -> Ready:
        """Wait until the switch has introduced itself."""
        async with asyncio.timeout(self.timeout):
            return await asyncio.shield(self._ready)

    def close(self, reason: str) -> None:
        """End the connection from our side."""
        self._lose(reason)
        if self._transport:
            self._transport.abort()

    # What the loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection stands; greet the switch."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_HIGH_WATER)
        self._on_made(self)
        self._flush()

    def data_received(self, data: bytes) -> None:
        """Take up what the switch says."""
        if self.lost is not None:
            return
        for event in self.session.feed(data):
            self._handle(event)
        self._flush()
        if self.lost is not None:  # what is to be said about it is sent before the end
            assert self._transport
            self._transport.close()
            asyncio.get_running_loop().call_later(self.timeout, self._transport.abort)

    def eof_received(self) -> None:
        """The switch says nothing more; the loop closes the connection then."""
        for event in self.session.eof():
            self._handle(event)

    def connection_lost(self, error: Exception | None) -> None:
        """The socket is closed."""
        self._lose(f"the connection broke: {error}" if error else "the connection was closed")
        self.gone.set()

    def pause_writing(self) -> None:
        """The switch takes up less than it is sent."""
        self.writable = False

    def resume_writing(self) -> None:
        """It has caught up."""
        self.writable = True
        self.on_writable()

    # Asking

    def send_ops(self, ops: Sequence[FlowOp], finished: Finished) -> None:
        """Send flow operations and a barrier; `finished` is called when that is answered."""
        sent = self._live.send_ops(ops)
        self._runs[sent.barrier_xid] = Run(sent, finished)
        self._flush()

    async def barrier(self) -> None:
        """Wait until the switch has carried out what was sent."""
        await self._finished(self._live.send_ops(()))

    async def group_ops(self, ops: Sequence[GroupOp]) -> Run:
        """Carry out operations on groups; wait for the barrier."""
        return await self._finished(self._live.send_group_ops(ops))

    async def removals(self, stats: Sequence[FlowStat]) -> Run:
        """Remove entries that are of no form we write; wait for the barrier."""
        return await self._finished(self._live.send_removals(stats))

    async def role(self, role: Role, generation: int) -> RoleReply:
        """Ask for a role; Refused if the generation is stale."""
        (reply,) = await self._answer(self._live.request_role(role, generation))
        assert isinstance(reply, RoleReply)
        return reply

    async def flow_stats(self) -> list[FlowStat]:
        """Our entries as the switch has them, after all that was sent before."""
        self._live.send_barrier()  # what was sent before is in the tables
        found: list[FlowStat] = []
        for part in await self._answer(self._live.request_flow_stats()):
            assert isinstance(part, FlowStats)
            found += part.entries
        return found

    async def group_descs(self) -> tuple[GroupDesc, ...]:
        """All groups of the switch."""
        (reply,) = await self._answer(self._live.request_group_desc())
        assert isinstance(reply, GroupDescs)
        return reply.groups

    async def group_features(self) -> GroupFeatures:
        """What groups the switch can have."""
        (reply,) = await self._answer(self._live.request_group_features())
        assert isinstance(reply, GroupFeatures)
        return reply

    async def table_features(self) -> TableFeatures:
        """What the tables of the switch can do."""
        (reply,) = await self._answer(self._live.request_table_features())
        assert isinstance(reply, TableFeatures)
        return reply

    def monitor(self, on: bool) -> None:
        """Be told of changes that others make to the tables (1.4), or no longer."""
        start, stop = self._live.start_flow_monitor, self._live.stop_flow_monitor
        xid = (start if on else stop)()
        # The answer may be empty and bring no event, so that nobody would notice it.
        self.session.forget(xid)
        self._flush()

    def tell(self, kind: Type, body: bytes) -> None:
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

    # Inside

    @property
    def _live(self) -> Session:
        """The session, as long as it can be asked."""
        if self.lost is not None:
            raise ConnectionLost(self.lost)
        return self.session

    async def _finished(self, sent: Sent) -> Run:
        """Wait for the barrier of what was just sent."""
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
        async with asyncio.timeout(self.timeout):
            return await done

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
        data = self.session.outgoing()
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
            case FlowStats(xid, _, False):
                self._parts.setdefault(xid, []).append(event)
            case FlowStats() | GroupDescs() | GroupFeatures() | TableFeatures():
                self._answered(event.xid, event)
            case RoleReply() | EchoReply():
                self._answered(event.xid, event)
            case Closed():
                self._lose(event.reason)
            case _:
                self._on_event(event)

    def _answered(self, xid: int, answer: Answer) -> None:
        future = self._waiting.get(xid)
        if future and not future.done():
            future.set_result([*self._parts.pop(xid, []), answer])

    def _refused(self, xid: int, error: SwitchError) -> None:
        future = self._waiting.get(xid)
        if future and not future.done():
            future.set_exception(Refused(error))
            return
        for run in self._runs.values():
            place = xid - run.sent.first_xid
            if 0 <= place < run.sent.barrier_xid - run.sent.first_xid:
                run.errors[place] = error
                return
        self._on_event(error)

    def _lose(self, reason: str) -> None:
        if self.lost is None:
            self.lost = reason
            self.ended.set()
            lost = ConnectionLost(reason)
            if not self._ready.done():
                self._ready.set_exception(lost)
                self._ready.exception()  # somebody may or may not be waiting for it
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(lost)
            runs, self._runs = self._runs, {}
            for run in runs.values():
                run.finished(run, reason)


def _nothing() -> None:
    """What is done when nobody waits to send."""
