"""HTTP/2 without I/O, as much as unary calls of gRPC need (RFC 9113): requests out, answers in.

The client of the protocol sends `to_send()` after each call of the others, and gives `receive` what
has arrived. Each request gets one event, an `Answer` or a `NoAnswer`, unless it is cancelled.
"""

from struct import Struct
from typing import NamedTuple, TypeAlias

from configurators.store.etcd.headers import BadHeaders, Headers, decode

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEAD = Struct("!HBBBI")  # length (its first two bytes, and the third), kind, flags, stream
HEAD_BYTES = _HEAD.size
_SETTING = Struct("!HI")
_NUMBER = Struct("!I")

(
    _DATA,
    _HEADERS,
    _PRIORITY,
    _RESET,
    _SETTINGS,
    _PUSH,
    _PING,
    _GO_AWAY,
    _WINDOW,
    _CONTINUATION,
) = range(10)
_ACK = _END_STREAM = 0x1
_END_HEADERS, _PADDED, _WITH_PRIORITY = 0x4, 0x8, 0x20
_TABLE_SIZE, _ENABLE_PUSH, _MOST_STREAMS, _STREAM_WINDOW, _FRAME_SIZE = 1, 2, 3, 4, 5
_REFUSED_STREAM, _CANCEL = 7, 8

_WINDOW_AT_FIRST = 65_535
_FRAME = 16_384  # bytes that a frame may have unless another limit is agreed on
_OUR_WINDOW = 1 << 30  # bytes that may arrive on all streams before we say that we have read them
_READ_TOLD = 1 << 24  # bytes after which we say so
_LARGEST_BLOCK = 64 << 10  # bytes of headers
_LAST_STREAM = (1 << 31) - 1


class Answer(NamedTuple):
    """A request has its answer; `headers` are those before and after the body."""

    stream: int
    headers: Headers
    body: bytes


class NoAnswer(NamedTuple):
    """A request gets no answer. If it is `unseen`, the other side has certainly not acted on it."""

    stream: int
    reason: str
    unseen: bool = False
    too_large: bool = False


Event: TypeAlias = Answer | NoAnswer


class _Violation(Exception):
    """The other side does not keep to the protocol."""


class _Request:
    """A request on its way. `left` is what of its body was not sent, for want of room there."""

    __slots__ = ("body", "headers", "left", "size", "window")

    def __init__(self, left: memoryview, window: int) -> None:
        self.left = left
        self.window = window
        self.headers: Headers = ()
        self.body: list[bytes] = []
        self.size = 0


