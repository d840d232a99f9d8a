"""The OpenFlow driver: a `SwitchDriver` that talks to switches itself."""

import asyncio
import logging
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping
from types import TracebackType
from typing import Self

from dzflow.aio import BackgroundTasks
from dzflow.process.limited_log import LimitedLog
from sdn.fence import Fence, StaleEpoch, always
from sdn.network.events import MastershipLost, NetworkEvent, SwitchDown, SwitchUp
from sdn.network.findings import Findings
from sdn.network.topology import Topology
from sdn.openflow.connections.connection import ConnectionLost, SwitchConnection
from sdn.openflow.discovery.discovery import Discovery
from sdn.openflow.options import DriverOptions
from sdn.openflow.switches.managed_switches import ManagedSwitches
from sdn.openflow.switches.reconciler import Control
from sdn.openflow.switches.server import SwitchServer
from sdn.outcomes import Outcome
from sdn.tables.flows import Batch, FlowEntry
from sdn.tables.pipeline import Pipeline, SwitchNumbers
from sdn.tables.readings import Counts, Reading, TableUse
from sdn.tables.shadow import PartitionOf

__all__ = ["DriverOptions", "OpenFlowDriver"]

log = logging.getLogger(__name__)

EVENTS = 10_000  # unread events, beyond which the driver drops the oldest

NewServer = Callable[[ManagedSwitches, DriverOptions, BackgroundTasks], SwitchServer]
"""Makes the server that switches connect to."""


