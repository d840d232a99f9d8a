"""What waits long says why."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

log = logging.getLogger(__name__)

PATIENCE = 1.0  # seconds of waiting before it is said


class Waiter(Protocol):
    """Something that can show why it waits."""

    reason: str | None

    def say_why(self, reason: str | None) -> None:
        """Show why it waits, or (None) that it does no longer."""


@contextlib.contextmanager
def saying_why(
    waiters: Iterable[Waiter], why: Callable[[], str], patience: float = PATIENCE
) -> Iterator[None]:
    """Have all of them show why they wait, if what is done meanwhile lasts."""
    told: list[tuple[Waiter, str]] = []

    def tell() -> None:
        reason = why()
        log.warning("%s", reason)
        for waiter in waiters:
            told.append((waiter, reason))
            waiter.say_why(reason)

    timer = asyncio.get_running_loop().call_later(patience, tell)
    try:
        yield
    finally:
        timer.cancel()
        for waiter, reason in told:
            if waiter.reason == reason:
                waiter.say_why(None)
