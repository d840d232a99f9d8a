"""One end of a stream between processes: msgpack in frames over TCP, told or asked.

What is told in one turn of the loop is written at once. Both ends give signs of life, so that a
peer that is dead or stands still is noticed; one that reads too slowly is cut off at a bound.
"""

import asyncio
import inspect
import itertools
import logging
from collections.abc import Awaitable, Callable
from struct import Struct as Layout
from typing import Any, cast

import msgspec
from msgspec import Struct

from configurators.streams.handshake import MAX_FRAME, Handshake, NotTrusted
from dzflow.errors import BadInput, DzflowError

log = logging.getLogger(__name__)

Hear = Callable[["Stream", Any], Any]
"""Takes a message; for an ask, what it returns (also later, if it is async) is the reply."""

_HEAD = Layout("!IBI")  # length of the rest, kind, number of an ask or 0
_REST = _HEAD.size - 4
_TELL, _ASK, _REPLY, _ERROR, _PING, _HANDSHAKE = range(6)
_NUMBERS = 1 << 32
_MAX_TEXT = 10_000
_NIL = b"\xc0"  # None in msgpack
_LONG = 5  # times the pause between signs of life: with these it is seen to, without a timer


class StreamClosed(DzflowError):
    """The stream is over: whether the other end has taken up what was sent last is not known."""


class CannotConnect(DzflowError):
    """Nobody is there, or nobody that can be trusted."""


class RemoteError(DzflowError):
    """The other end failed to answer; the message is its own."""


class TooLarge(BadInput):
    """A message is larger than a frame may be; send it in parts."""


class Habits(Struct, frozen=True):
    """Bounds and times (in seconds) of a stream."""

    frame: int = 64 << 20  # bytes of one message
    outgoing: int = 256 << 20  # bytes that may wait for a slow peer
    hears: int = 10_000  # messages that may be worked on; beyond, nothing more is read
    handshake: float = 5.0
    strangers: int = 64  # connections that have not proved themselves yet, per listener
    ping_every: float = 2.0
    silence: float = 10.0  # after which a peer counts as dead
    close: float = 2.0  # to send what is left


