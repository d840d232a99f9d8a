"""Processor time by kind of process, of this process and all that it has started."""

import os
from collections.abc import Iterator
from pathlib import Path

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")

# What stands in the command line of each kind, the most telling first.
_MARKS = (
    ("configurators", "ray::Configurator"),
    ("southbound", "ray::Southbound"),
    ("network", "network_process"),
    ("network", "bench.switches"),
    ("network", "ovs-vswitchd"),
    ("network", "ovsdb-server"),
    ("api", "api.http.server"),
    ("etcd", "etcd"),
    ("ray", "ray"),
)


def kind_of(arguments: str) -> str:
    """What kind of process has this command line."""
    return next((kind for kind, mark in _MARKS if mark in arguments), "other")


class Cpu:
    """Seconds of processor time since it was made, or since it was last asked."""

    def __init__(self) -> None:
        self._before = _seconds()

    def spent(self) -> dict[str, float]:
        """By kind; `load` is this process. Processes that have ended since do not count."""
        now = _seconds()
        found: dict[str, float] = {}
        for pid, seconds in now.items():
            kind = "load" if pid == os.getpid() else kind_of(_arguments(pid))
            found[kind] = found.get(kind, 0.0) + seconds - self._before.get(pid, 0.0)
        self._before = now
        return found


def below(root: int) -> dict[int, str]:
    """A process and all that it has started, with their command lines."""
    return {pid: _arguments(pid) for pid in _tree(root, dict(_stats()))}


def _seconds() -> dict[int, float]:
    """Of each process of this tree."""
    stats = dict(_stats())
    return {pid: stats[pid][1] for pid in _tree(os.getpid(), stats)}


def _tree(root: int, stats: dict[int, tuple[int, float]]) -> Iterator[int]:
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in stats.items():
        children.setdefault(parent, []).append(pid)
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        yield pid
        waiting += children.get(pid, ())


def _stats() -> Iterator[tuple[int, tuple[int, float]]]:
    """Parent and seconds of all processes."""
    for entry in _PROC.iterdir():
        if entry.name.isdecimal():
            try:
                # The name in parentheses may hold anything.
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has ended meanwhile
            yield int(entry.name), (int(fields[1]), (int(fields[11]) + int(fields[12])) / _TICKS)


def _arguments(pid: int) -> str:
    try:
        return (
            (_PROC / str(pid) / "cmdline")
            .read_bytes()
            .replace(b"\0", b" ")
            .decode(errors="replace")
        )
    except (FileNotFoundError, ProcessLookupError):
        return ""
