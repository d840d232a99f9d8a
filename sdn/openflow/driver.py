"""The OpenFlow driver: listens for switches, keeps each as it should be, carries out batches."""

import asyncio
from collections.abc import Collection, Iterable, Mapping

from sdn.fence import StaleEpoch
from sdn.flows import Batch, FlowEntry
from sdn.openflow.switches.connection import Connection, ConnectionLost
from sdn.openflow.switches.reconciler import TAKING
from sdn.openflow.switches.server import DriverOptions, Reception
from sdn.outcomes import Outcome
from sdn.pipeline import Pipeline
from sdn.topology import Topology

__all__ = ["DriverOptions", "OpenFlowDriver"]


class OpenFlowDriver(Reception):
    """Keeps switches as they should be and carries out batches; an async context manager.

    `epochs` are those that are in force when it starts; nothing older is ever let through.
    """

    async def apply(self, partition: str, epoch: int, batch: Batch) -> dict[str, Outcome]:
        """Carry out operations; one outcome per switch. StaleEpoch if the fence is higher."""
        self._fence.check(partition, epoch)
        keepers = [self._keeper(switch) for switch in batch]
        gathering = _Gathering(len(batch))
        for keeper, ops in zip(keepers, batch.values(), strict=True):
            keeper.submit(partition, epoch, ops, gathering.put)
        return await gathering.done

    async def raise_epoch(self, partition: str, epoch: int) -> None:
        """From now on, nothing older is sent for this partition, whatever is queued already."""
        self._fence.raise_to(partition, epoch)
        for keeper in self._keepers.values():
            keeper.drop_older(partition, epoch)

    async def reconcile(
        self, partition: str, epoch: int, expected: Mapping[str, Iterable[FlowEntry]]
    ) -> dict[str, Outcome]:
        """Declare what a partition should have on each switch, and apply the difference only."""
        await self.declare(partition, epoch, expected)
        return await self.audit(*self._keepers)

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
        for switch in expected:
            self._keeper(switch)
        if switches is None:
            self._declared.add(partition)
            switches = list(self._keepers)
        for switch in switches:
            self._keeper(switch).declare(partition, expected.get(switch, ()))

    def claim(self, generation: int) -> None:
        """Become the master of all switches again, after having given way, with a new generation.

        When they are taken over they are compared and used.
        """
        self.assign(list(self._keepers) if self._mine is None else self._mine, generation)

    def assign(self, switches: Iterable[str], generation: int) -> None:
        """Be responsible for these switches from now on, and for no others.

        Those that were not ours, or were lost to another process, are taken over with the new
        generation; what partitions should have on those that were not ours has to be declared.
        To the others nothing is sent any more.
        """
        self._generation = generation
        self._mine = frozenset(switches)
        for name, keeper in self._keepers.items():
            if name not in self._mine:
                keeper.release()
                if self._finder:
                    self._finder.switch_down(name)
            elif keeper.off is not None:
                keeper.take()
                if peer := self._peers.get(name):
                    self._spawn(self._take_over(keeper, peer))

    async def audit(self, *switches: str) -> dict[str, Outcome]:
        """Compare switches with what they should hold, and repair what differs."""
        keepers = [self._keeper(switch) for switch in switches]
        outcomes = await asyncio.gather(*(keeper.sync() for keeper in keepers))
        return dict(zip(switches, outcomes, strict=True))

    async def read(self, switch: str) -> list[FlowEntry]:
        """Our entries as the switch has them now; ConnectionLost if it is not connected."""
        stats = await self.connection(switch).flow_stats()
        return [stat.entry for stat in stats if isinstance(stat.entry, FlowEntry)]

    def connection(self, switch: str) -> Connection:
        """The connection of a switch, to ask it something; ConnectionLost if there is none."""
        connection = self._keeper(switch).connection
        if connection is None:
            raise ConnectionLost(f"switch {switch} is not connected; wait for SwitchUp")
        return connection

    async def set_network(self, topology: Topology, pipeline: Pipeline) -> None:
        """Bring base entries and groups in line with a (changed) network.

        Its hosts and links count as declared: discovery does not move or replace them.
        """
        gone = set(self._by_dpid.values()) - {switch.id for switch in topology.switches}
        self._topology, self._pipeline = topology, pipeline
        self._arrange()
        if self._finder:
            self._finder.declare(topology)
            for switch in gone:
                self._finder.switch_removed(switch)
        await self.audit(*(s for s, keeper in self._keepers.items() if keeper.connection))

    def up(self) -> set[str]:
        """The switches that are ours, hold what they should, and carry out batches."""
        return {switch for switch, keeper in self._keepers.items() if keeper.up}

    def down(self) -> dict[str, str]:
        """The others that we are responsible for, each with the reason.

        Those that another process is the master of are neither up nor down for us.
        """
        return {
            switch: keeper.trouble
            for switch, keeper in self._keepers.items()
            if not keeper.up and keeper.off in (None, TAKING)
        }

    def declared(self, switch: str) -> Collection[str]:
        """The partitions of which it is known what a switch should hold of them."""
        return self._keeper(switch).shadow.declared

    def holding(self, switch: str) -> set[str]:
        """The partitions that a switch should hold anything of."""
        return self._keeper(switch).shadow.holding()

    def ports_down(self) -> list[tuple[str, int]]:
        """The ports (switch and number) of switches of ours that are known to be down."""
        return [
            (name, number)
            for name, peer in self._peers.items()
            if (keeper := self._keepers.get(name)) and keeper.off is None
            for number, is_up in peer.all_ports().items()
            if not is_up
        ]


class _Gathering:
    """The outcomes of a batch; `done` has them when all are there."""

    def __init__(self, count: int) -> None:
        self.done: asyncio.Future[dict[str, Outcome]] = asyncio.get_running_loop().create_future()
        self._left = count
        self._outcomes: dict[str, Outcome] = {}
        self._stale: StaleEpoch | None = None
        if not count:
            self.done.set_result({})

    def put(self, switch: str, outcome: Outcome | StaleEpoch) -> None:
        """The outcome of one switch."""
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
