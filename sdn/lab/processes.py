"""Processes by number, such that a number that is used again is never mistaken."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from sdn.lab.errors import LabError
from sdn.lab.run import TIMEOUT

_PROC = Path("/proc")

FileId = tuple[int, int]
"""What two paths of one file, or of one namespace, have in common."""


class Owner(Struct, frozen=True):
    """One process of one boot of the machine; no other process ever equals it."""

    pid: int
    started: int
    boot: str

    @classmethod
    def current(cls) -> Owner:
        """This process."""
        started = _start_time(os.getpid())
        assert started is not None
        return cls(os.getpid(), started, _boot())

    def is_alive(self) -> bool:
        """Whether the process still runs."""
        return self.boot == _boot() and _start_time(self.pid) == self.started


def all_processes() -> Iterator[int]:
    """The numbers of all processes but this one."""
    for entry in _PROC.iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            yield int(entry.name)


def arguments(pid: int) -> list[str]:
    """The command line of a process; empty if there is no such process."""
    try:
        raw = (_PROC / str(pid) / "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return raw.decode(errors="replace").split("\0")[:-1]


def network(pid: int) -> FileId | None:
    """The network namespace of a process; None if it cannot be seen."""
    try:
        return file_id(_PROC / str(pid) / "ns" / "net")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None


def file_id(path: Path) -> FileId:
    """What identifies the file at a path."""
    status = path.stat()
    return status.st_dev, status.st_ino


def end(pids: Iterable[int], belongs: Callable[[int], bool]) -> int:
    """Kill those processes that belong, wait until they are gone, and say how many there were."""
    killed = 0
    for pid in pids:
        with _handle(pid) as handle:
            # Asked with the handle open: from here on the number means this process and no other.
            if handle is not None and belongs(pid):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
                _wait(pid, handle)
                killed += 1
    return killed


@contextmanager
def _handle(pid: int) -> Iterator[int | None]:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        yield None
        return
    try:
        yield handle
    finally:
        os.close(handle)


def _wait(pid: int, handle: int) -> None:
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    if not poll.poll(TIMEOUT * 1000):
        raise LabError(f"process {pid} is still there {TIMEOUT:.0f} s after it was killed")


def _start_time(pid: int) -> int | None:
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses may hold anything; behind it come the state and, 19 fields on, when
    # the process was started. One that is dead but not yet waited for counts as gone.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def _boot() -> str:
    return (_PROC / "sys" / "kernel" / "random" / "boot_id").read_text().strip()
