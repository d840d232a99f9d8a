"""The event loop of async tests. A test fails if it leaves connections open when its loop ends."""

import asyncio
from collections.abc import Generator
from typing import Any, TypeVar

R = TypeVar("R")

_left_open: list[str] = []  # connections of loops that have ended in this phase of a test


class LeftOpen(Exception):
    """Connections were open when the event loop of a test ended."""


class TestLoop(asyncio.SelectorEventLoop):
    """Notes connections that nobody has closed, and ignores gRPC calls of earlier tests.

    gRPC has one completion queue for all event loops of a process. When a call of a closed loop
    ends late, gRPC fails with an error in the loop that runs then.
    """

    __test__ = False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Report an error, unless it is such a late call."""
        late = str(context.get("exception")) == "Event loop is closed"
        if not (late and "PollerCompletionQueue" in context.get("message", "")):
            super().call_exception_handler(context)

    def close(self) -> None:
        """Close the loop, after connections that are still open."""
        # Not public, but nothing else knows them all. An error here would end anyio's plugin.
        left = [] if self.is_closed() else list(self._transports.values())  # type: ignore[attr-defined]
        left = [transport for transport in left if transport._sock is not None]
        for transport in left:
            _left_open.append(_describe(transport))
            transport.abort()  # for the garbage collector not to report them in a later test
        if left:
            self.run_until_complete(asyncio.sleep(0))
        super().close()


def fail_if_left_open() -> Generator[None, R, R]:
    """The body of a pytest hook that wraps a phase of a test: LeftOpen if its loop left any."""
    _left_open.clear()  # of a phase that failed: then that is no news
    result = yield
    if left := ", ".join(_left_open):
        _left_open.clear()
        raise LeftOpen(left)
    return result


def _describe(transport: Any) -> str:
    ours, theirs = (transport.get_extra_info(name) for name in ("sockname", "peername"))
    return f"{type(transport.get_protocol()).__qualname__} from {ours} to {theirs}"
