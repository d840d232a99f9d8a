"""A dispatcher with everything behind it: real configurators, southbound process, switches."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Literal

from msgspec.structs import replace

from configurators.process import ConfiguratorOptions, ConfiguratorProcess
from configurators.southbound.options import SouthboundOptions
from configurators.southbound.process import SouthboundProcess
from configurators.state.network import first_network, undiscovered_network
from configurators.store.documents import encode
from configurators.store.etcd.client import Access, Etcd
from configurators.store.keys import NETWORK
from configurators.streams.addresses import split_address
from dispatcher.dispatcher import Dispatcher
from dispatcher.options import DispatcherOptions
from dispatcher.views import FlowView
from sdn.emulator.model import SOFTWARE, SwitchModel
from sdn.emulator.network import EmulatedNetwork
from sdn.network.topologies import topology
from sdn.network.topology import Topology
from sdn.tables.pipeline import PlanName
from tests.dispatcher.support import TIMEOUT, TOKEN, UNLIMITED
from tests.support import until

Mode = Literal["sna", "sea"]

QUICK = ConfiguratorOptions(tune_gc=False, load_every_s=0.2)


class Whole:
    """What runs."""

    def __init__(
        self,
        access: Access,
        etcd: Etcd,
        network: EmulatedNetwork,
        mode: Mode,
        configurators: int,
        openflow: list[tuple[str, int]],
    ) -> None:
        self.mode = mode
        self.access = access
        self.etcd = etcd
        self.network = network
        self.openflow = openflow  # where switches connect
        self._configurators = configurators

    def connect(self, *switches: str) -> None:
        """Have these switches connect, or all."""
        for number, (name, agent) in enumerate(self.network.agents.items()):
            if not switches or name in switches:
                agent.set_controllers([self.openflow[number % len(self.openflow)]])

    @asynccontextmanager
    async def dispatcher(self, **options: Any) -> AsyncIterator[Dispatcher]:
        """A dispatcher that is ready, and knows all configurators."""
        how = DispatcherOptions(mode=self.mode, **UNLIMITED | options)
        async with Dispatcher(self.access, TOKEN, how) as made:

            async def ready() -> bool:
                health = made.health()
                known = len(made.status.configurators())
                return health.ready and not health.impaired and known >= self._configurators

            await until(ready)
            yield made

    async def check_flows(self, d: Dispatcher) -> int:
        """All switches have what a rebuild from the records says; how many entries there are."""
        count = 0
        for switch in d.status.switches():
            expected = await d.flows(switch.id, "cp")
            assert uncounted(await d.flows(switch.id, "dp")) == expected
            count += sum(flow.space is not None for flow in expected)
        return count


def uncounted(flows: list[FlowView]) -> list[FlowView]:
    """Entries of a switch without what they have counted."""
    return [replace(flow, packets=None, bytes=None) for flow in flows]


@asynccontextmanager
async def whole(
    access: Access,
    shape: str = "line:3",
    plan: PlanName = "legs",
    trees: int = 1,
    configurators: int = 2,
    mode: Mode = "sna",
    model: SwitchModel = SOFTWARE,
    options: ConfiguratorOptions = QUICK,
    discovered: bool = False,
    cabled: Topology | None = None,
    southbound: int = 1,
    connect: bool = True,
    learn_hosts: bool = False,
) -> AsyncIterator[Whole]:
    """A small network and all processes that a dispatcher needs.

    If it is to be `discovered`, nothing is known of it at first. If it is `cabled` in another way,
    discovery compares. Hosts may be learned. With several southbound processes, each switch
    connects to one of them, by turns; without `connect`, when the test says so.
    """
    async with AsyncExitStack() as stack:
        etcd = await stack.enter_async_context(Etcd(access))
        first = (
            undiscovered_network(plan, trees)
            if discovered
            else first_network(topology(shape), plan, trees)
        )
        await etcd.put(NETWORK, encode(first))
        probing = discovered or cabled is not None
        how_south = SouthboundOptions(discover=probing, learn_hosts=learn_hosts)
        addresses = []
        for number in range(southbound):
            south = SouthboundProcess(
                access, TOKEN, f"sb{number + 1}", "127.0.0.1:0", "127.0.0.1:0", options=how_south
            )
            await stack.enter_async_context(_running(south.run))
            async with asyncio.timeout(TIMEOUT):
                await south.ready.wait()
            addresses.append(split_address(south.openflow))
        network = EmulatedNetwork(cabled or topology(shape), model=model)
        await stack.enter_async_context(network)
        for number in range(configurators):
            how = replace(options, mode=mode)
            process = ConfiguratorProcess(access, TOKEN, f"c{number + 1}", "127.0.0.1:0", how)
            await stack.enter_async_context(_running(process.run))
        made = Whole(access, etcd, network, mode, configurators, addresses)
        if connect:
            made.connect()
        yield made


@asynccontextmanager
async def _running(
    run: Callable[[asyncio.Event], Coroutine[None, None, None]],
) -> AsyncIterator[None]:
    stop = asyncio.Event()
    task = asyncio.create_task(run(stop))
    try:
        yield
    finally:
        stop.set()
        async with asyncio.timeout(TIMEOUT):
            await task
