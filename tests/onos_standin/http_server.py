"""The HTTP side of the ONOS stand-in: threads read requests, the event loop answers them."""

import asyncio
import base64
import hmac
import logging
import socket
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from msgspec import Struct

log = logging.getLogger(__name__)

_LARGEST = 1 << 26
_WAIT = 60.0  # seconds that an answer may take to be made


class Request(Struct, frozen=True):
    """What a client asks for."""

    method: str
    path: tuple[str, ...]
    query: dict[str, str]
    body: bytes


Reply = tuple[int, bytes]
Answer = Callable[[Request], Awaitable[Reply]]


class HttpServer:
    """Listens on loopback; each request is answered by a coroutine in the loop that started it."""

    def __init__(self, user: str, password: str, answer: Answer, port: int) -> None:
        self.port = port
        self._credentials = base64.b64encode(f"{user}:{password}".encode()).decode()
        self._answer = answer
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listener: _Listener | None = None
        self._thread: threading.Thread | None = None
        self._answering: set[asyncio.Task[Any]] = set()
        self._place: socket.socket | None = None

    def reserve(self) -> None:
        """Take the port, so that no other process gets it while the server is stopped."""
        self._place = socket.socket()
        self._place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the listener does
        self._place.bind(("127.0.0.1", self.port))
        self.port = self._place.getsockname()[1]

    def give_up(self) -> None:
        """Leave the port to others."""
        if self._place is not None:
            self._place.close()

    async def start(self) -> None:
        """Listen, on the same port as before if it was started before."""
        self._loop = asyncio.get_running_loop()
        self._listener = _Listener(("127.0.0.1", self.port), self)
        self.port = self._listener.server_address[1]
        self._thread = threading.Thread(
            target=self._listener.serve_forever, args=(0.05,), name="onos-stand-in"
        )
        self._thread.start()

    async def stop(self) -> None:
        """Close the listener and all connections; requests under way get no answer."""
        listener, thread = self._listener, self._thread
        if listener is None or thread is None:
            return
        self._listener = self._thread = None
        for task in self._answering:
            task.cancel()

        def close() -> None:
            listener.shutdown()
            thread.join()
            listener.drop_connections()
            listener.server_close()

        await asyncio.to_thread(close)

    def authorized(self, given: str | None) -> bool:
        """Whether these are the right user and password."""
        return hmac.compare_digest(given or "", f"Basic {self._credentials}")

    def reply(self, request: Request) -> Reply:
        """The answer to a request; called by the threads that serve connections."""
        assert self._loop is not None
        made = asyncio.run_coroutine_threadsafe(self._make(request), self._loop)
        return made.result(_WAIT)

    async def _make(self, request: Request) -> Reply:
        task = asyncio.current_task()
        assert task is not None
        self._answering.add(task)
        try:
            return await self._answer(request)
        finally:
            self._answering.discard(task)


class _Listener(ThreadingHTTPServer):
    daemon_threads = False  # closing waits for them
    server_address: tuple[str, int]

    def __init__(self, address: tuple[str, int], owner: HttpServer) -> None:
        super().__init__(address, _Handler)
        self.owner = owner
        self._open: set[socket.socket] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def drop_connections(self) -> None:
        """Wake the threads that wait for another request."""
        for connection in list(self._open):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # it was closed in the same moment

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        log.debug("a connection broke", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Listener
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = 60.0
    wbufsize = -1

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        if not 0 <= length <= _LARGEST:
            self.send_error(413)
            self.close_connection = True
            return
        body = self.rfile.read(length)
        if not self.server.owner.authorized(self.headers.get("Authorization")):
            self._send(401, b"Unauthorized", {"WWW-Authenticate": 'Basic realm="karaf"'})
            return
        split = urlsplit(self.path)
        path = tuple(unquote(part) for part in split.path.strip("/").split("/"))
        query = {name: values[-1] for name, values in parse_qs(split.query).items()}
        try:
            status, content = self.server.owner.reply(Request(self.command, path, query, body))
        except (CancelledError, TimeoutError):
            self.close_connection = True
            return
        self._send(status, content, {})

    def _send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if status != 204:
            self.wfile.write(content)
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:
        log.debug(format, *args)
