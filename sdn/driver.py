"""The interface of a switch driver: acknowledged batches behind a fence, and audits.

The southbound process works with any driver of this form: `sdn.openflow.driver` talks to switches
itself, `sdn.onos.driver` goes through ONOS.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from sdn.network.events import NetworkEvent
from sdn.network.findings import Findings
from sdn.network.topology import Topology
from sdn.outcomes import Outcome
from sdn.tables.flows import Batch, FlowEntry
from sdn.tables.pipeline import Pipeline, SwitchNumbers
from sdn.tables.readings import Reading, TableUse


class SwitchDriver(Protocol):
    """Drives the switches that it is assigned; other processes may drive the rest.

    Calls may overlap; each switch keeps their order. `events` has what happens in the network.
    """

    events: "asyncio.Queue[NetworkEvent]"

    def assign(self, switches: Iterable[str], generation: int) -> None:
        """Drive exactly these switches from now on."""

    async def apply(self, partition: str, epoch: int, batch: Batch) -> dict[str, Outcome]:
        """Carry out operations; one outcome per switch. StaleEpoch if the fence is higher."""

    async def raise_epoch(self, partition: str, epoch: int) -> None:
        """From now on, send nothing of lower epochs for this partition, not even queued work."""

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

    async def withdraw(self, partition: str, epoch: int) -> None:
        """Expect nothing of a partition that no longer exists, and refuse all lower epochs.

        Its entries stay on the switches. StaleEpoch if the fence is higher already.
        """

    async def audit(self, *switches: str) -> dict[str, Outcome]:
        """Compare switches with the entries that they should hold, and repair differences."""

    async def read(self, switch: str) -> Reading:
        """Our entries as the switch has them now."""

    async def vacant(self, switch: str, numbers: SwitchNumbers) -> SwitchNumbers:
        """Those of these tables and groups that hold nothing of ours but misses.

        DzflowError if the switch cannot be asked.
        """

    async def set_network(self, topology: Topology, pipeline: Pipeline) -> None:
        """Bring base entries and groups in line with a (changed) network."""

    def let_join(self, joining: bool) -> None:
        """Whether switches and links that are found join the network; by default, it is fixed."""

    def found(self) -> Findings:
        """What discovery has found so far."""

    def declared(self, switch: str) -> Collection[str]:
        """The partitions that were declared on a switch."""

    def holding(self, switch: str) -> set[str]:
        """The partitions that should have entries on a switch."""

    def attached(self) -> set[str]:
        """The switches that are connected to this process, assigned to it or not."""

    def up(self) -> set[str]:
        """The assigned switches that hold what they should and carry out batches."""

    def down(self) -> dict[str, str]:
        """The other assigned switches, each with the reason."""

    def refusing(self) -> dict[str, str]:
        """The switches that are up and refuse entries that they should hold, with the reason."""

    def table_use(self) -> dict[str, TableUse]:
        """How full the tables of the assigned switches are; quick enough for every second."""

    def ports_down(self) -> list[tuple[str, int]]:
        """The ports (switch and number) of assigned switches that are known to be down."""
