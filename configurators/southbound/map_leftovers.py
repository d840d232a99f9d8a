"""Removes the entries that a changed partition map has left on the switches of this process.

While a map is being changed, audits only add entries: one that no partition wants any more may
still stand in for others that switches lack. When all of them have arrived, one audit of each
switch removes the rest.
"""

import asyncio
import logging
from collections.abc import Callable, Collection

from configurators.southbound.reporter import Reporter
from sdn.driver import SwitchDriver
from sdn.network.topology import UnknownSwitch

log = logging.getLogger(__name__)


class MapLeftovers:
    """Audits `switches` after a changed map has settled, and has that reported."""

    def __init__(
        self, driver: SwitchDriver, reporter: Reporter, switches: Callable[[], Collection[str]]
    ) -> None:
        self._driver = driver
        self._reporter = reporter
        self._switches = switches
        self._wake = asyncio.Event()
        self._due = False  # from the moment a map has settled until all switches were audited

    def spaces_changed(self, settled: bool) -> None:
        """Note that spaces were changed, and whether a map has settled by that."""
        self._due |= settled
        if self._due:
            self._wake.set()
        else:
            self._reporter.cleaned = self._reporter.spaces

    async def run(self) -> None:
        """Audit the switches whenever a map has settled, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            revision = self._reporter.spaces
            # A switch that cannot be audited now is audited when it connects.
            await asyncio.gather(*map(self._audit, sorted(self._switches())))
            self._due = self._wake.is_set()
            self._reporter.cleaned = revision
            self._reporter.schedule()

    async def _audit(self, switch: str) -> None:
        try:
            await self._driver.audit(switch)
        except UnknownSwitch as error:
            log.debug("the network has changed meanwhile: %s", error)
