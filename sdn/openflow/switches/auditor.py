"""When switches are audited: soon after a change by others, in the background, and regularly."""

import asyncio
from collections.abc import Awaitable, Callable, Collection

from dzflow.aio import BackgroundTasks

PAUSE = 0.5  # seconds between audits of a switch that others keep changing
REST = 9  # times as long as an audit took, before the next one
LONGEST_REST = 5.0  # seconds


class Auditor:
    """Audits switches by means of `audit`; never two audits of a switch at a time from here."""

    def __init__(
        self,
        audit: Callable[[str], Awaitable[None]],
        usable: Callable[[], Collection[str]],
        every: float,
        tasks: BackgroundTasks,
    ) -> None:
        self._audit = audit
        self._usable = usable
        self._every = every
        self._tasks = tasks
        self._running: set[str] = set()  # switches with an urgent audit
        self._again: set[str] = set()  # of these, those to be audited once more
        self._scheduled: dict[str, None] = {}  # in the order of their audits
        self._wake = asyncio.Event()

    def start(self) -> None:
        """Audit all usable switches regularly from now on."""
        self._tasks.spawn(self._schedule_regularly(), "regular audits")
        self._tasks.spawn(self._audit_in_background(), "background audits")

    def audit_soon(self, switch: str) -> None:
        """Audit a switch now; if an audit is in progress already, once more after it."""
        if switch in self._running:
            self._again.add(switch)
        else:
            self._running.add(switch)
            self._tasks.spawn(self._audit_until_quiet(switch), f"audit of {switch}")

    def schedule_audit(self, switch: str) -> None:
        """Audit a switch in the background."""
        self._scheduled[switch] = None
        self._wake.set()

    async def _audit_until_quiet(self, switch: str) -> None:
        clock = asyncio.get_running_loop().time
        try:
            while True:
                self._again.discard(switch)
                began = clock()
                await self._audit(switch)
                if switch not in self._again:
                    return
                # There is no race with others that keep changing it, or a switch that says so.
                await asyncio.sleep(max(PAUSE, _rest(clock() - began)))
        finally:
            self._running.discard(switch)

    async def _schedule_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._every)
            for switch in sorted(self._usable()):
                self.schedule_audit(switch)

    async def _audit_in_background(self) -> None:
        """Audit switches one at a time, for a tenth of the time."""
        clock = asyncio.get_running_loop().time
        while True:
            await self._wake.wait()
            while self._scheduled:
                del self._scheduled[switch := next(iter(self._scheduled))]
                if switch in self._usable():
                    began = clock()
                    await self._audit(switch)
                    await asyncio.sleep(_rest(clock() - began))
            self._wake.clear()


def _rest(took: float) -> float:
    """Seconds to rest after an audit that took so long."""
    return min(REST * took, LONGEST_REST)
