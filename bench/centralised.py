"""The peer: a centralised controller as in thesis section 2.4.4.

It serves one request at a time, and waits for the acknowledgement of each flow-mod before it sends
the next. It uses our index, engine, driver and switches, in one process, with one partition,
without REST and without a store. So the comparison is between two ways to work, not between two
implementations.
"""

import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import NamedTuple

from bench.load.arrivals import extrapolate, latency_columns, queueing_latencies
from bench.load.traffic import scale_down
from bench.processes.switches import emulated_switches, wait_until_up
from bench.report import Row
from bench.workload import (
    Distribution,
    HostFilter,
    Workload,
    make_index,
    make_request,
    make_space,
)
from configurators.engine.engine import Engine
from configurators.engine.partials import Kind, Partial
from configurators.engine.partition_map import PartitionMap, route
from dzflow.address import Scope
from sdn.network.routes import Routes
from sdn.network.topologies import topology
from sdn.network.trees import spanning_tree
from sdn.openflow.driver import DriverOptions, OpenFlowDriver
from sdn.outcomes import Acknowledged
from sdn.tables.flows import Batch
from sdn.tables.pipeline import Pipeline
from sdn.tables.plans import make_plan

PARTITION = "all"
FILL = 1_000  # requests decided together before the measurement
TIMEOUT = 60.0  # seconds for any answer of a switch


class ServiceTimes(NamedTuple):
    """How long each request took, served one after another, and the number of operations."""

    seconds: list[float]
    operations: int

    @property
    def rate(self) -> float:
        """Requests per second if another request is always waiting."""
        return len(self.seconds) / sum(self.seconds)

    def columns(self, arrivals: Sequence[float]) -> Row:
        """Latencies if requests arrive at these times and all are served in the end.

        They follow exactly from the service times. If fewer were measured than arrive, the rest is
        extrapolated with random draws from the measured ones.
        """
        services = extrapolate(self.seconds, len(arrivals))
        return {
            "requests_per_s": self.rate,
            **latency_columns(queueing_latencies(arrivals, services)),
            "operations_per_request": self.operations / len(self.seconds),
            "measured": min(len(self.seconds), len(arrivals)),
            "extrapolated": max(0, len(arrivals) - len(self.seconds)),
        }


async def measure_centralised(
    name: str,
    distribution: Distribution,
    active: int,
    acknowledge_after: float,
    requests: int,
    seconds: float,
) -> ServiceTimes:
    """Serve requests, half of them unsubscriptions, on top of the active subscriptions.

    The measurement ends after this many requests or seconds, whichever comes first.
    """
    network = topology(name)
    pipeline = Pipeline(plan="legs").extended(network)
    options = DriverOptions(port=0, timeout=TIMEOUT, discover=False)
    async with AsyncExitStack() as stack:
        driver = await stack.enter_async_context(
            OpenFlowDriver(network, pipeline, lambda _: PARTITION, {}, options)
        )
        stack.enter_context(emulated_switches(name, driver.port, acknowledge_after))
        await wait_until_up(driver, len(network.switches))
        routes = Routes(network, {0: spanning_tree(network)})
        engine = Engine(make_plan(routes, pipeline, Scope(1)))
        controller = _Controller(driver, engine, distribution, len(network.hosts))
        await controller.fill(active)
        return await controller.measure(requests, time.perf_counter() + seconds)


class _Controller:
    """A controller with one engine and one driver, which serves one request at a time."""

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
        """Advertise and subscribe, many requests at a time."""
        publishers = [
            self._partial(f"p{n}", publisher, advertised=True)
            for n, publisher in enumerate(self._workload.publishers())
        ]
        await self._apply_slice(publishers)
        while self._count < active:
            await self._apply_slice(
                [self._next_subscription() for _ in range(min(FILL, active - self._count))]
            )

    async def measure(self, requests: int, until: float) -> ServiceTimes:
        """Serve new subscriptions and removals of the oldest ones in turn."""
        clock = time.perf_counter
        new = self._workload.subscriptions(requests)
        seconds: list[float] = []
        operations = 0
        for number, subscription in enumerate(new):
            began = clock()
            if began > until:
                break
            if number % 2:
                partial = Partial(Kind.UNSUBSCRIBE, f"s{number // 2}")
            else:
                partial = self._partial(f"n{number}", subscription)
            decision = self._engine.decide([partial], "fifo")
            for batch in decision.rounds:
                for switch, ops in batch.items():
                    for op in ops:
                        await self._apply({switch: [op]})
                        operations += 1
            self._engine.commit(decision)
            seconds.append(clock() - began)
        return ServiceTimes(seconds, operations)

    def _next_subscription(self) -> Partial:
        (subscription,) = self._workload.subscriptions(1)
        self._count += 1
        return self._partial(f"s{self._count - 1}", subscription)

    def _partial(self, name: str, wanted: HostFilter, advertised: bool = False) -> Partial:
        request = make_request(self._index, name, scale_down(wanted, self._hosts), advertised)
        return route(self._map, request)[PARTITION]

    async def _apply_slice(self, partials: list[Partial]) -> None:
        decision = self._engine.decide(partials, "net")
        for batch in decision.rounds:
            await self._apply(batch)
        self._engine.commit(decision)

    async def _apply(self, batch: Batch) -> None:
        outcomes = await self._driver.apply(PARTITION, 1, batch)
        assert all(isinstance(outcome, Acknowledged) for outcome in outcomes.values()), outcomes
