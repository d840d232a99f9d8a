"""Calls of etcd's key-value service over a unix socket, without gRPC's own library.

A call through `grpc.aio` passes three threads. That is most of what a lone transaction takes (see
docs/decisions/0014-direct-calls.md). Streams, TLS and other addresses stay with gRPC, and so do the
errors: a failed call raises what `grpc.aio` would raise.
"""

import asyncio
from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import Any, cast
from urllib.parse import unquote

import grpc
from aetcd import rpc

from configurators.store.etcd.endpoints import ReachableSocket
from configurators.store.etcd.errors import NOT_SENT
from configurators.store.etcd.headers import encode
from configurators.store.etcd.http2 import Answer, Event, Http2Client, NoAnswer

_PREFIX = Struct("!BI")  # of each message: whether it is compressed, and its length
_LONGEST_TIMEOUT = 99_999_999  # milliseconds: gRPC has eight digits for it
_CODES = {code.value[0]: code for code in grpc.StatusCode}

Metadata = Sequence[tuple[str, str]]


class DirectCalls:
    """The key-value service of one member: calls as aetcd's stub has them.

    It connects when it is needed, also after a connection was lost. An answer has at most `largest`
    bytes. It belongs to one event loop.
    """

    def __init__(self, socket: ReachableSocket, largest: int) -> None:
        self._socket = socket
        self._largest = largest
        self._connection: _Connection | None = None  # for new calls
        self._connections: set[_Connection] = set()  # that are open
        self._connecting = asyncio.Lock()
        self._closed = False
        service = "/etcdserverpb.KV/"
        self.Range = _Method(self, service + "Range", rpc.RangeResponse)
        self.Put = _Method(self, service + "Put", rpc.PutResponse)
        self.DeleteRange = _Method(self, service + "DeleteRange", rpc.DeleteRangeResponse)
        self.Txn = _Method(self, service + "Txn", rpc.TxnResponse)
        self.Compact = _Method(self, service + "Compact", rpc.CompactionResponse)

    @property
    def connected(self) -> bool:
        """Whether etcd has greeted us on a connection that can be used."""
        connection = self._connection
        return connection is not None and connection.usable and connection.greeted

    def close(self) -> None:
        """End all connections; calls in progress are cancelled, or fail if they connect."""
        self._closed = True
        for connection in list(self._connections):
            connection.close()

    async def call(self, path: str, message: bytes, timeout: float, metadata: Metadata) -> bytes:
        """The answer to a call, as bytes; AioRpcError if there is none."""
        connection = self._connection
        if connection is None or not connection.usable:
            connection = await self._connect(timeout)
        return await connection.call(path, message, timeout, metadata)

    async def _connect(self, timeout: float) -> "_Connection":
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout), self._connecting:
                if self._closed:
                    raise _error(grpc.StatusCode.UNAVAILABLE, f"{NOT_SENT}closed on this side")
                if self._connection is not None and self._connection.usable:
                    return self._connection  # another call was faster
                _, connection = await loop.create_unix_connection(
                    lambda: _Connection(self._largest, self._connections), self._socket.path
                )
        except (OSError, TimeoutError) as error:
            reason = f"{NOT_SENT}no connection to {self._socket.path}: {str(error) or 'timeout'}"
            raise _error(grpc.StatusCode.UNAVAILABLE, reason) from None
        if self._closed:
            connection.close()
        self._connection = connection
        return connection


class _Method:
    """One method of the service; its answers are of one type."""

    def __init__(self, calls: DirectCalls, path: str, answers: Any) -> None:
        self._calls = calls
        self._path = path
        self._decode = answers.FromString

    async def __call__(self, request: Any, *, timeout: float, metadata: Metadata = ()) -> Any:
        message = request.SerializeToString()
        return self._decode(await self._calls.call(self._path, message, timeout, metadata))


