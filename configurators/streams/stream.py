"""One end of a stream between processes: msgpack messages in frames over TCP.

A message is either told, or asked, which waits for a reply. Messages of one turn of the event loop
are written together. Both ends send pings, so that each notices when its peer is dead or stopped. A
peer that reads too slowly is disconnected when too many bytes wait for it.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from struct import Struct as Layout
from types import UnionType
from typing import Any, cast

import msgspec
from msgspec import Struct

from configurators.streams.handshake import MAX_FRAME, Handshake, NotTrusted
from configurators.streams.tls import explain, remote_of
from dzflow.aio import OncePerTurn
from dzflow.errors import BadInput, DzflowError

log = logging.getLogger(__name__)

OnMessage = Callable[["Stream", Any], Any]
"""Handles a message. The reply to an ask is what it returns, or what its awaitable returns."""

Receives = type[Struct] | UnionType
"""The messages that may come: one kind, or a union of several."""

_HEAD = Layout("!IBI")  # length of the rest, kind, number of an ask or 0
_REST = _HEAD.size - 4
_TELL, _ASK, _REPLY, _ERROR, _PING, _HANDSHAKE = range(6)
_LAST_NUMBER = (1 << 32) - 1  # after which asks are numbered from 1 on again
_MAX_TEXT = 10_000
_NIL = b"\xc0"  # None in msgpack
_LONG = 5  # times the pause between pings: such timeouts are checked with each ping, not by a timer


class StreamClosed(DzflowError):
    """The stream has ended; it is not known whether the peer has handled the last messages."""


class RemoteError(DzflowError):
    """The peer failed to answer; the message is the peer's."""


class MessageTooLarge(BadInput):
    """A message is larger than a frame may be; send it in several parts."""


class StreamOptions(Struct, frozen=True):
    """Limits and times (in seconds) of a stream."""

    frame: int = 64 << 20  # bytes of one message
    outgoing: int = 256 << 20  # bytes that may wait for a slow peer
    in_progress: int = 10_000  # messages that are being handled; beyond, nothing more is read
    handshake: float = 5.0
    strangers: int = 256  # connections per listener that have not proved themselves yet
    strangers_of_address: int = 64  # of these, connections of one address (IPv6: one /64)
    ping_every: float = 2.0
    silence: float = 10.0  # after which a peer counts as dead
    close: float = 2.0  # to send the rest when the stream is closed


