"""Log lines about things that a peer can repeat as often as it likes."""

import asyncio
import logging

from msgspec import Struct

MAX_SUBJECTS = 256  # beyond, all others count as one
_OTHERS = "others"


class _Repeated(Struct):
    count: int
    last: str


class LimitedLog:
    """Logs the first message about a subject at once, then one line per period with a count."""

    def __init__(self, log: logging.Logger, level: int, every: float) -> None:
        self._log = log
        self._level = level
        self._every = every
        self._subjects: dict[str, _Repeated] = {}

    def add(self, subject: str, message: str) -> None:
        """Log a message about a subject, now or as part of the count."""
        if subject not in self._subjects and len(self._subjects) >= MAX_SUBJECTS:
            subject = _OTHERS
        if known := self._subjects.get(subject):
            known.count += 1
            known.last = message
            return
        self._log.log(self._level, "%s", message)
        self._subjects[subject] = _Repeated(0, message)
        self._wait(subject)

    def _wait(self, subject: str) -> None:
        asyncio.get_running_loop().call_later(self._every, self._summarise, subject)

    def _summarise(self, subject: str) -> None:
        known = self._subjects[subject]
        if not known.count:
            del self._subjects[subject]
            return
        self._log.log(
            self._level,
            "%s (%d more like this within %g s, this was the last)",
            known.last,
            known.count,
            self._every,
        )
        known.count = 0
        self._wait(subject)
