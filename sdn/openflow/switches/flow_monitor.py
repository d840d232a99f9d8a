"""The flow monitor of one switch (OpenFlow 1.4), which reports table changes that others make.

The switch reports our own changes, too, which halves the rate of Open vSwitch. So the monitor rests
while we send many operations; when it resumes, the switch is audited for what it missed.
"""

import asyncio
from collections.abc import Callable
from enum import Enum, auto

from sdn.openflow.connections.connection import SwitchConnection
from sdn.openflow.switches.flow_mod_queue import FlowModQueue

MOST_PER_SECOND = 40  # operations, beyond which the monitor rests
QUIET_BEFORE_RESUMING = 2.0  # seconds


class MonitorState(Enum):
    """Whether the switch reports changes."""

    OFF = auto()
    ON = auto()
    RESTING = auto()


class FlowMonitor:
    """Has a switch report changes by others; `on_resume` is called when it does so again."""

    def __init__(self, queue: FlowModQueue, on_resume: Callable[[], None]) -> None:
        self._queue = queue
        self._on_resume = on_resume
        self._loop = asyncio.get_running_loop()
        self._state = MonitorState.OFF
        self._second_began = 0.0
        self._in_second = 0  # operations

    def start(self, connection: SwitchConnection) -> None:
        """Ask the switch for reports."""
        connection.monitor(on=True)
        self._state = MonitorState.ON

    def stop(self, connection: SwitchConnection | None) -> None:
        """Ask the switch for no more reports, if it is connected and sends some."""
        if self._state is MonitorState.ON and connection and not connection.lost:
            connection.monitor(on=False)
        self._state = MonitorState.OFF

    def reset(self) -> None:
        """The switch sends no reports any more: its connection or our mastership is lost."""
        self._state = MonitorState.OFF

    def count(self, connection: SwitchConnection, operations: int) -> None:
        """Count operations that are about to be sent; pauses the monitor if they are many."""
        if self._state is not MonitorState.ON:
            return
        now = self._loop.time()
        if now > self._second_began + 1.0:
            self._second_began, self._in_second = now, 0
        self._in_second += operations
        if self._in_second > MOST_PER_SECOND:
            self._state = MonitorState.RESTING
            connection.monitor(on=False)
            self._loop.call_later(QUIET_BEFORE_RESUMING, self._resume_if_quiet, connection)

    def _resume_if_quiet(self, connection: SwitchConnection) -> None:
        if self._state is not MonitorState.RESTING or connection.lost:
            return
        quiet = self._loop.time() - self._queue.window.last_answer
        if self._queue.window.load or quiet < QUIET_BEFORE_RESUMING:
            pause = QUIET_BEFORE_RESUMING - min(quiet, QUIET_BEFORE_RESUMING / 2)
            self._loop.call_later(pause, self._resume_if_quiet, connection)
        else:
            self.start(connection)
            self._on_resume()
