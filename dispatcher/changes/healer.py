"""Sees to it that the network goes on when switches, links and ports fail and come back.

All dispatchers look; the one with the lowest id decides. If two think that they are it, the second
to store its decision is refused, and looks again.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection

from configurators.state.healing import coming, next_network
from configurators.store.documents import encode
from configurators.store.etcd.client import Etcd, Put, StoreError, unchanged
from configurators.store.keys import NETWORK
from dispatcher.changes.damping import Damper, Patience, Sight
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.knowledge.fleet import Fleet
from dispatcher.knowledge.reachability import Reach

_log = logging.getLogger(__name__)

_TICK = 0.25  # seconds between looks while something is lost, or on its way
_PAUSE = 1.0  # after the store could not be reached
_IMPATIENT = 60.0  # seconds after which a new tree is used, though not all have installed it


class Healer:
    """Replaces trees that use what is lost; `run` does so for ever."""

    def __init__(
        self,
        etcd: Etcd,
        me: str,
        alive: Callable[[], Collection[str]],
        catalogue: Catalogue,
        fleet: Fleet,
        reach: Reach,
        patience: Patience,
        grace: float,
    ) -> None:
        self._etcd = etcd
        self._me = me
        self._alive = alive
        self._catalogue = catalogue
        self._fleet = fleet
        self._reach = reach
        self._damper = Damper(patience)
        self._grace = grace
        self._changed = asyncio.Event()
        self._since = (0, 0.0)  # the revision of the network, and when it was first seen here
        fleet.on_holds.append(self._see)
        fleet.on_configurator.append(lambda _: self._changed.set())
        catalogue.on_network.append(self._see)

    async def run(self) -> None:
        """Look and decide, until cancelled."""
        self._see()
        while True:
            try:
                await self._decide()
            except StoreError as error:
                _log.warning("the network cannot be changed: %s", error)
                await asyncio.sleep(_PAUSE)
            await self._wait()

    def _see(self) -> None:
        """At once, so that nothing short is missed."""
        doc, holds = self._catalogue.network_doc, self._fleet.holds.values()
        if doc is not None:
            up = frozenset(switch for one in holds for switch in one.switches)
            down = frozenset(switch for one in holds for switch in one.down) - up
            ports = frozenset(port for one in holds for port in one.ports_down)
            self._damper.see(doc, Sight(up, down, ports), time.monotonic())
        self._changed.set()

    async def _wait(self) -> None:
        doc = self._catalogue.network_doc
        restless = doc and (not self._damper.calm or doc.retired or coming(doc))
        try:
            async with asyncio.timeout(_TICK if restless else None):
                await self._changed.wait()
        except TimeoutError:
            return
        self._changed.clear()

    async def _decide(self) -> None:
        doc, revision = self._catalogue.network_doc, self._catalogue.network_revision
        if doc is None:
            return
        now = time.monotonic()
        if self._since[0] != revision:
            self._since = revision, now
        lost = self._damper.lost(doc, now)
        if self._me != min(self._alive(), default=self._me):
            return
        impatient = now - self._since[1] > _IMPATIENT
        changed = next_network(
            doc, lost, impatient or self._reach.taken_up(), time.time(), self._grace
        )
        if changed == doc:
            return
        _log.warning(
            "the network changes: lost are switches %s and links %s; trees %s are used, of %s",
            ", ".join(changed.lost.switches) or "none",
            ", ".join(map(str, changed.lost.links)) or "none",
            sorted(changed.usable),
            sorted(changed.trees),
        )
        await self._etcd.transact([unchanged(NETWORK, revision)], [Put(NETWORK, encode(changed))])
        await self._catalogue.refresh_network()
