"""Hosts that come, move and go during a run: their tables and groups go from one to the next."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from dispatcher.calls import Answer
from dispatcher.dispatcher import Dispatcher
from dispatcher.errors import NotFound
from sdn.network.topology import Host, ToHost
from tests.simulation.traffic import Traffic
from tests.simulation.world import World

_FIRST_PORT = 40
_COUNT = 8
_PAUSE = 0.3  # seconds before a call is repeated


class Guests:
    """Some hosts, each of which is there for a while; some subscribe, the others never do.

    Where an entry is left of a host that is gone, a host that never asked gets its events.
    """

    def __init__(self, world: World, random: Random, traffic: Traffic) -> None:
        self.random = random
        self.reused = 0  # tables that another host had before
        self._world = world
        self._traffic = traffic
        self._tasks: list[asyncio.Task[None]] = []
        self._seen: dict[tuple[str, int], str] = {}  # who has had each table last

    def start(self) -> None:
        """Let them come, one after the other."""
        for number in range(_COUNT):
            self._tasks.append(asyncio.create_task(self._visit(number)))

    async def finish(self) -> None:
        """Wait until all are gone again."""
        await asyncio.gather(*self._tasks)

    async def _visit(self, number: int) -> None:
        random = self.random
        await asyncio.sleep(number * random.uniform(0.2, 1.0))
        name = f"g{number}"
        await self._settle_at(Host(name, self._any_switch(), _FIRST_PORT + number))
        if random.random() < 0.6:
            known = await self._traffic.subscribe(name, random)
            await asyncio.sleep(random.uniform(0.1, 2.0))
            if known and random.random() < 0.7:
                stable = self._traffic.events.stable.pop(known.label, None)
                await self._settle_at(Host(name, self._any_switch(), _FIRST_PORT + number))
                if stable:
                    self._traffic.events.stable[known.label] = stable
                await asyncio.sleep(random.uniform(0.1, 1.0))
            # A full table may refuse it: entries that were covered come back.
            while known and await self._traffic.end(known) not in ("ok", "absent"):
                await asyncio.sleep(_PAUSE)
        else:
            await asyncio.sleep(random.uniform(0.1, 4.0))
        await self._until_done(lambda d: d.hosts.delete(name))

    def _any_switch(self) -> str:
        return self.random.choice(sorted(self._world.switches))

    async def _settle_at(self, host: Host) -> None:
        """Add or move a host."""
        await self._until_done(lambda d: d.hosts.put(host))
        pipeline = self._world.network_doc.pipeline
        place = host.switch, pipeline.table(host.switch, ToHost(host.id))
        self.reused += self._seen.setdefault(place, host.id) != host.id
        self._seen[place] = host.id

    async def _until_done(self, call: Callable[[Dispatcher], Awaitable[object]]) -> None:
        """Repeat a call until it has succeeded, or the host is not there (any more)."""

        async def ask(d: Dispatcher) -> Answer:
            try:
                await call(d)
            except NotFound:
                return Answer(404)
            return Answer(200)

        while (await self._traffic.once(ask)).status not in (200, 404):
            await asyncio.sleep(_PAUSE)
