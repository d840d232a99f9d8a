"""Follow the network and the spaces in etcd, and bring the partitions of this process along."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from configurators.partition.known_state import KnownState
from configurators.partition.long_wait import report_long_wait
from configurators.partition.partitions import Partitions
from configurators.southbound.clients import SouthboundClients
from configurators.state.network import Network, read_network, steps
from configurators.state.spaces import read_space
from configurators.store.documents import BadDocument
from configurators.store.etcd.client import Etcd
from configurators.store.keys import NETWORK, SPACES
from configurators.store.mirror import Snapshot, follow, follow_key
from configurators.store.model import NetworkDoc

log = logging.getLogger(__name__)


class NetworkFollower:
    """Takes up each network after the southbound processes have; `changed` is called afterwards."""

    def __init__(
        self,
        etcd: Etcd,
        known: KnownState,
        partitions: Partitions,
        southbound: SouthboundClients,
        changed: Callable[[], None],
    ) -> None:
        self._etcd = etcd
        self._known = known
        self._partitions = partitions
        self._southbound = southbound
        self._changed = changed
        self._newest: tuple[NetworkDoc, int] | None = None  # the network that is to be taken up
        self._came = asyncio.Event()
        self._lost: frozenset[str] = frozenset()  # switches that the current network does without

    async def follow(self) -> None:
        """Note every network that is stored, until cancelled."""
        async for stored in follow_key(self._etcd, NETWORK, newer_than=self._known.revision):
            try:
                doc = read_network(stored.value)
            except BadDocument as error:
                log.error("this process goes on with the network that it knows: %s", error)
                continue
            # At once: pushes that wait for a switch that is lost, or was removed, keep partitions
            # from the network.
            there = [switch.id for switch in doc.switches]
            self._southbound.set_switches(there, doc.lost.switches)
            self._newest = doc, stored.revision
            self._came.set()

    async def take_up(self) -> None:
        """Go over to the newest network that `follow` has noted, until cancelled."""
        while True:
            await self._came.wait()
            self._came.clear()
            assert self._newest
            await self._take_up(*self._newest)

    async def _take_up(self, doc: NetworkDoc, revision: int) -> None:
        known = self._known
        if known.network:
            # Southbound processes set up ports and groups first, then come the entries with them.
            why = partial(self._southbound.why_network_missing, revision)
            with report_long_wait(self._partitions.owned.values(), why):
                await self._southbound.wait_for_network(revision)
            there = {switch.id for switch in doc.switches}
            await self._southbound.wait_until_back((self._lost & there) - {*doc.lost.switches})
        *between, last = steps(doc, known.network)
        for step in between:
            self._go_over(step, known.revision)
        self._go_over(last, revision)
        self._lost = frozenset(doc.lost.switches)
        self._changed()

    def _go_over(self, doc: NetworkDoc, revision: int) -> None:
        network = Network.of(doc, self._known.network)
        self._known.go_over(network, revision)
        self._partitions.take_up(revision, network)


class SpaceFollower:
    """Keeps the known spaces up to date.

    For each owned partition that no longer exists, one of these is called with the reason: `drop`
    if its events do not exist either, `lose` if other partitions have its part of the space now.
    `changed` is called after every change.
    """

    def __init__(
        self,
        etcd: Etcd,
        known: KnownState,
        partitions: Partitions,
        drop: Callable[[str, str], None],
        lose: Callable[[str, str], None],
        changed: Callable[[], None],
    ) -> None:
        self._etcd = etcd
        self._known = known
        self._partitions = partitions
        self._drop = drop
        self._lose = lose
        self._changed = changed

    async def follow(self) -> None:
        """Follow the spaces until cancelled."""
        spaces = self._known.spaces
        async for update in follow(self._etcd, SPACES):
            if isinstance(update, Snapshot):
                there = {change.name for change in update.changes}
                for space in list(spaces):
                    if space.name not in there:
                        spaces.drop(space.name)
            for change in update.changes:
                if change.value is None:
                    spaces.drop(change.name)
                else:
                    self._put(change.name, change.value)
                self._known.spaces_revision = max(self._known.spaces_revision, change.revision)
            self._known.spaces_read = True
            for name in [name for name in self._partitions.owned if not self._known.view(name)]:
                if spaces.recut(name):
                    self._lose(name, "the partition map has changed")
                else:
                    self._drop(name, "its space, or this version of it, no longer exists")
            self._known.spaces_changed()
            self._changed()

    def _put(self, name: str, value: bytes) -> None:
        try:
            self._known.spaces.put(read_space(name, value))
        except BadDocument as error:
            log.error("the space %s is left as it was: %s", name, error)
