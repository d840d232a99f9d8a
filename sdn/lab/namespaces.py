"""Work inside network namespaces from outside."""

from __future__ import annotations

import ctypes
import os
import socket as sockets
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from sdn.lab.run import TIMEOUT, bound

_NAMES = Path("/var/run/netns")  # where `ip netns` keeps them
_CLONE_NEWNET = 0x40000000

_libc = ctypes.CDLL(None, use_errno=True)
T = TypeVar("T")


def path_of(namespace: str) -> Path:
    """The file that stands for a namespace."""
    return _NAMES / namespace


class NamespaceThread:
    """A thread that enters namespaces, so that no other thread has to.

    It also starts the lab's processes: the kernel ends them with the thread that started them, and
    this one lives as long as the lab.
    """

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="lab")
        self._children: list[subprocess.Popen[Any]] = []

    def call(self, work: Callable[[], T], namespace: str | None = None) -> T:
        """Do a short piece of work in the thread; inside a namespace if one is named."""

        def task() -> T:
            if namespace is None:
                return work()
            with inside(namespace):
                return work()

        return self._executor.submit(task).result(TIMEOUT)

    def popen(self, argv: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a program that does not outlive this process, with the options of `Popen`."""
        command = bound(argv)
        return self.call(lambda: self._start(command, options))

    def socket(
        self, namespace: str, family: sockets.AddressFamily, kind: sockets.SocketKind
    ) -> sockets.socket:
        """A socket that belongs to a namespace."""
        return self.call(lambda: sockets.socket(family, kind), namespace)

    def end_children(self) -> None:
        """Kill the processes that were started and still run, and wait for their end."""
        for child in self._children:
            child.kill()
        for child in self._children:
            child.wait(TIMEOUT)

    def close(self) -> None:
        """End the thread."""
        self._executor.shutdown()

    def _start(self, command: Sequence[str], options: dict[str, Any]) -> subprocess.Popen[Any]:
        # The caller, who runs the lab, decides what is run.
        child = subprocess.Popen(command, **options)  # noqa: S603
        self._children = [*(each for each in self._children if each.poll() is None), child]
        return child


def in_new_namespace(work: Callable[[], T]) -> T:
    """Do the work inside a network namespace that is gone afterwards."""

    def task() -> T:
        _check(_libc.unshare(_CLONE_NEWNET), "a new network namespace")
        return work()

    # The namespace ends with the thread, so nothing has to be restored.
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(task).result(TIMEOUT)


@contextmanager
def inside(namespace: str) -> Iterator[None]:
    """Let this thread be inside a network namespace."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        there = os.open(path_of(namespace), os.O_RDONLY | os.O_CLOEXEC)
        try:
            _check(_libc.setns(there, _CLONE_NEWNET), f"namespace {namespace}")
        finally:
            os.close(there)
        try:
            yield
        finally:
            _check(_libc.setns(home, _CLONE_NEWNET), "the way back out of a namespace")
    finally:
        os.close(home)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
