"""The peer: a centralised controller as in thesis section 2.4.4.

It serves one request at a time and waits for the acknowledgement of each flow-mod before it sends
the next. Index, engine, driver and switches are ours, in one process, with one partition, without
REST and without a store: what is compared is the way to work, not somebody's implementation.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import NamedTuple

from bench.arrivals import continued, queued, summary
from bench.report import Row
from bench.switches import switches
from bench.traffic import within
from bench.workload import Ask, Distribution, Workload, make_index, make_space, request
from configurators.engine.engine import Engine
from configurators.engine.partials import Kind, Partial
from configurators.engine.partition_map import PartitionMap, route
from dzflow.address import Scope
from sdn.flows import Batch
from sdn.network_events import SwitchUp
from sdn.openflow.driver import DriverOptions, OpenFlowDriver
from sdn.outcomes import Acknowledged
from sdn.pipeline import Pipeline
from sdn.plans import make_plan
from sdn.routes import Routes
from sdn.topologies import topology
from sdn.trees import spanning_tree

PARTITION = "all"
FILL = 1_000  # requests decided together while nothing is measured
WAIT = 60.0


class Services(NamedTuple):
    """How long requests took that were served one after the other, and their operations."""

    seconds: list[float]
    operations: int

    @property
    def rate(self) -> float:
        """Requests per second if there is always one waiting."""
        return len(self.seconds) / sum(self.seconds)

    def row(self, arrivals: Sequence[float]) -> Row:
        """Latencies if requests arrive at these times and all are served in the end.

        That follows exactly from how long each takes. If fewer were measured than arrive, the rest
        is drawn from those that were.
        """
        services = continued(self.seconds, len(arrivals))
        return {
            "requests_per_s": self.rate,
            **summary(queued(arrivals, services)),
            "operations_per_request": self.operations / len(self.seconds),
            "measured": min(len(self.seconds), len(arrivals)),
            "reckoned": max(0, len(arrivals) - len(self.seconds)),
        }


async def serve(
    name: str,
    distribution: Distribution,
    active: int,
    acknowledge_after: float,
    requests: int,
    seconds: float,
) -> Services:
    """Serve requests, half of them unsubscriptions, on top of those that are active.

    It ends after so many requests or seconds, whichever comes first.
    """
    network = topology(name)
    pipeline = Pipeline(plan="legs").extended(network)
    options = DriverOptions(port=0, timeout=WAIT, discover=False)
    async with AsyncExitStack() as stack:
        driver = await stack.enter_async_context(
            OpenFlowDriver(network, pipeline, lambda _: PARTITION, {}, options)
        )
        stack.enter_context(switches(name, driver.port, acknowledge_after))
        await _all_up(driver, len(network.switches))
        routes = Routes(network, {0: spanning_tree(network)})
        engine = Engine(make_plan(routes, pipeline, Scope(1)))
        controller = _Controller(driver, engine, distribution, len(network.hosts))
        await controller.fill(active)
        return await controller.measure(requests, time.perf_counter() + seconds)


class _Controller:
    """One engine, one driver, one request at a time."""

    def __init__(
        self, driver: OpenFlowDriver, engine: Engine, distribution: Distribution, hosts: int
    ) -> None:
        self._driver = driver
        self._engine = engine
        space = make_space("fields")
        self._index = make_index(space)
        self._workload = Workload(space, distribution)
        self._map = PartitionMap("legs")
        self._hosts = hosts
        self._count = 0

    async def fill(self, active: int) -> None:
        """Advertise and subscribe, many at a time."""
        publishers = [
            self._partial(f"p{n}", ask, advertised=True)
            for n, ask in enumerate(self._workload.publishers())
        ]
        await self._together(publishers)
        while self._count < active:
            await self._together([self._new() for _ in range(min(FILL, active - self._count))])

    async def measure(self, requests: int, until: float) -> Services:
        """Serve requests, new ones and ends of the oldest in turn."""
        clock = time.perf_counter
        asks = self._workload.asks(requests)
        seconds: list[float] = []
        operations = 0
        for number, ask in enumerate(asks):
            began = clock()
            if began > until:
                break
            if number % 2:
                partial = Partial(Kind.UNSUBSCRIBE, f"s{number // 2}")
            else:
                partial = self._partial(f"n{number}", ask)
            decision = self._engine.decide([partial], "fifo")
            for batch in decision.rounds:
                for switch, ops in batch.items():
                    for op in ops:
                        await self._apply({switch: [op]})
                        operations += 1
            self._engine.commit(decision)
            seconds.append(clock() - began)
        return Services(seconds, operations)

    def _new(self) -> Partial:
        (ask,) = self._workload.asks(1)
        self._count += 1
        return self._partial(f"s{self._count - 1}", ask)

    def _partial(self, name: str, ask: Ask, advertised: bool = False) -> Partial:
        asked = request(self._index, name, within(ask, self._hosts), advertised)
        return route(self._map, asked)[PARTITION]

    async def _together(self, partials: list[Partial]) -> None:
        decision = self._engine.decide(partials, "net")
        for batch in decision.rounds:
            await self._apply(batch)
        self._engine.commit(decision)

    async def _apply(self, batch: Batch) -> None:
        outcomes = await self._driver.apply(PARTITION, 1, batch)
        assert all(isinstance(outcome, Acknowledged) for outcome in outcomes.values()), outcomes


async def _all_up(driver: OpenFlowDriver, count: int) -> None:
    up: set[str] = set()
    async with asyncio.timeout(WAIT):
        while len(up) < count:
            event = await driver.events.get()
            if isinstance(event, SwitchUp):
                up.add(event.switch)
