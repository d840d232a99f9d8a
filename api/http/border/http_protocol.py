"""uvicorn's HTTP protocol with limits for clients that are slow, idle, or send too much."""

import asyncio
from typing import Any

import msgspec
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from api.http.app_settings import ApiSettings
from api.http.border.acceptor import Guest
from api.http.schema.models import ProblemOut
from dzflow.process.connections import ConnectionTable

RESERVED = "dzflow.reserved"
"""The key in the scope of a request on a connection of the reserve."""

MAX_HEAD = 64 * 1024  # bytes of request line and headers
MAX_REST = 64 * 1024 * 1024  # bytes of a refused body that are read and discarded
MAX_PIPELINED = 64  # requests that wait for the answer to another one of their connection
MIN_READ = 32 * 1024  # bytes that a client reads within the send timeout while more wait for it


class TooManyPipelined(Exception):
    """A client has sent too many requests without waiting for the answers."""


class Protocol(HttpToolsProtocol, Guest):
    """One connection; tells the table when it is at work, and closes itself when it is too slow."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        settings: ApiSettings,
        table: "ConnectionTable[Protocol]",
    ) -> None:
        super().__init__(config, server_state, app_state)
        self._settings = settings
        self._table = table
        self._reserved = False
        self._head = 0  # bytes of the request's head so far
        self._in_head = True
        self._rest = 0  # bytes of a body that arrived after the answer
        self._beside = 0  # bytes since the last of a body: sizes and extensions of chunks, trailers
        self._arrival: asyncio.TimerHandle | None = None  # of a head, or the rest of a body
        self._departure: asyncio.TimerHandle | None = None  # of an answer that waits to be read
        self._unread = 0  # bytes of it when the timer was started

    # The connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timeout for the head of a request."""
        super().connection_made(transport)
        self._reserved = self._table.is_reserved(self)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave the table, and stop the timeouts."""
        self._table.remove(self)
        self._stop_arrival()
        self._stop_departure()
        super().connection_lost(exc)

    def evict(self) -> None:
        """Close the connection at once: another one needs its place."""
        self.transport.abort()

    # What the client sends

    def data_received(self, data: bytes) -> None:
        """Count the bytes of the head."""
        if self.transport.is_closing():
            return
        if self._in_head:
            self._head += len(data)
            if self._arrival is None:
                self._expect_head()
        else:
            self._beside += len(data)
        super().data_received(data)
        # If the head is complete, the rest of the data belongs to the body.
        if self._beside > MAX_HEAD:
            self.transport.abort()
        elif self._in_head and self._head > MAX_HEAD:
            text = f"request line and headers have at most {MAX_HEAD} bytes"
            self._refuse(431, "head-too-large", "The headers are too large", text)

    def on_message_begin(self) -> None:
        """Start counting the head of a request."""
        if len(self.pipeline) >= MAX_PIPELINED:
            raise TooManyPipelined  # stops the parser; uvicorn calls `send_400_response`
        self._in_head = True
        super().on_message_begin()
        if self._reserved:
            self.scope[RESERVED] = True  # type: ignore[literal-required]

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header. Trailers, which come after a body, are none, and are ignored."""
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is complete: stop its timeout."""
        self._in_head = False
        self._head = self._rest = self._beside = 0
        self._stop_arrival()
        self._table.busy(self)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Count the bytes of a body that arrive after the answer."""
        self._beside = 0
        if self.cycle.response_complete:
            self._rest += len(body)
            if self._rest > MAX_REST:
                self.transport.close()
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is complete: the next bytes belong to the head of another one."""
        self._in_head = True
        self._beside = 0
        if self.cycle.response_complete:
            self._stop_arrival()
            self._expect_head()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer a request that is not HTTP."""
        self._refuse(400, "bad-http", "This is not HTTP/1.1", msg)

    def _expect_head(self) -> None:
        seconds = self._settings.head_timeout
        self._arrival = self.loop.call_later(seconds, self._too_slow, "headers", seconds)

    def _stop_arrival(self) -> None:
        if self._arrival is not None:
            self._arrival.cancel()
            self._arrival = None

    def _too_slow(self, part: str, seconds: float) -> None:
        self._arrival = None
        text = f"the {part} did not arrive within {seconds:g} s"
        self._refuse(408, "timeout", "The request arrived too slowly", text)

    def _refuse(self, status: int, kind: str, title: str, detail: str) -> None:
        if self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:
            # Another request is in progress: the client would take this for the answer to it.
            self.transport.abort()
            return
        problem = ProblemOut(f"/problems/{kind}", title, status, detail)
        content = msgspec.json.encode(problem)
        self.transport.write(
            b"HTTP/1.1 %d %b\r\ncontent-type: application/problem+json\r\n"
            b"content-length: %d\r\nconnection: close\r\n\r\n%b"
            % (status, title.encode(), len(content), content)
        )
        self.transport.close()

    # What the client reads

    def on_response_complete(self) -> None:
        """The connection is idle, unless another request waits already."""
        super().on_response_complete()
        if not self.cycle.response_complete or self.transport.is_closing():
            return
        self._table.idle(self)
        if not self._in_head:
            # The answer came before the end of the body, which need not be kept for long.
            seconds = self._settings.body_timeout
            self._arrival = self.loop.call_later(seconds, self._close)

    def pause_writing(self) -> None:
        """Much waits to be read: from now on the client must read it, if slowly."""
        super().pause_writing()
        self._expect_reading()

    def resume_writing(self) -> None:
        """The client has read most of it."""
        self._stop_departure()
        super().resume_writing()

    def _expect_reading(self) -> None:
        self._stop_departure()
        self._unread = self.transport.get_write_buffer_size()
        self._departure = self.loop.call_later(self._settings.send_timeout, self._check_reading)

    def _check_reading(self) -> None:
        self._departure = None
        if self._unread - self.transport.get_write_buffer_size() < MIN_READ:
            self.transport.abort()  # `close` would wait for the client to read the rest
        else:
            self._expect_reading()

    def _stop_departure(self) -> None:
        if self._departure is not None:
            self._departure.cancel()
            self._departure = None

    def _close(self) -> None:
        self._arrival = None
        self.transport.close()