class Stream(asyncio.Protocol):
    """One end of a stream; made by `connect` or by a `Listener` (`streams/stream.py`).

    `peer` is the other end's name, `reason` says why the stream is over once `closed` is set.
    """

    def __init__(
        self,
        handshake: Handshake,
        hear: Hear,
        receives: Any,
        habits: Habits,
        on_open: Callable[["Stream"], None],
    ) -> None:
        self.peer = ""
        self.closed = asyncio.Event()
        self.reason = ""
        self._handshake: Handshake | None = handshake
        self._hear = hear
        self._decoder = msgspec.msgpack.Decoder(receives)
        self._encoder = msgspec.msgpack.Encoder()
        self._habits = habits
        self._on_open = on_open
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer: bytes | bytearray = b""
        self._out: list[bytes] = []
        self._queued = 0
        self._flushing = False
        self._over = False
        self._numbers = itertools.cycle(range(1, _NUMBERS))
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._due: dict[int, float] = {}  # when asks that may take long are given up
        self._hearing: set[asyncio.Task[None]] = set()
        self._paused = False
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._heard = 0.0
        self._timer: asyncio.TimerHandle | None = None

    # What callers use

    def tell(self, message: Struct) -> None:
        """Send a message that needs no reply, with the next turn of the loop.

        StreamClosed if the stream is over, or is now because the peer has not taken up enough.
        """
        self._send(_TELL, 0, self._encoder.encode(message))

    async def ask(self, message: Struct, timeout: float) -> Any:
        """Send a message and wait for the reply.

        TimeoutError after so many seconds, RemoteError if the other end failed, StreamClosed if the
        stream ends meanwhile; in these cases it may have been carried out or not.
        """
        number = next(self._numbers)
        future: asyncio.Future[Any] = self._loop.create_future()
        self._send(_ASK, number, self._encoder.encode(message))
        self._asked[number] = future
        try:
            if timeout >= _LONG * self._habits.ping_every:
                self._due[number] = self._loop.time() + timeout
                return await future
            async with asyncio.timeout(timeout):
                return await future
        finally:
            self._asked.pop(number, None)
            self._due.pop(number, None)

    async def drained(self) -> None:
        """Wait until the peer has taken up most of what was sent; for those who send much."""
        self._flush()
        await self._may_write.wait()
        if self._over:
            raise StreamClosed(self._gone())

    def close(self, reason: str = "closed on this side") -> None:
        """End the stream after sending what was told; harmless if it is over."""
        if self._over or self._transport is None:
            return
        self._flush()
        self._end(reason)
        self._transport.close()
        self._timer = self._loop.call_later(self._habits.close, self._transport.abort)

    def cut(self, reason: str) -> None:
        """End the stream at once."""
        if self._transport is not None and not self.closed.is_set():
            self._end(reason)
            self._transport.abort()

    # What the loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection stands; the handshake begins."""
        assert self._handshake
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is of no class of asyncio
        self._transport.set_write_buffer_limits(high=self._habits.outgoing // 8)
        self._timer = self._loop.call_later(
            self._habits.handshake, self.cut, "no handshake in time"
        )
        if first := self._handshake.first():
            self._send(_HANDSHAKE, 0, first)

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is gone."""
        self._end(f"the connection broke: {error}" if error else "the other end closed it")
        self.closed.set()

    def pause_writing(self) -> None:
        """The peer is slow."""
        self._may_write.clear()

    def resume_writing(self) -> None:
        """It has caught up."""
        self._may_write.set()

    def data_received(self, data: bytes) -> None:
        """Take up whole frames, keep the rest."""
        self._heard = self._loop.time()
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
            limit = self._habits.frame if self._handshake is None else MAX_FRAME
            if not _REST <= length <= limit + _REST:
                self.cut(f"a frame of {length} bytes, {limit} are allowed")
                break
            after = at + 4 + length
            if after > end:
                break
            self._take(kind, number, view[at + _HEAD.size : after])
            at = after
        if at:
            self._buffer = bytes(view[at:])

    # Inside

    def _take(self, kind: int, number: int, body: memoryview) -> None:
        if self._handshake is not None:
            self._greet(kind, body)
            return
        try:
            if kind == _TELL:
                self._heard_of(self._decoder.decode(body), 0)
            elif kind == _ASK:
                self._heard_of(self._decoder.decode(body), number)
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
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            self.cut(f"a message that cannot be read: {error}")

    def _greet(self, kind: int, body: memoryview) -> None:
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
            self._beat_at(self._loop.time() + self._habits.ping_every)
            self._on_open(self)

    def _heard_of(self, message: Any, number: int) -> None:
        try:
            reply = self._hear(self, message)
        except Exception as error:
            self._failed(number, error)
            return
        if inspect.isawaitable(reply):
            task = self._loop.create_task(self._await(number, reply))
            self._hearing.add(task)
            task.add_done_callback(self._done_hearing)
            if len(self._hearing) >= self._habits.hears and not self._paused:
                self._paused = True
                self._reading().pause_reading()
        elif number:
            self._reply(number, reply)

    async def _await(self, number: int, reply: Awaitable[Any]) -> None:
        try:
            answer = await reply
        except Exception as error:
            self._failed(number, error)
            return
        if number:
            self._reply(number, answer)

    def _done_hearing(self, task: "asyncio.Task[None]") -> None:
        self._hearing.discard(task)
        if self._paused and not self._over and len(self._hearing) < self._habits.hears // 2:
            self._paused = False
            self._heard = self._loop.time()
            self._reading().resume_reading()

    def _reply(self, number: int, reply: Any) -> None:
        try:
            body = self._encoder.encode(reply)
            if len(body) > self._habits.frame:
                raise TooLarge(f"the reply has {len(body)} bytes, {self._habits.frame} are allowed")
        except Exception as error:
            self._failed(number, error)
            return
        self._answer(_REPLY, number, body)

    def _answer(self, kind: int, number: int, body: bytes) -> None:
        try:
            self._send(kind, number, body)
        except StreamClosed as error:
            log.info("an answer to %s got lost: %s", self.peer, error)  # who asked knows, too

    def _failed(self, number: int, error: Exception) -> None:
        """Working on a message failed: tell who asked; who only told is not listened to further."""
        if not number:
            log.error("a message from %s failed; the stream is closed", self.peer, exc_info=error)
            self.cut(f"a message failed: {error}")
            return
        if not isinstance(error, DzflowError):
            log.error("a question from %s failed", self.peer, exc_info=error)
        text = f"{type(error).__name__}: {error}"[:_MAX_TEXT]
        self._answer(_ERROR, number, self._encoder.encode(text))

    def _send(self, kind: int, number: int, body: bytes) -> None:
        if self._over or self._transport is None:
            raise StreamClosed(self._gone())
        if len(body) > self._habits.frame:
            raise TooLarge(
                f"a message of {len(body)} bytes does not fit into {self._habits.frame}; send parts"
            )
        self._out.append(_HEAD.pack(len(body) + _REST, kind, number))
        self._out.append(body)
        self._queued += len(body) + _HEAD.size
        waiting = self._queued + self._transport.get_write_buffer_size()
        if waiting > self._habits.outgoing:
            self.cut(f"the peer is too slow: {waiting} bytes wait for it")
            raise StreamClosed(self._gone())
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if self._out and not self._over and self._transport is not None:
            self._transport.write(b"".join(self._out))
            self._out.clear()
            self._queued = 0

    def _beat_at(self, due: float) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = self._loop.call_at(due, self._beat, due)

    def _beat(self, due: float) -> None:
        """Give a sign of life, and expect one; time in which this process stood still is ours."""
        now = self._loop.time()
        self._heard += max(0.0, now - due)
        self._give_up_late(now)
        if now - self._heard > self._habits.silence and not self._paused:
            self.cut(f"no sign of life within {self._habits.silence:g} s")
            return
        if not self._queued:  # what waits is a sign of life as well
            self._answer(_PING, 0, b"")
            if self._over:
                return
        self._beat_at(now + self._habits.ping_every)

    def _give_up_late(self, now: float) -> None:
        for number in [number for number, due in self._due.items() if due <= now]:
            future = self._asked.get(number)
            if future and not future.done():
                future.set_exception(TimeoutError())

    def _end(self, reason: str) -> None:
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
                future.set_exception(StreamClosed(self._gone()))
        # What has come is worked on to its end, even if nobody hears of it: it may be half done.

    def _gone(self) -> str:
        return f"the stream to {self.peer or 'a peer'} is over: {self.reason or 'not open yet'}"

    def _reading(self) -> asyncio.Transport:
        assert self._transport
        return self._transport
