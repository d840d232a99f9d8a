"""A child process of the service, seen from inside.

It reads what it shall do from its standard input, as one line of JSON, and goes on to listen there:
another line means that it shall end in order; when the parent is gone, for whatever reason, it ends
at once. What it has to report goes to a pipe.
"""

import asyncio
import ctypes
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import uvloop
from msgspec import Struct

from api.start import logs
from api.start.settings import Settings
from api.start.settings_sources import restore
from dzflow.errors import DzflowError

_log = logging.getLogger(__name__)

_PR_SET_PDEATHSIG = 1

FAILED = 3
"""The exit code of a child that has said why it cannot go on."""


class Orders(Struct, frozen=True):
    """What a child is told by its parent."""

    name: str
    settings: dict[str, Any]
    rest: dict[str, Any] = {}


class Child:
    """What the work of a child process gets: settings, orders, and a way to report."""

    def __init__(self, orders: Orders, settings: Settings, reports: int) -> None:
        self.name = orders.name
        self.settings = settings
        self.orders = orders.rest
        self._reports = reports

    def report(self, **said: Any) -> None:
        """Tell the parent; `ready=True` once the work can be relied on."""
        os.write(self._reports, json.dumps(said).encode() + b"\n")


Work = Callable[[Child, asyncio.Event], Awaitable[None]]
"""Does the work of a child until the event is set."""


def run(work: Work) -> None:
    """Be a child process: do the work until the parent says so, or is gone, or until SIGTERM."""
    _die_with_parent()
    reports = int(sys.argv[1])
    orders = _orders()
    settings = restore(orders.settings)
    logs.configure(settings, orders.name)
    child = Child(orders, settings, reports)
    try:
        uvloop.run(_work(child, work))
    except* DzflowError as found:
        _log.critical("%s cannot go on", child.name, exc_info=found)
        child.report(failed="; ".join(_messages(found)))
        sys.exit(FAILED)


def _messages(found: BaseExceptionGroup[DzflowError]) -> Iterator[str]:
    for error in found.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _messages(error)
        else:
            yield str(error)


async def _work(child: Child, work: Work) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    args = (loop, stop)
    threading.Thread(target=_listen_to_parent, args=args, name="parent", daemon=True).start()
    await work(child, stop)


def _orders() -> Orders:
    line = sys.stdin.buffer.readline()
    if not line:
        os._exit(0)  # the parent has gone already
    said = json.loads(line)
    return Orders(said["name"], said["settings"], said["rest"])


def _listen_to_parent(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """Stop when the parent says something; end this process when its end of the pipe is closed."""
    # Not through sys.stdin: its lock, held here for good, would spoil the interpreter's exit.
    # Not by a signal: libraries such as Ray have handlers of their own.
    while os.read(0, 1):
        loop.call_soon_threadsafe(stop.set)
    os._exit(1)


def _die_with_parent() -> None:
    """Let the kernel end this process with its parent, where it can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
