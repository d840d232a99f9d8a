"""A port of this machine answers inside the hosts of a lab."""

import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from sdn.lab import Lab, relay
from sdn.lab.errors import LabError
from sdn.network.topologies import topology
from tests.sdn.lab.support import SECONDS, needs_lab

pytestmark = needs_lab

GET = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=20).read().decode())"


class Hello(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"hello {self.path}".encode())

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server outside that answers each connection in a thread, and its port."""
    threads = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                connection.settimeout(SECONDS)
                threads.append(threading.Thread(target=close_after, args=(connection,)))
                threads[-1].start()

        def close_after(connection: socket.socket) -> None:
            with connection:
                answer(connection)

        acceptor = threading.Thread(target=accept)
        acceptor.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            acceptor.join(SECONDS)
            for thread in threads:
                thread.join(SECONDS)


def echo(connection: socket.socket) -> None:
    try:
        while data := connection.recv(4096):
            connection.sendall(data)
    except ConnectionResetError:
        pass


def read_all(connection: socket.socket) -> bytes:
    data = b""
    while more := connection.recv(1 << 16):
        data += more
    return data


def connect(lab: Lab, host: str, port: int) -> socket.socket:
    """A connection from inside a host to the address that outside is the server's."""
    connection = lab.socket(host, socket.AF_INET, socket.SOCK_STREAM)
    try:
        connection.settimeout(SECONDS)
        connection.connect(("127.0.0.1", port))
    except BaseException:
        connection.close()
        raise
    return connection


def test_a_web_server_outside_answers_at_its_own_address_in_every_host(root: Path) -> None:
    with HTTPServer(("127.0.0.1", 0), Hello) as server, Lab(topology("line:2"), root=root) as lab:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            lab.relay(server.server_port)
            for host in ("h1", "h2"):
                url = f"http://127.0.0.1:{server.server_port}/{host}"
                done = lab.exec(host, [sys.executable, "-c", GET, url])
                assert done.stdout == f"hello /{host}\n"
        finally:
            server.shutdown()
            thread.join(SECONDS)


def test_one_direction_may_end_before_the_other(root: Path) -> None:
    size = 1 << 20

    def count(connection: socket.socket) -> None:
        # Only after the end of all that the client has to say.
        connection.sendall(struct.pack("!I", len(read_all(connection))) * (size // 4))

    with serving(count) as port, Lab(topology("line:1"), root=root) as lab:
        lab.relay(port)
        with connect(lab, "h1", port) as client:
            client.sendall(b"x" * size)
            client.shutdown(socket.SHUT_WR)
            assert read_all(client) == struct.pack("!I", size) * (size // 4)


def test_a_connection_ends_when_nothing_listens_outside(root: Path) -> None:
    with socket.socket() as unused, Lab(topology("line:1"), root=root) as lab:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        lab.relay(port)
        # The break may come before the client has noticed that it is connected.
        with pytest.raises(ConnectionResetError), connect(lab, "h1", port) as client:
            client.recv(1)


def test_a_break_outside_is_a_break_inside(root: Path) -> None:
    def break_off(connection: socket.socket) -> None:
        connection.recv(1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with serving(break_off) as port, Lab(topology("line:1"), root=root) as lab:
        lab.relay(port)
        with connect(lab, "h1", port) as client:
            client.sendall(b"x")
            with pytest.raises(ConnectionResetError):
                client.recv(1)


def test_more_connections_than_allowed_wait_their_turn(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "MAX_CONNECTIONS", 2)
    served = []

    def counted(connection: socket.socket) -> None:
        served.append(connection)
        echo(connection)

    with serving(counted) as port, Lab(topology("line:1"), root=root) as lab:
        lab.relay(port)
        first, second, third = (connect(lab, "h1", port) for _ in range(3))
        with first, second, third:
            for client in (first, second):
                client.sendall(b"a")
                assert client.recv(1) == b"a"
            third.sendall(b"b")
            second.sendall(b"c")
            assert second.recv(1) == b"c"
            assert len(served) == 2
            first.close()
            assert third.recv(1) == b"b"


def test_connections_end_with_the_relay(root: Path) -> None:
    with serving(echo) as port, Lab(topology("line:1"), root=root) as lab:
        opened = lab.relay(port)
        with connect(lab, "h1", port) as client:
            client.sendall(b"x")
            assert client.recv(1) == b"x"
            opened.close()
            assert client.recv(1) == b""
        with pytest.raises(ConnectionRefusedError):
            connect(lab, "h1", port)
        opened.close()
        lab.relay(port)
        with connect(lab, "h1", port) as client:
            client.sendall(b"y")
            assert client.recv(1) == b"y"


def test_a_port_that_a_host_uses_itself_cannot_be_relayed(root: Path) -> None:
    with (
        Lab(topology("line:2"), root=root) as lab,
        lab.socket("h2", socket.AF_INET, socket.SOCK_STREAM) as own,
    ):
        own.bind(("127.0.0.1", 0))
        own.listen()
        with pytest.raises(LabError, match="cannot be had in h2: Address already in use"):
            lab.relay(own.getsockname()[1])
