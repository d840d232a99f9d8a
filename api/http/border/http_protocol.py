"""uvicorn's HTTP protocol with limits for clients that are slow or send too much."""

import asyncio
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from api.http.schema.models import ProblemOut

MAX_HEAD = 64 * 1024  # bytes of request line and headers
HEAD_TIMEOUT = 20.0  # seconds until they must have arrived
MAX_REST = 64 * 1024 * 1024  # bytes of a refused body that are read and discarded
MAX_CONNECTIONS = 4_096
_RETRY_AFTER = b"retry-after: 1\r\n"


class Protocol(HttpToolsProtocol):
    """Closes connections on which no request arrives in time, or one with endless headers."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head = 0  # bytes of the request's head so far
        self._in_head = True
        self._rest = 0  # bytes of a body that arrived after the answer
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timeout for the head of a request."""
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            self._refuse(503, "unavailable", "Too many connections", "try again soon", _RETRY_AFTER)
        else:
            self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timeout."""
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count the bytes of the head."""
        if self.transport.is_closing():
            return
        if self._in_head:
            self._head += len(data)
            if self._head_timer is None:
                self._expect_head()
        super().data_received(data)
        # If the head is complete, the rest of the data belongs to the body.
        if self._in_head and self._head > MAX_HEAD:
            text = f"request line and headers have at most {MAX_HEAD} bytes"
            self._refuse(431, "head-too-large", "The headers are too large", text)

    def on_message_begin(self) -> None:
        """Start counting the head of a request."""
        self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The head is complete: stop its timeout."""
        self._in_head = False
        self._head = self._rest = 0
        self._stop_timer()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Count the bytes of a body that arrive after the answer."""
        if self.cycle.response_complete:
            self._rest += len(body)
            if self._rest > MAX_REST:
                self.transport.close()
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is complete: the next bytes belong to the head of another one."""
        self._in_head = True
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer a request that is not HTTP."""
        self._refuse(400, "bad-http", "This is not HTTP/1.1", msg)

    def _expect_head(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_TIMEOUT, self._head_too_slow)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_too_slow(self) -> None:
        self._head_timer = None
        if not self.transport.is_closing():
            text = f"the headers did not arrive within {HEAD_TIMEOUT:g} s"
            self._refuse(408, "timeout", "The request arrived too slowly", text)

    def _refuse(
        self, status: int, kind: str, title: str, detail: str, headers: bytes = b""
    ) -> None:
        problem = ProblemOut(f"/problems/{kind}", title, status, detail)
        content = msgspec.json.encode(problem)
        self.transport.write(
            b"HTTP/1.1 %d %b\r\ncontent-type: application/problem+json\r\n"
            b"content-length: %d\r\nconnection: close\r\n%b\r\n%b"
            % (status, title.encode(), len(content), headers, content)
        )
        self.transport.close()
