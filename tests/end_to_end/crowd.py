"""Applications on all hosts of a network, each a process of its own."""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, TypeVar

WAIT = 60.0

T = TypeVar("T")
Start = Callable[[str, list[str]], "subprocess.Popen[Any]"]
"""Starts a command on a host, with pipes of text."""


class Refused(Exception):
    """The application could not do what it was told."""


def here(_: str, command: list[str]) -> "subprocess.Popen[Any]":
    """Start a command as it is, for hosts that are emulated."""
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


class Application:
    """One application, told over a pipe what to do."""

    def __init__(self, url: str, host: str, start: Start = here) -> None:
        self.host = host
        command = [sys.executable, "-m", "tests.end_to_end.application", url, host]
        self._process = start(host, command)

    def do(self, what: str, **with_: Any) -> Any:
        """Have something done and give the answer."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps({"do": what, **with_}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the application on {self.host} has ended"
        said = json.loads(line)
        if "error" in said:
            raise Refused(said["error"])
        return said["answer"]

    def end(self) -> None:
        """End it; its records end with it."""
        assert self._process.stdin
        assert self._process.stdout
        try:
            self._process.stdin.close()
            assert self._process.wait(WAIT) == 0
        finally:
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()


class Crowd:
    """An application on each of some hosts, as a context manager."""

    def __init__(self, url: str, hosts: Sequence[str], start: Start = here) -> None:
        self._pool = ThreadPoolExecutor(len(hosts))
        self.applications = {host: Application(url, host, start) for host in hosts}

    def __getitem__(self, host: str) -> Application:
        return self.applications[host]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.together([application.end for application in self.applications.values()])
        self._pool.shutdown()

    def together(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Make calls at the same time; at most one for each host."""
        return [future.result(WAIT) for future in [self._pool.submit(call) for call in calls]]