class Http2Client:
    """The client's end of one connection. An answer may have at most `largest` bytes.

    `greeted` is true once the other side has sent its settings, `over` says why the connection is
    of no use any more: its owner closes it then.
    """

    def __init__(self, largest: int) -> None:
        self.greeted = False
        self.over = ""
        self._largest = largest
        self._leaving = False  # the other side accepts no more requests
        self._buffer = b""
        self._requests: dict[int, _Request] = {}
        self._next = 1
        self._block: tuple[int, int, bytes] | None = None  # headers that are not complete
        self._read = 0  # bytes since we last told that we have read some
        # What the other side permits.
        self._window = self._stream_window = _WINDOW_AT_FIRST
        self._frame = _FRAME
        self._most_streams = _LAST_STREAM
        settings = (
            _SETTING.pack(_TABLE_SIZE, 0)
            + _SETTING.pack(_ENABLE_PUSH, 0)
            + _SETTING.pack(_STREAM_WINDOW, largest + _FRAME)
        )
        window = _NUMBER.pack(_OUR_WINDOW - _WINDOW_AT_FIRST)
        self._out = [_PREFACE, _frame(_SETTINGS, 0, 0, settings), _frame(_WINDOW, 0, 0, window)]

    @property
    def usable(self) -> bool:
        """Whether requests can still be made on this connection."""
        return not (self.over or self._leaving or self._next > _LAST_STREAM)

    @property
    def full(self) -> bool:
        """Whether the other side has as many requests as it takes at a time."""
        return len(self._requests) >= self._most_streams

    def request(self, block: bytes, body: bytes) -> int:
        """Make a request, if the connection is usable and not full; returns its stream."""
        stream = self._next
        self._next += 2
        self._requests[stream] = request = _Request(memoryview(body), self._stream_window)
        self._out.append(_frame(_HEADERS, _END_HEADERS, stream, block))
        self._send_body(stream, request)
        return stream

    def cancel(self, stream: int) -> None:
        """The answer to a request is no longer wanted."""
        if self._requests.pop(stream, None) is not None and not self.over:
            self._out.append(_frame(_RESET, 0, stream, _NUMBER.pack(_CANCEL)))

    def to_send(self) -> bytes:
        """What is to be sent to the other side now."""
        out, self._out = self._out, []
        return b"".join(out)

    def lose(self, reason: str) -> list[Event]:
        """The connection has ended: no request gets an answer any more."""
        self.over = self.over or reason
        requests, self._requests = self._requests, {}
        return [NoAnswer(stream, reason) for stream in requests]

    def receive(self, data: bytes) -> list[Event]:
        """What follows from bytes that have arrived."""
        events: list[Event] = []
        if self.over:
            return events
        received = self._buffer + data if self._buffer else data
        at, end = 0, len(received)
        try:
            while end - at >= HEAD_BYTES:
                high, low, kind, flags, stream = _HEAD.unpack_from(received, at)
                length = high << 8 | low
                if length > _FRAME:
                    raise _Violation(f"a frame of {length} bytes")
                after = at + HEAD_BYTES + length
                if after > end:
                    break
                payload = received[at + HEAD_BYTES : after]
                at = after
                self._handle(kind, flags, stream & _LAST_STREAM, payload, events)
        except (_Violation, BadHeaders) as error:
            events += self.lose(f"etcd does not keep to HTTP/2: {error}")
        self._buffer = received[at:]
        return events

    # Frames

    def _handle(
        self, kind: int, flags: int, stream: int, payload: bytes, events: list[Event]
    ) -> None:
        if (self._block is not None) != (kind == _CONTINUATION):
            raise _Violation("headers that are interrupted, or continued without a beginning")
        if kind == _DATA:
            self._handle_data(flags, stream, payload, events)
        elif kind == _HEADERS:
            block = _without_padding(flags, payload)[5 if flags & _WITH_PRIORITY else 0 :]
            self._handle_block(flags, stream, block, events)
        elif kind == _CONTINUATION and self._block is not None:
            of, first, begun = self._block
            if of != stream:
                raise _Violation("headers that are continued on another stream")
            flags = first & _END_STREAM | flags & _END_HEADERS
            self._handle_block(flags, stream, begun + payload, events)
        elif kind == _RESET:
            if self._requests.pop(stream, None) is not None:
                code = _number(payload)
                reason = f"etcd has ended the call (HTTP/2 error {code})"
                events.append(NoAnswer(stream, reason, code == _REFUSED_STREAM))
        elif kind == _SETTINGS:
            if not flags & _ACK:
                self._handle_settings(payload)
        elif kind == _PING:
            if not flags & _ACK:
                self._out.append(_frame(_PING, _ACK, 0, payload))
        elif kind == _GO_AWAY:
            self._leaving = True
            last = _number(payload) & _LAST_STREAM
            for unseen in [number for number in self._requests if number > last]:
                del self._requests[unseen]
                events.append(NoAnswer(unseen, "etcd closes the connection", unseen=True))
        elif kind == _WINDOW:
            self._handle_window(stream, _number(payload) & _LAST_STREAM)
        elif kind == _PUSH:
            raise _Violation("an answer that was not asked for")
        # Frames of other kinds are to be ignored.

    def _handle_data(self, flags: int, stream: int, payload: bytes, events: list[Event]) -> None:
        self._read += len(payload)
        if self._read >= _READ_TOLD:
            self._out.append(_frame(_WINDOW, 0, 0, _NUMBER.pack(self._read)))
            self._read = 0
        request = self._requests.get(stream)
        if request is None:
            return  # it was cancelled
        part = _without_padding(flags, payload)
        request.size += len(part)
        if request.size > self._largest:
            self.cancel(stream)
            events.append(
                NoAnswer(stream, f"it is larger than max ({self._largest})", too_large=True)
            )
            return
        request.body.append(part)
        if flags & _END_STREAM:
            self._end(stream, events)

    def _handle_block(self, flags: int, stream: int, block: bytes, events: list[Event]) -> None:
        if not flags & _END_HEADERS:
            if len(block) > _LARGEST_BLOCK:
                raise _Violation("too many headers")
            self._block = stream, flags, block
            return
        self._block = None
        headers = decode(block)
        request = self._requests.get(stream)
        if request is not None:
            request.headers += headers
        if flags & _END_STREAM:
            self._end(stream, events)

    def _end(self, stream: int, events: list[Event]) -> None:
        """The answer of a stream is complete."""
        request = self._requests.pop(stream, None)
        if request is not None:
            if request.left:  # the other side has not waited for the whole request
                self._out.append(_frame(_RESET, 0, stream, _NUMBER.pack(_CANCEL)))
            events.append(Answer(stream, request.headers, b"".join(request.body)))

    def _handle_settings(self, payload: bytes) -> None:
        if len(payload) % _SETTING.size:
            raise _Violation("settings that end in the middle")
        self.greeted = True
        for name, value in _SETTING.iter_unpack(payload):
            if name == _STREAM_WINDOW:
                more = value - self._stream_window
                self._stream_window = value
                for request in self._requests.values():
                    request.window += more
            elif name == _FRAME_SIZE:
                self._frame = max(_FRAME, value)
            elif name == _MOST_STREAMS:
                self._most_streams = value
        self._out.append(_frame(_SETTINGS, _ACK, 0, b""))
        self._send_bodies()

    def _handle_window(self, stream: int, more: int) -> None:
        if not stream:
            self._window += more
            self._send_bodies()
        elif request := self._requests.get(stream):
            request.window += more
            if request.left:
                self._send_body(stream, request)

    def _send_bodies(self) -> None:
        for stream, request in self._requests.items():
            if request.left:
                self._send_body(stream, request)

    def _send_body(self, stream: int, request: _Request) -> None:
        """Send as much of a request's body as the other side has room for."""
        while room := min(
            len(request.left), self._frame, max(0, min(request.window, self._window))
        ):
            part, request.left = request.left[:room], request.left[room:]
            request.window -= room
            self._window -= room
            self._out.append(_frame(_DATA, 0 if request.left else _END_STREAM, stream, part))


def _frame(kind: int, flags: int, stream: int, payload: bytes | memoryview) -> bytes:
    length = len(payload)
    return b"".join((_HEAD.pack(length >> 8, length & 255, kind, flags, stream), payload))


def _number(payload: bytes) -> int:
    if len(payload) < _NUMBER.size:
        raise _Violation("a frame that is too short")
    return int(_NUMBER.unpack_from(payload)[0])


def _without_padding(flags: int, payload: bytes) -> bytes:
    if not flags & _PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise _Violation("more padding than there is room for")
    return payload[1 : len(payload) - payload[0]]