class OpenFlowDriver:
    """Keeps switches as they should be and carries out batches; an async context manager.

    `epochs` are in force when it starts: nothing older is ever sent. Nothing at all is sent while
    `permits` says no.
    """

    def __init__(
        self,
        topology: Topology,
        pipeline: Pipeline,
        partition_of: PartitionOf,
        epochs: Mapping[str, int],
        options: DriverOptions | None = None,
        new_server: NewServer = SwitchServer,
        permits: Callable[[], bool] = always,
    ) -> None:
        self.options = options or DriverOptions()
        self.events: asyncio.Queue[NetworkEvent] = asyncio.Queue(EVENTS)
        self._fence = Fence(epochs, permits)
        self._tasks = BackgroundTasks()
        self._log = LimitedLog(log, logging.INFO, self.options.admission.log_every)
        key = self.options.discovery_key or secrets.token_bytes(32)
        first = secrets.randbits(62)
        discovery = (
            Discovery(key, first_nonce=first, ask_hosts=self.options.learn_hosts)
            if self.options.discover
            else None
        )
        self._switches = ManagedSwitches(
            topology,
            pipeline,
            partition_of,
            self._fence,
            self.options,
            discovery,
            self._report,
            self._tasks,
        )
        self._server = new_server(self._switches, self.options, self._tasks)

    @property
    def port(self) -> int:
        """The port that switches connect to."""
        return self._server.port

    async def __aenter__(self) -> Self:
        await self._server.start()
        self._switches.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        await self._server.stop()
        await self._tasks.cancel()

    # Batches

    async def apply(self, partition: str, epoch: int, batch: Batch) -> dict[str, Outcome]:
        """Carry out operations; one outcome per switch. StaleEpoch if the fence is higher."""
        self._fence.check(partition, epoch)
        queues = [self._switches.reconciler(switch).queue for switch in batch]
        collector = _OutcomeCollector(len(batch))
        for queue, ops in zip(queues, batch.values(), strict=True):
            queue.submit(partition, epoch, ops, collector.put)
        return await collector.done

    async def raise_epoch(self, partition: str, epoch: int) -> None:
        """From now on, send nothing of lower epochs for this partition, not even queued work."""
        self._fence.raise_to(partition, epoch)
        for reconciler in self._switches.reconcilers.values():
            reconciler.queue.drop_stale(partition, epoch)

    # What switches should hold

    async def declare(
        self,
        partition: str,
        epoch: int,
        expected: Mapping[str, Iterable[FlowEntry]],
        switches: Iterable[str] | None = None,
    ) -> None:
        """Declare the entries of a partition on switches (default: all), without an audit.

        On a switch that `expected` does not name, the partition has no entries.
        """
        self._fence.check(partition, epoch)
        for switch in expected:
            self._switches.reconciler(switch)
        if switches is None:
            self._switches.declared_everywhere(partition)
            switches = list(self._switches.reconcilers)
        for switch in switches:
            self._switches.reconciler(switch).declare(partition, expected.get(switch, ()))

    async def withdraw(self, partition: str, epoch: int) -> None:
        """Expect nothing of a partition that no longer exists, and refuse all lower epochs.

        Its entries stay on the switches. StaleEpoch if the fence is higher already.
        """
        await self.raise_epoch(partition, epoch)
        self._switches.withdraw(partition)

    async def audit(self, *switches: str) -> dict[str, Outcome]:
        """Compare switches with the entries that they should hold, and repair differences."""
        reconcilers = [self._switches.reconciler(switch) for switch in switches]
        outcomes = await asyncio.gather(*(reconciler.audit() for reconciler in reconcilers))
        return dict(zip(switches, outcomes, strict=True))

    async def read(self, switch: str) -> Reading:
        """Our entries as the switch has them now; ConnectionLost if it is not connected."""
        found = await self.connection(switch).flow_stats()
        ours = [stat for stat in found if isinstance(stat.entry, FlowEntry)]
        return Reading(
            (stat.entry for stat in ours if isinstance(stat.entry, FlowEntry)),
            [Counts(stat.packets, stat.octets) for stat in ours],
        )

    async def vacant(self, switch: str, numbers: SwitchNumbers) -> SwitchNumbers:
        """Those of these tables and groups that hold nothing of ours but misses.

        ConnectionLost if the switch is not up.
        """
        return await self._switches.reconciler(switch).vacant(numbers)

    async def set_network(self, topology: Topology, pipeline: Pipeline) -> None:
        """Bring base entries and groups in line with a (changed) network.

        Its hosts count as declared, and its links, too, unless more may join: discovery does not
        move or replace them.
        """
        self._switches.set_network(topology, pipeline)
        reconcilers = self._switches.reconcilers
        await self.audit(*(name for name, one in reconcilers.items() if one.connection))

    def let_join(self, joining: bool) -> None:
        """Whether switches and links that are found join the network; by default, it is fixed.

        Without discovery, nothing joins.
        """
        self._switches.let_join(joining)

    def found(self) -> Findings:
        """What discovery has found so far."""
        return self._switches.found()

    def declared(self, switch: str) -> Collection[str]:
        """The partitions that were declared on a switch."""
        return self._switches.reconciler(switch).shadow.declared

    def holding(self, switch: str) -> set[str]:
        """The partitions that should have entries on a switch."""
        return self._switches.reconciler(switch).shadow.holding()

    # Control

    def assign(self, switches: Iterable[str], generation: int) -> None:
        """Drive exactly these switches from now on.

        The driver takes over those that were not assigned, or were lost to another process, with
        the new generation. Partitions have to be declared on those that were not assigned before.
        """
        self._switches.assign(switches, generation)

    def connection(self, switch: str) -> SwitchConnection:
        """The connection of a switch, for requests to it; ConnectionLost if there is none."""
        connection = self._switches.reconciler(switch).connection
        if connection is None:
            raise ConnectionLost(f"switch {switch} is not connected; wait for SwitchUp")
        return connection

    def attached(self) -> set[str]:
        """The switches that are connected to this process, assigned to it or not."""
        return self._switches.attached()

    def connected(self) -> set[str]:
        """The assigned switches that are connected."""
        return self._switches.usable()

    def up(self) -> set[str]:
        """The assigned switches that hold what they should and carry out batches."""
        return {name for name, one in self._switches.reconcilers.items() if one.up}

    def down(self) -> dict[str, str]:
        """The other assigned switches, each with the reason.

        A switch with another process as its master is neither up nor down here.
        """
        return {
            name: one.trouble
            for name, one in self._switches.reconcilers.items()
            if not one.up and one.control in (Control.OURS, Control.TAKING_OVER)
        }

    def refusing(self) -> dict[str, str]:
        """The switches that are up and refuse entries that they should hold, with the reason."""
        reconcilers = self._switches.reconcilers
        return {name: one.refusal for name, one in reconcilers.items() if one.up and one.refusal}

    def table_use(self) -> dict[str, TableUse]:
        """How full the tables of the assigned switches are."""
        return {
            name: TableUse(len(one.shadow), one.shadow.fullest, one.queue.capacity)
            for name, one in self._switches.reconcilers.items()
            if one.control in (Control.OURS, Control.TAKING_OVER)
        }

    def ports_down(self) -> list[tuple[str, int]]:
        """The ports (switch and number) of assigned switches that are known to be down."""
        return self._switches.ports_down()

    def _report(self, event: NetworkEvent) -> None:
        if isinstance(event, (SwitchUp, SwitchDown, MastershipLost)):
            log.info("%s", event)
        else:  # a switch can cause any number of these
            where = getattr(event, "switch", "")
            self._log.add(f"{type(event).__name__} {where}", str(event))
        if self.events.full():
            dropped = self.events.get_nowait()
            self._log.add("full", f"the queue of network events is full; dropped {dropped}")
        self.events.put_nowait(event)


class _OutcomeCollector:
    """Collects the outcomes of a batch; `done` has them when all switches have settled."""

    def __init__(self, count: int) -> None:
        self.done: asyncio.Future[dict[str, Outcome]] = asyncio.get_running_loop().create_future()
        self._left = count
        self._outcomes: dict[str, Outcome] = {}
        self._stale: StaleEpoch | None = None
        if not count:
            self.done.set_result({})

    def put(self, switch: str, outcome: Outcome | StaleEpoch) -> None:
        """Add the outcome of one switch."""
        if isinstance(outcome, StaleEpoch):
            self._stale = outcome
        else:
            self._outcomes[switch] = outcome
        self._left -= 1
        if self._left or self.done.done():
            return
        if self._stale is None:
            self.done.set_result(self._outcomes)
        else:
            self.done.set_exception(self._stale)
