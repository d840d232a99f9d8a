"""Logs connections that were refused, without letting strangers fill the log."""

import logging
import time
from collections.abc import Callable

EVERY = 10.0  # seconds


class RefusalLog:
    """Logs the first refusal at once, and then at most one line per `EVERY` seconds."""

    def __init__(
        self, log: logging.Logger, who: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`who` refuses the connections."""
        self._log = log
        self._who = who
        self._clock = clock
        self._next = 0.0
        self._unlogged = 0

    def note(self, remote: str, reason: str) -> None:
        """Log that a connection from `remote` was refused, or count it for the next line."""
        now = self._clock()
        if now < self._next:
            self._unlogged += 1
            return
        more = f" (and {self._unlogged} others since the last such line)" if self._unlogged else ""
        self._log.warning("%s refused %s: %s%s", self._who, remote, reason, more)
        self._next = now + EVERY
        self._unlogged = 0
