"""Processor time by kind of process, of this process and all its descendants."""

import os
from collections.abc import Iterator
from pathlib import Path

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")

# Substrings of command lines and the kind of process they stand for; the first match counts.
_MARKS = (
    ("configurators", "ray::Configurator"),
    ("southbound", "ray::Southbound"),
    ("network", "network_process"),
    ("network", "bench.processes.switches"),
    ("network", "ovs-vswitchd"),
    ("network", "ovsdb-server"),
    ("api", "api.start.api_server"),
    ("etcd", "etcd"),
    ("ray", "ray"),
)


def kind_of(command_line: str) -> str:
    """The kind of a process with this command line."""
    return next((kind for kind, mark in _MARKS if mark in command_line), "other")


class CpuMeter:
    """Measures processor time since its creation, or since the last reading."""

    def __init__(self) -> None:
        self._before = process_seconds(os.getpid())

    def read(self) -> dict[str, float]:
        """Seconds by kind of process since the last reading; `load` is this process.

        Processes that have ended meanwhile do not count.
        """
        now = process_seconds(os.getpid())
        found: dict[str, float] = {}
        for pid, seconds in now.items():
            kind = "load" if pid == os.getpid() else kind_of(_command_line(pid))
            found[kind] = found.get(kind, 0.0) + seconds - self._before.get(pid, 0.0)
        self._before = now
        return found


def process_tree(root: int) -> dict[int, str]:
    """A process and its descendants, with their command lines."""
    return {pid: _command_line(pid) for pid in _descendants(root, dict(_stats()))}


def process_seconds(root: int) -> dict[int, float]:
    """Processor time of a process and each descendant; empty if it has ended."""
    stats = dict(_stats())
    return {pid: stats[pid][1] for pid in _descendants(root, stats) if pid in stats}


def _descendants(root: int, stats: dict[int, tuple[int, float]]) -> Iterator[int]:
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in stats.items():
        children.setdefault(parent, []).append(pid)
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        yield pid
        waiting += children.get(pid, ())


def _stats() -> Iterator[tuple[int, tuple[int, float]]]:
    """Parent and processor seconds of all processes."""
    for entry in _PROC.iterdir():
        if entry.name.isdecimal():
            try:
                # The name in parentheses may contain spaces and parentheses.
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue  # the process has ended meanwhile
            yield int(entry.name), (int(fields[1]), (int(fields[11]) + int(fields[12])) / _TICKS)


def _command_line(pid: int) -> str:
    try:
        return (
            (_PROC / str(pid) / "cmdline")
            .read_bytes()
            .replace(b"\0", b" ")
            .decode(errors="replace")
        )
    except (FileNotFoundError, ProcessLookupError):
        return ""
