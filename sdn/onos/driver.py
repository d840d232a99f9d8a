"""The ONOS driver: batches, read-back and discovery through the REST interface of ONOS.

ONOS matches IPv6 addresses by prefix only, so this driver offers the plan `lpm` and refuses `legs`.
Unlike a switch, ONOS has no role that keeps a second southbound process away: see to it that one
process alone works with an application id.
"""

import asyncio
import logging
from collections.abc import Collection, Coroutine, Iterable, Mapping
from types import TracebackType
from typing import Self

from dzflow.errors import BadInput
from sdn.fence import Fence
from sdn.flows import Batch, FlowEntry
from sdn.network_events import NetworkEvent, Repaired, SwitchDown, SwitchUp
from sdn.onos import discovery
from sdn.onos.client import Client, OnosAccess, OnosError, parsed
from sdn.onos.keeper import Keeper, Site, site_of
from sdn.onos.options import OnosOptions
from sdn.onos.wire import Devices, Hosts, Links, device_id
from sdn.outcomes import Acknowledged, Outcome, Undefined
from sdn.pipeline import Pipeline
from sdn.shadow import PartitionOf
from sdn.topology import Topology, UnknownSwitch

log = logging.getLogger(__name__)

EVENTS = 10_000  # events that may wait to be read before old ones are dropped

_DEVICES, _LINKS, _HOSTS = parsed(Devices), parsed(Links), parsed(Hosts)


class LegsNotPossible(BadInput):
    """The plan legs is asked for, which ONOS cannot do."""


