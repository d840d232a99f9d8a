"""When the driver sends waiting operations: to many switches at once instead of one by one.

A process with many switches in it (Open vSwitch, the emulated network) checks all of them each time
that one has something to do. Messages that arrive for many switches at once cost it much less.
"""

import asyncio
from collections.abc import Callable

_PAUSE_PER_CALL = 0.0001  # seconds between two rounds, for each call of the first one
_LONGEST_PAUSE = 0.01


class SendBatcher:
    """Makes calls in rounds: the more calls a round has, the later is the next one."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls: list[Callable[[], None]] = []
        self._next_round = 0.0

    def schedule(self, call: Callable[[], None]) -> None:
        """Make a call in the next round, which is at once after a pause."""
        self._calls.append(call)
        if len(self._calls) == 1:
            if self._loop.time() >= self._next_round:
                self._loop.call_soon(self._run_round)
            else:
                self._loop.call_at(self._next_round, self._run_round)

    def _run_round(self) -> None:
        calls, self._calls = self._calls, []
        self._next_round = self._loop.time() + min(_LONGEST_PAUSE, _PAUSE_PER_CALL * len(calls))
        for call in calls:
            self._loop.call_soon(call)  # apart, so that one that fails does not stop the others
