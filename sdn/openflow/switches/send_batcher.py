"""When switches are sent what waits for them: many at once rather than one after the other.

A process with many switches in it (Open vSwitch, the emulated network) looks at all of them each
time that one has something to do, so what comes for many at once costs it much less.
"""

import asyncio
from collections.abc import Callable

_EACH = 0.0001  # seconds until the next turn, for each switch that this one was for
_LONGEST = 0.01


class Pulse:
    """Turns in which calls are made; the more there were in one, the later the next one is."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls: list[Callable[[], None]] = []
        self._next = 0.0

    def soon(self, call: Callable[[], None]) -> None:
        """Make a call in the next turn, which is at once after a pause."""
        self._calls.append(call)
        if len(self._calls) == 1:
            if self._loop.time() >= self._next:
                self._loop.call_soon(self._turn)
            else:
                self._loop.call_at(self._next, self._turn)

    def _turn(self) -> None:
        calls, self._calls = self._calls, []
        self._next = self._loop.time() + min(_LONGEST, _EACH * len(calls))
        for call in calls:
            self._loop.call_soon(call)  # one that fails is no matter of the others