class Stream(asyncio.Protocol):
    """One end of a stream; made by `connect` or by a `Listener` (`listener.py`).

    `peer` is the name of the other end. Once `closed` is set, `reason` says why the stream ended.
    """

    def __init__(
        self,
        handshake: Handshake,
        on_message: OnMessage,
        receives: Receives,
        options: StreamOptions,
        on_open: Callable[["Stream"], None],
    ) -> None:
        self.peer = ""
        self.remote = ""  # the address of the other end
        self.closed = asyncio.Event()
        self.reason = ""
        self._handshake: Handshake | None = handshake
        self._on_message = on_message
        self._decoder = msgspec.msgpack.Decoder(receives)
        self._encoder = msgspec.msgpack.Encoder()
        self._options = options
        self._on_open = on_open
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer: bytes | bytearray = b""
        self._out: list[bytes] = []
        self._queued = 0
        self._flushing = OncePerTurn(self._flush)
        self._over = False
        self._number = 0  # of the last ask
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._deadlines: dict[int, float] = {}  # of asks with a long timeout
        self._handling: set[asyncio.Task[None]] = set()
        self._paused = False
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._received_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    # For callers

    def tell(self, message: Struct) -> None:
        """Send a message that needs no reply, with the next turn of the loop.

        StreamClosed if the stream has ended, or ends now because the peer reads too slowly.
        """
        self._send(_TELL, 0, self._encoder.encode(message))

    async def ask(self, message: Struct, timeout: float) -> Any:
        """Send a message and wait for the reply.

        TimeoutError after so many seconds, RemoteError if the peer failed, StreamClosed if the
        stream ends meanwhile; in these cases the request may have been carried out or not.
        """
        self._number = number = self._number % _LAST_NUMBER + 1
        future: asyncio.Future[Any] = self._loop.create_future()
        self._send(_ASK, number, self._encoder.encode(message))
        self._asked[number] = future
        try:
            if timeout >= _LONG * self._options.ping_every:
                self._deadlines[number] = self._loop.time() + timeout
                return await future
            async with asyncio.timeout(timeout):
                return await future
        finally:
            self._asked.pop(number, None)
            self._deadlines.pop(number, None)

    async def drained(self) -> None:
        """Wait until the peer has read most of what was sent; for callers that send much."""
        self._flush()
        await self._may_write.wait()
        if self._over:
            raise StreamClosed(self._ended_text())

    def close(self, reason: str = "closed on this side") -> None:
        """End the stream after the messages that were told; no effect if it has ended."""
        if self._over or self._transport is None:
            return
        self._flush()
        self._finish(reason)
        self._transport.close()
        self._timer = self._loop.call_later(self._options.close, self._transport.abort)

    def cut(self, reason: str) -> None:
        """End the stream at once."""
        if self._transport is not None and not self.closed.is_set():
            self._finish(reason)
            self._transport.abort()

    # For the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake on a new connection."""
        assert self._handshake
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is of no class of asyncio
        self._transport.set_write_buffer_limits(high=self._options.outgoing // 8)
        self.remote = remote_of(transport)
        if (tls := transport.get_extra_info("ssl_object")) is not None:
            self._handshake.connected(tls.getpeercert(binary_form=True))
        self._timer = self._loop.call_later(
            self._options.handshake, self.cut, "no handshake in time"
        )
        if first := self._handshake.first():
            self._send(_HANDSHAKE, 0, first)

    def connection_lost(self, error: Exception | None) -> None:
        """End the stream: its connection is lost."""
        broken = f"the connection broke: {explain(error)}" if error else ""
        self._finish(broken or "the other end closed it")
        self.closed.set()

    def pause_writing(self) -> None:
        """Have `drained` wait: the peer reads slowly."""
        self._may_write.clear()

    def resume_writing(self) -> None:
        """Let `drained` return: the peer has caught up."""
        self._may_write.set()

    def data_received(self, data: bytes) -> None:
        """Handle all complete frames, and keep the rest."""
        self._received_at = self._loop.time()
        if self._buffer:
            if isinstance(self._buffer, bytes):
                self._buffer = bytearray(self._buffer)
            self._buffer += data
        else:
            self._buffer = data
        received = self._buffer
        at, end = 0, len(received)
        view = memoryview(received)
        while end - at >= _HEAD.size and not self._over:
            length, kind, number = _HEAD.unpack_from(received, at)
            limit = self._options.frame if self._handshake is None else MAX_FRAME
            if not _REST <= length <= limit + _REST:
                self.cut(f"a frame of {length} bytes, {limit} are allowed")
                break
            after = at + 4 + length
            if after > end:
                break
            self._handle_frame(kind, number, view[at + _HEAD.size : after])
            at = after
        if at:
            self._buffer = bytes(view[at:])

    # Inside

    def _handle_frame(self, kind: int, number: int, body: memoryview) -> None:
        if self._handshake is not None:
            self._continue_handshake(kind, body)
            return
        try:
            if kind == _TELL:
                self._handle(self._decoder.decode(body), 0)
            elif kind == _ASK:
                self._handle(self._decoder.decode(body), number)
            elif kind == _REPLY:
                future = self._asked.get(number)
                if future and not future.done():
                    future.set_result(
                        self._decoder.decode(body) if bytes(body[:1]) != _NIL else None
                    )
            elif kind == _ERROR:
                future = self._asked.get(number)
                if future and not future.done():
                    future.set_exception(RemoteError(msgspec.msgpack.decode(body, type=str)))
            elif kind != _PING:
                self.cut(f"a frame of unknown kind {kind}")
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            self.cut(f"a message that cannot be read: {error}")

    def _continue_handshake(self, kind: int, body: memoryview) -> None:
        handshake = self._handshake
        assert handshake
        try:
            if kind != _HANDSHAKE:
                raise NotTrusted("the other end skipped the handshake")
            answer = handshake.receive(body)
        except NotTrusted as error:
            self.cut(str(error))
            return
        if answer is not None:
            self._send(_HANDSHAKE, 0, answer)
        if handshake.peer is not None:
            self.peer = handshake.peer
            self._handshake = None
            self._ping_at(self._loop.time() + self._options.ping_every)
            self._on_open(self)

    def _handle(self, message: Any, number: int) -> None:
        try:
            reply = self._on_message(self, message)
        except Exception as error:
            self._report_failure(number, error)
            return
        if inspect.isawaitable(reply):
            task = self._loop.create_task(self._reply_later(number, reply))
            self._handling.add(task)
            task.add_done_callback(self._handled)
            if len(self._handling) >= self._options.in_progress and not self._paused:
                self._paused = True
                self._reading().pause_reading()
        elif number:
            self._reply(number, reply)

    async def _reply_later(self, number: int, reply: Awaitable[Any]) -> None:
        try:
            answer = await reply
        except Exception as error:
            self._report_failure(number, error)
            return
        if number:
            self._reply(number, answer)

    def _handled(self, task: "asyncio.Task[None]") -> None:
        self._handling.discard(task)
        if self._paused and not self._over and len(self._handling) < self._options.in_progress // 2:
            self._paused = False
            self._received_at = self._loop.time()
            self._reading().resume_reading()

    def _reply(self, number: int, reply: Any) -> None:
        try:
            body = self._encoder.encode(reply)
            if len(body) > self._options.frame:
                raise MessageTooLarge(
                    f"the reply has {len(body)} bytes, {self._options.frame} are allowed"
                )
        except Exception as error:
            self._report_failure(number, error)
            return
        self._answer(_REPLY, number, body)

    def _answer(self, kind: int, number: int, body: bytes) -> None:
        try:
            self._send(kind, number, body)
        except StreamClosed as error:
            log.info("an answer to %s is lost: %s", self.peer, error)  # the peer notices, too

    def _report_failure(self, number: int, error: Exception) -> None:
        """Send the error of an ask to the peer; after that of a told message, end the stream."""
        if not number:
            log.error(
                "handling a message of %s failed; closing the stream", self.peer, exc_info=error
            )
            self.cut(f"handling a message failed: {error}")
            return
        if not isinstance(error, DzflowError):
            log.error("handling a request of %s failed", self.peer, exc_info=error)
        text = f"{type(error).__name__}: {error}"[:_MAX_TEXT]
        self._answer(_ERROR, number, self._encoder.encode(text))

    def _send(self, kind: int, number: int, body: bytes) -> None:
        if self._over or self._transport is None:
            raise StreamClosed(self._ended_text())
        if len(body) > self._options.frame:
            raise MessageTooLarge(
                f"a message of {len(body)} bytes is too large ({self._options.frame} are allowed);"
                " send it in parts"
            )
        self._out.append(_HEAD.pack(len(body) + _REST, kind, number))
        self._out.append(body)
        self._queued += len(body) + _HEAD.size
        waiting = self._queued + self._transport.get_write_buffer_size()
        if waiting > self._options.outgoing:
            self.cut(f"the peer is too slow: {waiting} bytes wait for it")
            raise StreamClosed(self._ended_text())
        self._flushing.schedule()

    def _flush(self) -> None:
        if self._out and not self._over and self._transport is not None:
            self._transport.write(b"".join(self._out))
            self._out.clear()
            self._queued = 0

    def _ping_at(self, due: float) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = self._loop.call_at(due, self._ping, due)

    def _ping(self, due: float) -> None:
        """Send a ping, and check when the peer was heard last.

        Time in which this process itself was stopped does not count against the peer.
        """
        now = self._loop.time()
        self._received_at += max(0.0, now - due)
        self._expire_asks(now)
        if now - self._received_at > self._options.silence and not self._paused:
            self.cut(f"no sign of life within {self._options.silence:g} s")
            return
        if not self._queued:  # messages that wait are a sign of life as well
            self._answer(_PING, 0, b"")
            if self._over:
                return
        self._ping_at(now + self._options.ping_every)

    def _expire_asks(self, now: float) -> None:
        for number in [number for number, due in self._deadlines.items() if due <= now]:
            future = self._asked.get(number)
            if future and not future.done():
                future.set_exception(TimeoutError())

    def _finish(self, reason: str) -> None:
        if self._over:
            return
        self._over = True
        self.reason = reason
        if self._timer:
            self._timer.cancel()
        self._may_write.set()
        self._buffer = b""
        self._out.clear()
        for future in self._asked.values():
            if not future.done():
                future.set_exception(StreamClosed(self._ended_text()))
        # Handling of messages goes on, though no reply is sent: they may be half done.

    def _ended_text(self) -> str:
        return f"the stream to {self.peer or 'a peer'} has ended: {self.reason or 'not open yet'}"

    def _reading(self) -> asyncio.Transport:
        assert self._transport
        return self._transport
