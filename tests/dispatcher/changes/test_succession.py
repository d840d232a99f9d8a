"""What the first dispatcher has not decided about the network, the next one does when it ends."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress

from msgspec.structs import replace

from configurators.environment import Clock
from configurators.state.discovered import Found, with_found
from configurators.state.network import first_network, undiscovered_network
from configurators.store.documents import decode_network, encode
from configurators.store.etcd.client import Etcd
from configurators.store.keys import NETWORK
from configurators.store.model import Lost, NetworkDoc
from configurators.streams.messages import FoundNetwork, SwitchReport
from dispatcher.changes.damping import Patience
from dispatcher.changes.discovery import NetworkDiscovery
from dispatcher.changes.healer import Healer
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.knowledge.fleet import Fleet
from dispatcher.knowledge.reachability import Reachability
from dispatcher.knowledge.siblings import Siblings
from sdn.network.topologies import topology
from tests.dispatcher.support import TOKEN
from tests.etcd import TestEtcd
from tests.support import until

SETTLED_AFTER = 10.0
RING = topology("ring:4")
DPIDS = frozenset(switch.dpid for switch in RING.switches)


class AskedSiblings(Siblings):
    """Counts how often a part asks whether its dispatcher decides."""

    asked = 0

    @property
    def is_first(self) -> bool:
        self.asked += 1
        return super().is_first


class Scene:
    """The dispatcher b; as long as a is alive, a decides, but does nothing."""

    def __init__(self, etcd: Etcd) -> None:
        self.now = 0.0
        self.etcd = etcd
        self.clock = Clock(monotonic=lambda: self.now)
        self.siblings = AskedSiblings(etcd, "b")
        self.siblings.alive.add("a")
        self.catalogue = Catalogue(etcd)
        self.fleet = Fleet(etcd, TOKEN, "b")
        self.reachability = Reachability(self.catalogue, self.fleet)

    def discovery(self) -> NetworkDiscovery:
        siblings, catalogue, fleet = self.siblings, self.catalogue, self.fleet
        return NetworkDiscovery(self.etcd, siblings, catalogue, fleet, SETTLED_AFTER, self.clock)

    def healer(self) -> Healer:
        return Healer(
            self.etcd,
            self.siblings,
            self.catalogue,
            self.fleet,
            self.reachability,
            Patience(back_after=0.0),
            0.0,
            self.clock,
        )

    async def stored(self) -> NetworkDoc:
        found = await self.etcd.get(NETWORK)
        assert found
        return decode_network(found.value)

    def end_first(self) -> None:
        self.siblings.alive.remove("a")
        self.siblings.gone.emit("a")

    @asynccontextmanager
    async def running(self, run: Callable[[], Coroutine[None, None, None]]) -> AsyncIterator[None]:
        """Run a part; when the block begins, it has left the decision to a."""
        task = asyncio.create_task(run())
        try:
            await until(lambda: self.siblings.asked)
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


@asynccontextmanager
async def scene(server: TestEtcd, doc: NetworkDoc) -> AsyncIterator[Scene]:
    """b knows this network."""
    async with Etcd(server.access()) as etcd:
        await etcd.put(NETWORK, encode(doc))
        made = Scene(etcd)
        await made.catalogue.start()
        try:
            yield made
        finally:
            await made.catalogue.stop()


async def test_switches_that_were_found_join(etcd_server: TestEtcd) -> None:
    doc = undiscovered_network("legs", 1)
    async with scene(etcd_server, doc) as s:
        s.fleet.found["sb1"] = FoundNetwork("sb1", tuple(DPIDS), RING.links)
        async with s.running(s.discovery().run):
            assert await s.stored() == doc
            s.end_first()

            async def joined() -> bool:
                return len((await s.stored()).switches) == len(DPIDS)

            await until(joined)


async def test_better_trees_are_looked_for(etcd_server: TestEtcd) -> None:
    line = with_found(undiscovered_network("legs", 2), Found(DPIDS, frozenset(RING.links[:-1])))
    doc = with_found(line, Found(frozenset(), frozenset(RING.links)))
    async with scene(etcd_server, doc) as s, s.running(s.discovery().run):
        assert await s.stored() == doc
        s.now += SETTLED_AFTER
        s.end_first()

        async def changed() -> bool:
            return await s.stored() != doc

        await until(changed)


async def test_a_switch_that_has_come_back_is_used_again(etcd_server: TestEtcd) -> None:
    doc = replace(first_network(RING, "legs", 1), lost=Lost(("s3",), ()))
    async with scene(etcd_server, doc) as s:
        up = [switch.id for switch in RING.switches]
        s.fleet.switch_reports["sb1"] = SwitchReport("sb1", up, {}, 0, [])
        async with s.running(s.healer().run):
            assert await s.stored() == doc
            s.end_first()

            async def used() -> bool:
                return not (await s.stored()).lost.switches

            await until(used)