class _Connection(asyncio.Protocol):
    """One connection to the socket; it is one of `connections` as long as it is open."""

    def __init__(self, largest: int, connections: "set[_Connection]") -> None:
        self._protocol = Http2Client(largest)
        self._connections = connections
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, asyncio.Future[bytes]] = {}  # by stream

    @property
    def usable(self) -> bool:
        """Whether it takes new calls."""
        return self._protocol.usable

    @property
    def greeted(self) -> bool:
        """Whether the process at the other end has answered at all."""
        return self._protocol.greeted

    async def call(self, path: str, message: bytes, timeout: float, metadata: Metadata) -> bytes:
        """The answer to a call, as bytes; AioRpcError if there is none."""
        protocol = self._protocol
        if not protocol.usable:  # since it was made, a moment ago
            reason = f"{NOT_SENT}{protocol.over or 'etcd closes the connection'}"
            raise _error(grpc.StatusCode.UNAVAILABLE, reason)
        if protocol.full:
            reason = f"{NOT_SENT}etcd has as many calls as it takes at a time"
            raise _error(grpc.StatusCode.UNAVAILABLE, reason)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bytes] = loop.create_future()
        limit = min(_LONGEST_TIMEOUT, max(1, round(1000 * timeout)))
        block = _request_head(path, tuple(metadata)) + encode((("grpc-timeout", f"{limit}m"),))
        stream = protocol.request(block, _PREFIX.pack(0, len(message)) + message)
        self._waiting[stream] = future
        self._flush()
        timer = loop.call_later(timeout, _expire, future)
        try:
            return await future
        finally:
            timer.cancel()
            if self._waiting.pop(stream, None) is not None:  # it has no answer
                protocol.cancel(stream)
                self._flush()

    def close(self) -> None:
        """End the connection; calls in progress are cancelled."""
        self._protocol.lose("closed on this side")
        for future in self._waiting.values():
            future.cancel()
        if self._transport is not None:
            self._transport.abort()

    # For the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to talk HTTP/2."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is of no class of asyncio
        self._connections.add(self)
        self._flush()

    def data_received(self, data: bytes) -> None:
        """Hand out the answers that have arrived."""
        self._hand_out(self._protocol.receive(data))
        if self._protocol.over and self._transport is not None:
            self._transport.abort()
        else:
            self._flush()

    def eof_received(self) -> None:
        """No call can be made from now on; the event loop closes the connection."""
        self._hand_out(self._protocol.lose("etcd closed the connection"))

    def connection_lost(self, error: Exception | None) -> None:
        """No call gets an answer any more."""
        self._connections.discard(self)
        self._hand_out(self._protocol.lose(f"the connection was lost: {error or 'it was closed'}"))

    # Inside

    def _flush(self) -> None:
        if (out := self._protocol.to_send()) and self._transport is not None:
            self._transport.write(out)

    def _hand_out(self, events: list[Event]) -> None:
        for event in events:
            future = self._waiting.pop(event.stream, None)
            if future is None or future.done():
                continue
            if isinstance(event, NoAnswer):
                future.set_exception(_no_answer(event))
                continue
            try:
                future.set_result(_message(event))
            except grpc.aio.AioRpcError as error:
                future.set_exception(error)


@lru_cache(64)
def _request_head(path: str, metadata: tuple[tuple[str, str], ...]) -> bytes:
    """The headers of a call, except for its time limit."""
    return encode(
        (
            (":method", "POST"),
            (":scheme", "http"),
            (":path", path),
            (":authority", "localhost"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
            *metadata,
        )
    )


def _message(answer: Answer) -> bytes:
    """The message in an answer; AioRpcError if etcd answers with an error."""
    headers = dict(answer.headers)
    status = headers.get("grpc-status")
    if status is None:
        reason = f"HTTP status {headers.get(':status')} without a status of gRPC"
        raise _error(grpc.StatusCode.UNKNOWN, reason)
    if status != "0":
        code = _CODES.get(int(status) if status.isdecimal() else -1, grpc.StatusCode.UNKNOWN)
        raise _error(code, unquote(headers.get("grpc-message", "")))
    body = answer.body
    if len(body) < _PREFIX.size or _PREFIX.unpack_from(body) != (0, len(body) - _PREFIX.size):
        raise _error(grpc.StatusCode.INTERNAL, "etcd's answer is not one message")
    return body[_PREFIX.size :]


def _no_answer(event: NoAnswer) -> grpc.aio.AioRpcError:
    if event.too_large:
        return _error(grpc.StatusCode.RESOURCE_EXHAUSTED, event.reason)
    return _error(grpc.StatusCode.UNAVAILABLE, (NOT_SENT if event.unseen else "") + event.reason)


def _expire(future: "asyncio.Future[bytes]") -> None:
    if not future.done():
        future.set_exception(_error(grpc.StatusCode.DEADLINE_EXCEEDED, "no answer in time"))


def _error(code: grpc.StatusCode, reason: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=reason)
