"""The load balancer of the tests leaves nothing behind."""

import gc
import http.server
import socket
import threading

import httpx

from tests.balancer import Balancer
from tests.support import WAIT


class _Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def test_connections_that_are_open_when_it_ends_are_closed() -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Ready) as api:
        serving = threading.Thread(target=api.serve_forever)
        serving.start()
        try:
            with Balancer([f"http://127.0.0.1:{api.server_port}"]) as balancer:
                url = httpx.URL(balancer.url)
                used = socket.create_connection((url.host, url.port), timeout=WAIT)
                used.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
                assert used.recv(8) == b"HTTP/1.0"
                fresh = socket.create_connection((url.host, url.port), timeout=WAIT)
            with used, fresh:
                while used.recv(1000):
                    """The rest of the answer."""
            gc.collect()  # what is left open is an error
        finally:
            api.shutdown()
            serving.join()
