"""The operations that were sent to one switch and are not answered: how many, and since when."""

import asyncio

from sdn.openflow.connections.connection import SwitchConnection
from sdn.openflow.switches.limits import Limits


class SendWindow:
    """Bounds what is in progress on a switch, and disconnects it when it answers nothing.

    `load` is the number of operations in progress, `runs` the number of unanswered barriers,
    `last_answer` the loop time of the last answer (or of the first operations after a pause).
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.load = 0
        self.runs = 0
        self.last_answer = 0.0
        self._loop = asyncio.get_running_loop()
        self._not_before = 0.0  # for the rate
        self._deadline: asyncio.TimerHandle | None = None

    def pause(self) -> float:
        """Seconds until the rate allows more; 0 or less if it does now."""
        return self._not_before - self._loop.time() if self.limits.rate else 0.0

    def sent(self, connection: SwitchConnection, weight: int, count: int) -> None:
        """A run of `count` operations was sent, which uses up `weight` of the window."""
        self.runs += 1
        if not self.load:
            self.last_answer = self._loop.time()
        self.load += weight
        if self.limits.rate:
            now = self._loop.time()
            self._not_before = max(now, self._not_before) + count / self.limits.rate
        if self._deadline is None:
            self._deadline = self._loop.call_later(
                self.limits.timeout, self._check_deadline, connection
            )

    def answered(self, weight: int) -> None:
        """The switch has answered a run."""
        self.runs -= 1
        self.load -= weight
        self.last_answer = self._loop.time()

    def clear(self) -> None:
        """The connection has ended: no answer comes any more."""
        self.runs = self.load = 0
        if self._deadline:
            self._deadline.cancel()
            self._deadline = None

    def _check_deadline(self, connection: SwitchConnection) -> None:
        """Disconnect a switch that has answered nothing at all for too long.

        It is unknown what it has done; when it is back, the driver reads its tables.
        """
        self._deadline = None
        if self.load:
            left = self.last_answer + self.limits.timeout - self._loop.time()
            if left <= 0:
                connection.close(f"no answer to a barrier within {self.limits.timeout:g} s")
            else:
                self._deadline = self._loop.call_later(left, self._check_deadline, connection)
