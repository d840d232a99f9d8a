"""The whole service for tests: real processes, Ray and etcd.

Use it for tests of starting, stopping, settings and dead processes. It takes about ten seconds to
start. `running` is the service inside the test's process, `Up` is the command `dzflow up`. Tests
that only send requests use `tests/stack.py`, which is faster.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from api.start.roles import Only
from api.start.settings.sources import load
from api.start.up import Service
from dzflow.sdk import Rest

SCHEMA = {"attributes": [{"name": "price", "type": "float", "min": 0, "max": 1000}]}
COMMAND = str(Path(sys.executable).parent / "dzflow")
LIMIT = 120.0  # seconds to wait for anything


def eventually(condition: Callable[[], Any], what: str) -> Any:
    """Wait until a condition is true, and give its value."""
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"not so within {LIMIT:.0f} s: {what}")


def is_ready(url: str) -> bool:
    """Whether the service is ready without restrictions."""
    try:
        return bool(httpx.get(f"{url}/readyz", timeout=5).json()["status"] == "ready")
    except httpx.TransportError:
        return False


def flows(url: str, source: str) -> list[str]:
    """The entries of all spaces and switches, as the control plane (cp) or they (dp) have them."""
    found = []
    with Rest(url) as rest:
        for switch in rest.get("/switches")["items"]:
            told = rest.get(f"/switches/{switch['id']}/flows", source=source)
            uncounted = [{**flow, "packets": None, "bytes": None} for flow in told["items"]]
            found += [f"{switch['id']} {flow}" for flow in uncounted if flow["space"]]
    return sorted(found)


@contextmanager
def running(
    folder: Path, only: Only | None = None, said: list[str] | None = None, **options: Any
) -> Iterator[Service]:
    """A service of the test's own, at a free port, with three switches unless `options` differ.

    An option that is None is left out.
    """
    small = {"port": 0, "data_dir": folder, "topology": "line:3"}
    given = {name: value for name, value in {**small, **options}.items() if value is not None}
    settings = load(options=given, environment={})
    tell = (lambda _: None) if said is None else said.append
    with Service(settings, only, tell) as service:
        yield service


class Up:
    """The command `dzflow up`, in a process of its own. Its children have its folder in their
    command lines or environments, so that tests can find them."""

    def __init__(self, folder: Path, *words: str, **variables: str) -> None:
        environment = {**os.environ, **variables, "DZFLOW_DATA_DIR": str(folder), "COLUMNS": "200"}
        self.folder = folder
        self.at = ""  # the address of the API, once it is known
        self.process = subprocess.Popen(
            [COMMAND, "up", "--port", "0", *words],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def url(self) -> str:
        """The address of the API, once everything is ready."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if found := re.search(r"http://[0-9.:]+", line):
                self.at = found[0]
                return self.at
        raise AssertionError(self.process.communicate()[1])

    def left(self) -> dict[int, str]:
        """Its children that are still there."""
        found = processes_with(str(self.folder))
        found.pop(self.process.pid, None)
        return found

    def end(self, how: signal.Signals) -> int:
        """Send a signal, and wait for the end; the exit code."""
        self.process.send_signal(how)
        self.process.communicate(timeout=LIMIT)
        return self.process.returncode


def processes_with(word: str) -> dict[int, str]:
    """All other processes whose command line or environment has this word."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes()
                variables = (entry / "environ").read_bytes()
                state = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
            if state not in "ZX" and word.encode() in command + b"\0" + variables:
                found[int(entry.name)] = command.replace(b"\0", b" ").decode(errors="replace")
    return found