class OnosDriver:
    """Switches are reached through an ONOS; use as an async context manager.

    `epochs` are those that are in force when it starts; nothing older is ever let through. `events`
    tells what happens: SwitchUp, SwitchDown and Repaired.
    """

    def __init__(
        self,
        topology: Topology,
        pipeline: Pipeline,
        partition_of: PartitionOf,
        epochs: Mapping[str, int],
        access: OnosAccess,
        options: OnosOptions | None = None,
    ) -> None:
        self.options = options or OnosOptions()
        self.events: asyncio.Queue[NetworkEvent] = asyncio.Queue(EVENTS)
        _check_plan(pipeline)
        self._fence = Fence(epochs)
        self._partition_of = partition_of
        self._topology = topology
        self._pipeline = pipeline
        self._trees = self.options.trees
        self._keepers: dict[str, Keeper] = {}
        self._mine = frozenset(switch.id for switch in topology.switches)
        self._tasks: set[asyncio.Task[None]] = set()
        self._looking = asyncio.Lock()
        self._client = Client(access)

    async def __aenter__(self) -> Self:
        """Reach ONOS and set up the switches that are connected to it; OnosError if that fails."""
        try:
            self._make_keepers()
            await self.look()
        except BaseException:
            await self._close()
            raise
        self._spawn(self._watch())
        self._spawn(self._audit())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        await self._close()

    async def _close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for keeper in self._keepers.values():
            await keeper.close()
        await self._client.close()

    # The southbound interface

    async def apply(self, partition: str, epoch: int, batch: Batch) -> dict[str, Outcome]:
        """Carry out operations; one outcome per switch. StaleEpoch if the fence is higher.

        BadInput, and nothing is sent, if ONOS has no rules for an operation.
        """
        self._fence.check(partition, epoch)
        for switch, ops in batch.items():
            self._keeper(switch).check_ops(ops)
        return await _gathered(
            {s: self._keeper(s).apply(partition, epoch, ops) for s, ops in batch.items()}
        )

    async def raise_epoch(self, partition: str, epoch: int) -> None:
        """From now on, nothing older is sent for this partition, whatever is queued already."""
        self._fence.raise_to(partition, epoch)
        # One that has passed the fence may be about to be sent.
        await self._client.settled(partition)

    async def reconcile(
        self, partition: str, epoch: int, expected: Mapping[str, Iterable[FlowEntry]]
    ) -> dict[str, Outcome]:
        """Declare what a partition should have on each switch, and apply the difference only."""
        self._fence.check(partition, epoch)
        wanted = {switch: list(entries) for switch, entries in expected.items()}
        for switch, entries in wanted.items():
            self._keeper(switch).check(entries)
        return await _gathered(
            {
                switch: keeper.reconcile(partition, epoch, wanted.get(switch, []))
                for switch, keeper in self._keepers.items()
            }
        )

    async def declare(
        self,
        partition: str,
        epoch: int,
        expected: Mapping[str, Iterable[FlowEntry]],
        switches: Iterable[str] | None = None,
    ) -> None:
        """Say what a partition should have on switches (or on all), without comparing them.

        Where `expected` names nothing, it should have nothing.
        """
        self._fence.check(partition, epoch)
        wanted = {switch: list(entries) for switch, entries in expected.items()}
        for switch, entries in wanted.items():
            self._keeper(switch).check(entries)
        for switch in list(self._keepers if switches is None else switches):
            await self._keeper(switch).declare(partition, epoch, wanted.get(switch, []))

    def declared(self, switch: str) -> Collection[str]:
        """The partitions of which it is known what a switch should hold of them."""
        return self._keeper(switch).shadow.declared

    def holding(self, switch: str) -> set[str]:
        """The partitions that a switch should hold anything of."""
        return self._keeper(switch).shadow.holding()

    def assign(self, switches: Iterable[str], generation: int) -> None:  # noqa: ARG002
        """Be responsible for these switches from now on, and for no others.

        What partitions should have on those that were not ours has to be declared. ONOS has no
        generations: see to it that no other process is responsible any more.
        """
        before, self._mine = self._mine, frozenset(switches)
        for switch in self._mine - before:
            if switch in self._keepers:
                self._keepers[switch].forget()

    async def audit(self, *switches: str) -> dict[str, Outcome]:
        """Compare switches with what they should hold, and repair what differs."""
        keepers = {switch: self._keeper(switch) for switch in switches}
        outcomes = await _gathered({switch: k.sync() for switch, k in keepers.items()})
        self._note(outcomes)
        return outcomes

    async def read(self, switch: str) -> list[FlowEntry]:
        """Our entries as the switch has them now; OnosError if ONOS does not tell."""
        return await self._keeper(switch).read()

    async def set_network(
        self, topology: Topology, pipeline: Pipeline, trees: Iterable[int] | None = None
    ) -> None:
        """Bring base entries and host legs in line with a (changed) network.

        `trees` are the numbers of the trees in use, if they have changed. Switches that cannot be
        brought in line now count as down, and are tried again until they are; OnosError if that
        is because ONOS is away.
        """
        _check_plan(pipeline)
        self._topology, self._pipeline = topology, pipeline
        self._trees = self._trees if trees is None else tuple(trees)
        gone = self._make_keepers()
        self._note(await _gathered({n: k.arrange(self._site(n)) for n, k in self._keepers.items()}))
        for keeper in gone:
            await keeper.close()
        await self.look()

    # The network

    async def discover(self) -> Topology:
        """Connected switches, links and hosts as ONOS sees them, under the names that we know."""
        devices, links, hosts = await asyncio.gather(
            self._client.get("devices", parse=_DEVICES),
            self._client.get("links", parse=_LINKS),
            self._client.get("hosts", parse=_HOSTS),
        )
        return discovery.build(devices, links, hosts, self._topology)

    def connected(self) -> set[str]:
        """The switches that are up."""
        return {switch for switch, keeper in self._keepers.items() if keeper.down is None}

    def up(self) -> set[str]:
        """The switches that we are responsible for and that are up."""
        return self.connected() & self._mine

    def down(self) -> dict[str, str]:
        """The others that we are responsible for, each with the reason."""
        return {
            switch: keeper.down
            for switch, keeper in self._keepers.items()
            if keeper.down is not None and switch in self._mine
        }

    def ports_down(self) -> list[tuple[str, int]]:
        """The ports that are known to be down: none, ONOS is not asked for them."""
        return []

    async def look(self) -> None:
        """Ask ONOS which switches are connected, and bring those in line that have come back."""
        async with self._looking:
            try:
                devices = await self._client.get("devices", parse=_DEVICES)
            except OnosError as error:
                for keeper in self._keepers.values():
                    self._lost(keeper, str(error))
                raise
            present = discovery.connected(devices)
            back = []
            for keeper in self._keepers.values():
                if keeper.device not in present:
                    self._lost(keeper, f"{keeper.device} is not connected to ONOS")
                elif keeper.down is not None:
                    back.append(keeper)
            await asyncio.gather(*map(self._returned, back))

    async def _returned(self, keeper: Keeper) -> None:
        outcome = await keeper.sync(unless_down=False)
        if isinstance(outcome, Undefined):
            keeper.down = outcome.reason
            log.warning("not in line: %s", outcome.reason)
            return
        keeper.down = None
        self._tell(SwitchUp(keeper.switch))

    def _lost(self, keeper: Keeper, reason: str) -> None:
        if keeper.down is None:
            self._tell(SwitchDown(keeper.switch, reason))
        keeper.down = reason

    def _note(self, outcomes: Mapping[str, Outcome]) -> None:
        for switch, outcome in outcomes.items():
            keeper = self._keepers.get(switch)
            if keeper is None or keeper.down is not None:
                continue
            if isinstance(outcome, Undefined):
                self._lost(keeper, outcome.reason)
            elif not isinstance(outcome, Acknowledged):
                log.warning("switch %s cannot be brought in line: %s", switch, outcome)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self.options.watch_every)
            try:
                await self.look()
            except OnosError as error:
                log.warning("%s", error)

    async def _audit(self) -> None:
        while True:
            await asyncio.sleep(self.options.audit_every)
            for switch in sorted(self.connected()):
                if switch in self._keepers:
                    await self.audit(switch)

    def _repaired(self, switch: str, operations: int) -> None:
        log.info("switch %s: %d operations brought it in line", switch, operations)
        self._tell(Repaired(switch, operations))

    def _tell(self, event: NetworkEvent) -> None:
        if self.events.full():
            log.warning("nobody reads events; dropped %s", self.events.get_nowait())
        self.events.put_nowait(event)

    def _make_keepers(self) -> list[Keeper]:
        """Have a keeper for each switch of the topology; returns those that are left over."""
        old = self._keepers
        self._keepers = {}
        for switch in self._topology.switches:
            keeper = old.get(switch.id)
            if keeper is None or keeper.device != device_id(switch.dpid):
                keeper = Keeper(
                    switch,
                    self._site(switch.id),
                    self._client,
                    self._fence,
                    self._partition_of,
                    self.options,
                    self._repaired,
                )
            self._keepers[switch.id] = keeper
        return [k for name, k in old.items() if self._keepers.get(name) is not k]

    def _site(self, switch: str) -> Site:
        return site_of(switch, self._topology, self._pipeline, self._trees)

    def _keeper(self, switch: str) -> Keeper:
        try:
            return self._keepers[switch]
        except KeyError:
            raise UnknownSwitch(f"there is no switch {switch!r} in the topology") from None

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("a task of the driver failed", exc_info=error)


async def _gathered(work: Mapping[str, Coroutine[None, None, Outcome]]) -> dict[str, Outcome]:
    """The outcome for each switch; an error of one is raised when all have come to an end."""
    results = await asyncio.gather(*work.values(), return_exceptions=True)
    outcomes = {}
    for switch, result in zip(work, results, strict=True):
        if isinstance(result, BaseException):
            raise result
        outcomes[switch] = result
    return outcomes


def _check_plan(pipeline: Pipeline) -> None:
    if pipeline.plan != "lpm":
        raise LegsNotPossible(
            f"the plan {pipeline.plan} matches IPv6 addresses by any mask, which ONOS cannot do (it"
            " knows prefixes only); use the plan lpm, or connect the switches by OpenFlow"
        )
