"""`dzflow top`: on a terminal, without one, and when the service is gone."""

import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import ioctl
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.command import run_dzflow
from tests.dzflow.test_load_screen import LOAD, READY
from tests.service import COMMAND
from tests.support import WAIT

ROWS, COLUMNS = 24, 80
_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\].*?\x07")


class Service(ThreadingHTTPServer):
    """A service that answers with a recorded load."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.items: list[Any] = [LOAD]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Service)
        load = {"resolution": 1, "items": self.server.items, "next": None}
        path = self.path.partition("?")[0]
        body = json.dumps({"/load": load, "/readyz": READY}[path]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def environment(columns: int) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    return {**kept, "COLUMNS": str(columns), "TERM": "xterm", "LC_ALL": "C.UTF-8"}


def run(url: str, *words: str, columns: int = 200) -> "subprocess.CompletedProcess[str]":
    return run_dzflow("top", *words, "--url", url, env=environment(columns))


class Terminal:
    """A terminal on which a command runs."""

    def __init__(self, command: list[str]) -> None:
        self._master, slave = pty.openpty()
        ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.before = termios.tcgetattr(slave)
        self._slave = slave
        child = {name: v for name, v in environment(0).items() if name != "COLUMNS"}
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=child, start_new_session=True
        )
        self._shown = ""

    def press(self, key: str) -> None:
        os.write(self._master, key.encode())

    def until(self, text: str) -> str:
        """Read until a text is shown; everything since the last time."""
        deadline = time.monotonic() + WAIT
        while text not in _SEQUENCE.sub("", self._shown):
            left = deadline - time.monotonic()
            assert left > 0, f"{text!r} is not shown: {self._shown[-5_000:]!r}"
            if select.select([self._master], [], [], left)[0]:
                self._shown += os.read(self._master, 65_536).decode()
        found, self._shown = _SEQUENCE.sub("", self._shown), ""
        return found

    def settings(self) -> Any:
        return termios.tcgetattr(self._slave)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for end in (self._master, self._slave):
            os.close(end)


@contextmanager
def terminal(url: str, *words: str) -> Iterator[Terminal]:
    found = Terminal([COMMAND, "top", "--interval", "0.2", *words, "--url", url])
    try:
        yield found
    finally:
        found.close()


def test_it_is_live_on_a_terminal_until_q(service: Service) -> None:
    with terminal(service.url) as it:
        shown = it.until("q quit   by load")
        it.until(LOAD["partitions"][0]["id"])
        assert "l load  n queue  r rate  w wait  o ops" in shown
        it.press("n")
        it.until("by queue")
        service.items = [{**LOAD, "total": {**LOAD["total"], "queued": 4321}}]
        it.until("queue 4,321")
        it.press("q")
        assert it.process.wait(WAIT) == 0
        assert it.settings() == it.before


def test_an_interrupt_ends_it_and_restores_the_terminal(service: Service) -> None:
    with terminal(service.url) as it:
        it.until("q quit")
        it.process.send_signal(signal.SIGINT)
        assert it.process.wait(WAIT) == 128 + signal.SIGINT
        assert it.settings() == it.before


def test_it_says_if_the_service_is_gone_and_goes_on_when_it_is_back(service: Service) -> None:
    with terminal(service.url) as it:
        it.until("q quit")
        service.items = []
        it.until("no load was measured")
        service.items = [{**LOAD, "total": {**LOAD["total"], "queued": 77}}]
        it.until("queue 77")
        service.shutdown()
        service.socket.close()
        it.until("no answer from")
        it.press("q")
        assert it.process.wait(WAIT) == 0


def test_a_service_that_is_not_reachable_is_an_error() -> None:
    for words in ([], ["--once"], ["--json"]):
        done = run("http://127.0.0.1:1", *words)
        assert done.returncode == 1
        assert "is the control plane running there?" in " ".join(done.stderr.split())
        assert done.stdout == ""


def test_nothing_measured_is_an_error(service: Service) -> None:
    service.items = []
    done = run(service.url, "--once")
    assert done.returncode == 1
    assert "try again in a second" in done.stderr


def test_it_prints_once_without_a_terminal(service: Service) -> None:
    done = run(service.url, columns=80)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == run(service.url, "--once", columns=80).stdout
    assert all(part["id"] in done.stdout for part in LOAD["partitions"])
    assert "\x1b" not in done.stdout


def test_machines_get_json_once_or_a_line_at_a_time(service: Service) -> None:
    assert json.loads(run(service.url, "--once", "--json").stdout) == LOAD
    command = [COMMAND, "top", "--json", "--interval", "0.2", "--url", service.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment(80)) as process:
        assert process.stdout
        assert [json.loads(process.stdout.readline()) for _ in range(2)] == [LOAD, LOAD]
        process.terminate()
        assert process.wait(WAIT) == 143


def test_a_wrong_option_is_refused(service: Service) -> None:
    assert run(service.url, "--sort", "colour").returncode == 2
    assert run(service.url, "--interval", "0").returncode == 2
