"""A child process of the service, from the inside.

The child reads its orders from its standard input, as one line of JSON. Another line tells it to
end in order. If the input is closed, because the parent is gone, the child ends at once. Its
reports go to a pipe.
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
from api.start.hardening import harden_process
from api.start.settings.settings import Settings
from api.start.settings.sources import restore
from dzflow.errors import DzflowError

_log = logging.getLogger(__name__)

_PR_SET_PDEATHSIG = 1

FAILED = 3
"""The exit code of a child that has reported why it cannot go on."""


class Orders(Struct, frozen=True):
    """The orders that a child gets from its parent."""

    name: str
    settings: dict[str, Any]
    rest: dict[str, Any] = {}


class Child:
    """The context of a child's work: settings, orders, and a way to report."""

    def __init__(self, orders: Orders, settings: Settings, reports: int) -> None:
        self.name = orders.name
        self.settings = settings
        self.orders = orders.rest
        self.ready = False  # whether it has reported so
        self._reports = reports

    def report(self, **message: Any) -> None:
        """Send a report to the parent; `ready=True` once the child serves."""
        self.ready = self.ready or bool(message.get("ready"))
        os.write(self._reports, json.dumps(message).encode() + b"\n")


Work = Callable[[Child, asyncio.Event], Awaitable[None]]
"""Does the work of a child until the event is set."""


def run(work: Work) -> None:
    """Run as a child process: work until the parent says stop or is gone, or until SIGTERM."""
    _die_with_parent()
    harden_process()
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
    given = json.loads(line)
    return Orders(given["name"], given["settings"], given["rest"])


def _listen_to_parent(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """Stop when the parent sends a line; end this process when the pipe is closed."""
    # Not sys.stdin: this thread would hold its lock, and the interpreter could not exit.
    # Not a signal: libraries such as Ray install their own handlers.
    while os.read(0, 1):
        loop.call_soon_threadsafe(stop.set)
    os._exit(1)


def _die_with_parent() -> None:
    """Let the kernel end this process with its parent, where it can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
