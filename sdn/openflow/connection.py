"""One connection from a switch: moves bytes between a socket and a session, and awaits answers."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from dzflow.errors import DzflowError
from sdn.flows import FlowOp, GroupOp
from sdn.openflow.constants import Role, Type
from sdn.openflow.events import (
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
from sdn.openflow.messages import FlowStat, GroupDesc
from sdn.openflow.session import Sent, Session

_CHUNK = 1 << 16

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
    """Operations under way, acknowledged by one barrier."""

    __slots__ = ("done", "errors", "sent")

    def __init__(self, sent: Sent, done: "asyncio.Future[None]") -> None:
        self.sent = sent
        self.done = done
        self.errors: dict[int, SwitchError] = {}  # by place in the run


class Connection:
    """A session with its socket; everything the switch says unasked goes to `on_event`."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        on_event: Callable[[Event], None],
        timeout: float,
    ) -> None:
        self.session = Session()
        self.timeout = timeout
        self._reader = reader
        self._writer = writer
        self._on_event = on_event
        self._waiting: dict[int, asyncio.Future[list[Answer]]] = {}
        self._parts: dict[int, list[Answer]] = {}
        self._runs: dict[int, Run] = {}  # by the xid of their barrier, in the order of sending
        self._ready: asyncio.Future[Ready] = asyncio.get_running_loop().create_future()
        self.lost: str | None = None
        self.ended = asyncio.Event()

    async def ready(self) -> Ready:
        """Wait until the switch has introduced itself."""
        async with asyncio.timeout(self.timeout):
            return await asyncio.shield(self._ready)

    async def serve(self) -> str:
        """Read until the end; returns why it ended."""
        self._flush()
        reason = "the switch closed the connection"
        try:
            while not self.lost:
                data = await self._reader.read(_CHUNK)
                for event in self.session.feed(data) if data else self.session.eof():
                    self._handle(event)
                self._flush()
                if not data:
                    break
            reason = self.session.closed or reason
        except (OSError, EOFError) as error:
            reason = f"the connection broke: {error}"
        finally:
            self._lose(self.lost or reason)
            self._writer.close()
            with contextlib.suppress(OSError, TimeoutError):  # it is over already; nobody waits
                async with asyncio.timeout(self.timeout):
                    await self._writer.wait_closed()
        return self.lost or reason

    def close(self, reason: str) -> None:
        """End the connection from our side."""
        self._lose(reason)
        self._writer.transport.abort()

    # Asking

    def send_ops(self, ops: Sequence[FlowOp]) -> Run:
        """Send flow operations and a barrier; the run is done when the barrier is answered."""
        return self._started(self._live.send_ops(ops))

    async def barrier(self) -> None:
        """Wait until the switch has carried out what was sent."""
        await self._finished(self.send_ops(()))

    async def group_ops(self, ops: Sequence[GroupOp]) -> Run:
        """Carry out operations on groups; wait for the barrier."""
        return await self._finished(self._started(self._live.send_group_ops(ops)))

    async def removals(self, stats: Sequence[FlowStat]) -> Run:
        """Remove entries that are of no form we write; wait for the barrier."""
        return await self._finished(self._started(self._live.send_removals(stats)))

    async def role(self, role: Role, generation: int) -> RoleReply:
        """Ask for a role; Refused if the generation is stale."""
        (reply,) = await self._answer(self._live.request_role(role, generation))
        assert isinstance(reply, RoleReply)
        return reply

    async def flow_stats(self) -> list[FlowStat]:
        """Our entries as the switch has them, after all that was sent before."""
        self.send_ops(())  # a barrier: what was sent before is in the tables
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

    async def drained(self) -> None:
        """Wait until the socket has taken what was sent."""
        async with asyncio.timeout(self.timeout):
            await self._writer.drain()

    # Inside

    @property
    def _live(self) -> Session:
        """The session, as long as it can be asked."""
        if self.lost is not None:
            raise ConnectionLost(self.lost)
        return self.session

    def _started(self, sent: Sent) -> Run:
        run = Run(sent, asyncio.get_running_loop().create_future())
        self._runs[sent.barrier_xid] = run
        self._flush()
        return run

    async def _finished(self, run: Run) -> Run:
        async with asyncio.timeout(self.timeout):
            await run.done
        return run

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
        if data and not self._writer.is_closing():
            self._writer.write(data)

    def _handle(self, event: Event) -> None:
        match event:
            case Ready():
                self._ready.set_result(event)
            case BarrierReply(xid) if run := self._runs.pop(xid, None):
                if not run.done.done():
                    run.done.set_result(None)
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
            for run in self._runs.values():
                if not run.done.done():
                    run.done.set_exception(lost)
                    run.done.exception()
