"""Lets switches and links join the network as southbound processes find them.

All dispatchers know what was found; the one with the lowest id decides, as for healing. If two
think so of themselves, etcd refuses the second decision, and that dispatcher looks again.
"""

import asyncio
import logging
from typing import NamedTuple

from configurators.environment import Clock
from configurators.state.discovered import Found, with_better_trees, with_found
from configurators.state.healing import coming
from configurators.store.documents import encode
from configurators.store.etcd.client import Etcd, Put, StoreError, unchanged
from configurators.store.keys import NETWORK
from configurators.store.model import Lost, NetworkDoc
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.knowledge.fleet import Fleet
from dispatcher.knowledge.siblings import Siblings
from dzflow.aio import wait_until_set
from sdn.network.topology import Link, Switch

_log = logging.getLogger(__name__)

_BATCH = 0.3  # seconds between two changes: what is found meanwhile joins together
_PAUSE = 1.0  # seconds after etcd did not answer


class _Shape(NamedTuple):
    """What must have stayed the same for a while before other trees are considered."""

    switches: tuple[Switch, ...]
    links: tuple[Link, ...]
    lost: Lost
    edge: frozenset[str]  # switches with hosts


class NetworkDiscovery:
    """Has what was found join the network; `run` does so until it is cancelled.

    When nothing has joined for `settled_after` seconds, it looks whether other trees are better.
    """

    def __init__(
        self,
        etcd: Etcd,
        siblings: Siblings,
        catalogue: Catalogue,
        fleet: Fleet,
        settled_after: float,
        clock: Clock,
    ) -> None:
        self._etcd = etcd
        self._siblings = siblings
        self._catalogue = catalogue
        self._fleet = fleet
        self._settled_after = settled_after
        self._clock = clock
        self._changed = asyncio.Event()
        self._shape: _Shape | None = None  # of the network when it changed last
        self._since = 0.0  # when that was
        self._weighed: _Shape | None = None  # the shape for which other trees were considered
        fleet.found_changed.subscribe(self._changed.set)
        fleet.switches_changed.subscribe(self._changed.set)
        catalogue.network_changed.subscribe(self._changed.set)
        # This dispatcher may be the first one then, and what the other has left is undecided.
        siblings.gone.subscribe(lambda _: self._changed.set())

    async def run(self) -> None:
        """Decide after each change, until cancelled."""
        while True:
            try:
                await self._decide()
                await asyncio.sleep(_BATCH)
                await self._wait()
            except StoreError as error:
                _log.warning("what was found cannot join the network yet: %s", error)
                await asyncio.sleep(_PAUSE)

    async def _wait(self) -> None:
        """Wait for a change, or until the network has settled."""
        doc, left = self._catalogue.network_doc, None
        if (
            doc is not None
            and self._siblings.is_first
            and _may_be_weighed(doc)
            and self._weighed != _shape_of(doc)
        ):
            left = max(0.0, self._since + self._settled_after - self._clock.monotonic())
        if await wait_until_set(self._changed, left):
            self._changed.clear()

    async def _decide(self) -> None:
        doc, revision = self._catalogue.network_doc, self._catalogue.network_revision
        if doc is None or not doc.discovered:
            return
        now, shape = self._clock.monotonic(), _shape_of(doc)
        if shape != self._shape:
            self._shape, self._since = shape, now
        if not self._siblings.is_first:
            return
        changed = with_found(doc, self._found())
        if changed != doc:
            self._weighed = None
            _log.warning(
                "the network grows: %d switches (before: %d), %d links (before: %d)",
                len(changed.switches),
                len(doc.switches),
                len(changed.links),
                len(doc.links),
            )
        elif (
            self._weighed != shape
            and _may_be_weighed(doc)
            and now >= self._since + self._settled_after
        ):
            self._weighed = shape
            changed = with_better_trees(doc, self._clock.wall())
            if changed == doc:
                return
            self._weighed = None
            _log.warning(
                "better trees: %s are installed beside %s; %s are to be replaced",
                sorted(changed.trees.keys() - doc.trees.keys()) or "none",
                sorted(doc.trees),
                sorted((*changed.outdone, *changed.retired)) or "none",
            )
        else:
            return
        await self._etcd.transact([unchanged(NETWORK, revision)], [Put(NETWORK, encode(changed))])
        await self._catalogue.refresh_network()

    def _found(self) -> Found:
        """What all southbound processes have found together.

        Links of a switch that is away do not count: nobody knows whether they still carry probes.
        """
        reports = self._fleet.found.values()
        up = {switch for one in self._fleet.switch_reports.values() for switch in one.switches}
        links = self._fleet.found_links() or ()
        return Found(
            frozenset(dpid for report in reports for dpid in report.strangers),
            frozenset(link for link in links if {link.a, link.b} <= up),
        )


def _may_be_weighed(doc: NetworkDoc) -> bool:
    """Whether better trees may be looked for: not while trees are being replaced."""
    return doc.discovered and not doc.retired and not coming(doc)


def _shape_of(doc: NetworkDoc) -> _Shape:
    return _Shape(doc.switches, doc.links, doc.lost, frozenset(host.switch for host in doc.hosts))
