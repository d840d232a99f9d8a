"""Replaces trees when switches, links and ports fail, and when they come back.

All dispatchers observe the network; the one with the lowest id decides. If two dispatchers think so
of themselves, etcd refuses the second decision, and that dispatcher looks again.
"""

import asyncio
import logging

from configurators.environment import Clock
from configurators.state.healing import coming, next_network
from configurators.store.documents import encode
from configurators.store.etcd.client import Etcd, Put, StoreError, unchanged
from configurators.store.keys import NETWORK
from dispatcher.changes.damping import Damper, Observation, Patience
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.knowledge.fleet import Fleet
from dispatcher.knowledge.reachability import Reachability
from dispatcher.knowledge.siblings import Siblings
from dzflow.aio import wait_until_set

_log = logging.getLogger(__name__)

_TICK = 0.25  # seconds between decisions while something is lost, or being replaced
_PAUSE = 1.0  # seconds after etcd did not answer
_IMPATIENT = 60.0  # seconds after which a new tree is used, though some have not installed it


class Healer:
    """Replaces trees that use lost switches and links; `run` does so until it is cancelled."""

    def __init__(
        self,
        etcd: Etcd,
        siblings: Siblings,
        catalogue: Catalogue,
        fleet: Fleet,
        reachability: Reachability,
        patience: Patience,
        grace: float,
        clock: Clock,
    ) -> None:
        self._etcd = etcd
        self._siblings = siblings
        self._catalogue = catalogue
        self._fleet = fleet
        self._reachability = reachability
        self._damper = Damper(patience)
        self._grace = grace
        self._clock = clock
        self._changed = asyncio.Event()
        self._since = (0, 0.0)  # the revision of the network, and when it was first seen here
        fleet.switches_changed.subscribe(self._observe)
        fleet.found_changed.subscribe(self._observe)
        fleet.configurator_changed.subscribe(lambda _: self._changed.set())
        catalogue.network_changed.subscribe(self._observe)
        # This dispatcher may be the first one then, and what the other has left is undecided.
        siblings.gone.subscribe(lambda _: self._changed.set())

    async def run(self) -> None:
        """Observe and decide, until cancelled."""
        self._observe()
        while True:
            try:
                await self._decide()
                await self._wait()
            except StoreError as error:
                _log.warning("the network cannot be changed: %s", error)
                await asyncio.sleep(_PAUSE)

    def _observe(self) -> None:
        """Note the present state at once, so that no short failure is missed."""
        doc, reports = self._catalogue.network_doc, self._fleet.switch_reports.values()
        if doc is not None:
            up = frozenset(switch for report in reports for switch in report.switches)
            down = frozenset(switch for report in reports for switch in report.down) - up
            ports = frozenset(port for report in reports for port in report.ports_down)
            silent = frozenset(port for report in reports for port in report.silent)
            found = self._fleet.found_links()
            observed = Observation(up, down, ports, silent, found)
            self._damper.observe(doc, observed, self._clock.monotonic())
        self._changed.set()

    async def _wait(self) -> None:
        doc = self._catalogue.network_doc
        waiting = doc and (doc.retired or doc.withdrawn or coming(doc))
        restless = waiting or not self._damper.calm
        if await wait_until_set(self._changed, _TICK if restless else None):
            self._changed.clear()

    async def _decide(self) -> None:
        doc, revision = self._catalogue.network_doc, self._catalogue.network_revision
        if doc is None:
            return
        now = self._clock.monotonic()
        if self._since[0] != revision:
            self._since = revision, now
        lost = self._damper.lost(doc, now)
        if not self._siblings.is_first:
            return
        impatient = now - self._since[1] > _IMPATIENT
        installed = impatient or self._reachability.network_installed()
        changed = next_network(doc, lost, installed, self._clock.wall(), self._grace)
        if changed == doc:
            return
        _log.warning(
            "the network changes: switches %s and links %s are lost; trees %s of %s are used",
            ", ".join(changed.lost.switches) or "none",
            ", ".join(map(str, changed.lost.links)) or "none",
            sorted(changed.usable),
            sorted(changed.trees),
        )
        await self._etcd.transact([unchanged(NETWORK, revision)], [Put(NETWORK, encode(changed))])
        await self._catalogue.refresh_network()
