"""Reports why a partition waits when an operation takes long."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

log = logging.getLogger(__name__)

TELL_AFTER = 1.0  # seconds of waiting before the reason is reported


class Waiter(Protocol):
    """A partition that can show why it waits."""

    reason: str | None

    def say_why(self, reason: str | None) -> None:
        """Show why it waits, or (None) that it no longer waits."""


@contextlib.contextmanager
def report_long_wait(
    waiters: Iterable[Waiter], why: Callable[[], str], tell_after: float = TELL_AFTER
) -> Iterator[None]:
    """Have the waiters show a reason if the body takes longer than `tell_after` seconds.

    `why` is called at that moment. At the end each waiter that still shows this reason drops it.
    """
    told: list[tuple[Waiter, str]] = []

    def report() -> None:
        reason = why()
        log.warning("%s", reason)
        for waiter in waiters:
            told.append((waiter, reason))
            waiter.say_why(reason)

    timer = asyncio.get_running_loop().call_later(tell_after, report)
    try:
        yield
    finally:
        timer.cancel()
        for waiter, reason in told:
            if waiter.reason == reason:
                waiter.say_why(None)
