"""Frees the tables and groups of hosts that are gone, so that other hosts can get them.

A number may be freed when nothing works with it any more. All of this is checked for one revision
of the network, at which the host is gone, and the transaction that frees the number compares that
revision:

1. All processes that are registered in etcd have taken up that network, and every partition has an
   owner that has its entries there. Processes and owners that come later begin with a
   network at least as new; they see to that themselves.
2. The switch is up, and its southbound process has found the table without entries, except for
   its miss, and no such group: neither on the switch, nor among what it should hold.

docs/decisions/0011-reused-tables.md explains why this is enough. All dispatchers could do it; the
one with the lowest id does.
"""

import asyncio
import logging
from collections.abc import Mapping

from msgspec.structs import replace

from configurators.state.network import topology_of
from configurators.store.documents import encode
from configurators.store.etcd.client import Etcd, Put, StoreError, unchanged
from configurators.store.keys import NETWORK
from configurators.store.model import NetworkDoc
from configurators.streams.messages import FindVacant, Vacant
from configurators.streams.stream import RemoteError, StreamClosed
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.knowledge.fleet import Fleet
from dispatcher.knowledge.reachability import Reachability
from dispatcher.knowledge.siblings import Siblings
from sdn.network.topology import Topology
from sdn.tables.pipeline import Pipeline, SwitchNumbers

_log = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 5.0  # seconds after numbers were found to be in use
_READ_TIME = 30.0  # seconds for a switch to list a few tables


def numbers_to_free(
    pipeline: Pipeline, topology: Topology, lost: frozenset[str], least: int
) -> dict[str, SwitchNumbers]:
    """The numbers of legs that are gone, by switch, if it is time to free them; else nothing.

    It is time when a switch has `least` of them, or room for no more than `least` new legs: each
    change of the network costs all configurators some work. A switch that is lost keeps its
    entries, and so the numbers are kept for it.
    """
    unused = {
        switch: numbers
        for switch, numbers in pipeline.unused(topology).items()
        if switch not in lost
    }
    due = any(
        len(numbers.tables) >= least or pipeline.free(switch) <= least
        for switch, numbers in unused.items()
    )
    return unused if due else {}


class TableReuse:
    """Frees numbers when it is time; `run` does so until it is cancelled."""

    def __init__(
        self,
        etcd: Etcd,
        siblings: Siblings,
        catalogue: Catalogue,
        fleet: Fleet,
        reachability: Reachability,
        least: int,
    ) -> None:
        self._etcd = etcd
        self._siblings = siblings
        self._catalogue = catalogue
        self._fleet = fleet
        self._reachability = reachability
        self._least = least
        self._network_changed = asyncio.Event()
        self._changed = asyncio.Event()
        siblings.gone.subscribe(lambda _: self._network_changed.set())
        catalogue.network_changed.subscribe(self._network_changed.set)
        catalogue.network_changed.subscribe(self._changed.set)
        fleet.switches_changed.subscribe(self._changed.set)
        fleet.configurator_changed.subscribe(lambda _: self._changed.set())

    async def run(self) -> None:
        """Free numbers whenever it is time, until cancelled."""
        pause = _FIRST_PAUSE
        while True:
            try:
                self._network_changed.clear()
                if not self._due():
                    await self._network_changed.wait()
                elif await self._free_or_race():
                    pause = _FIRST_PAUSE
                else:
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _LONGEST_PAUSE)
            except StoreError as error:
                _log.warning("no tables can be freed: %s", error)
                await asyncio.sleep(_LONGEST_PAUSE)

    def _due(self) -> dict[str, SwitchNumbers]:
        doc = self._catalogue.network_doc
        if doc is None or not self._siblings.is_first:
            return {}
        lost = frozenset(doc.lost.switches)
        return numbers_to_free(doc.pipeline, topology_of(doc), lost, self._least)

    async def _free_or_race(self) -> bool:
        """Free what is due and not in use; False if all of it is in use.

        If the network changes meanwhile, nothing is freed, and it is worth another attempt at once.
        """
        while not self._applied():
            self._changed.clear()
            await self._changed.wait()
        doc, revision, due = self._known()
        # Others may have registered, or become owners, of whom this process does not know yet.
        await self._fleet.refresh()
        await self._catalogue.refresh_owners()
        if not self._still(revision):
            return True
        found = {switch: await self._find_vacant(switch, due[switch]) for switch in due}
        vacant = {switch: numbers for switch, numbers in found.items() if numbers}
        if not self._still(revision):
            return True
        if not vacant:
            return False
        changed = replace(doc, pipeline=doc.pipeline.freed(vacant))
        result = await self._etcd.transact(
            [unchanged(NETWORK, revision)], [Put(NETWORK, encode(changed))]
        )
        await self._catalogue.refresh_network()
        if result.succeeded:
            count = sum(len(numbers.tables) for numbers in vacant.values())
            _log.info("%d tables of %d switches are free again", count, len(vacant))
        return True

    def _known(self) -> tuple[NetworkDoc, int, Mapping[str, SwitchNumbers]]:
        doc = self._catalogue.network_doc
        assert doc
        return doc, self._catalogue.network_revision, self._due()

    def _still(self, revision: int) -> bool:
        """Whether this is still the network, and everybody has taken it up."""
        return self._catalogue.network_revision == revision and self._applied()

    def _applied(self) -> bool:
        return self._reachability.network_applied()

    async def _find_vacant(self, switch: str, numbers: SwitchNumbers) -> SwitchNumbers:
        holder = self._fleet.switch_holder(switch)
        stream = self._fleet.southbound[holder] if holder else None
        if stream is None:
            return SwitchNumbers()
        try:
            answer: Vacant = await stream.ask(FindVacant(switch, numbers), _READ_TIME)
        except (TimeoutError, StreamClosed, RemoteError) as error:
            _log.info("switch %s keeps tables of hosts that are gone: %s", switch, error)
            return SwitchNumbers()
        if answer.reason:
            _log.info("switch %s keeps tables of hosts that are gone: %s", switch, answer.reason)
        return SwitchNumbers(
            answer.numbers.tables & numbers.tables, answer.numbers.groups & numbers.groups
        )
