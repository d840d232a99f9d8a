"""What every driver of switches offers: acknowledged batches behind a fence, and reconciliation.

Pure parts only: outcomes, the fence, and the shadow of what a switch should hold. Drivers
(OpenFlow, ONOS) are thin shells around them.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Protocol

from msgspec import Struct

from dzflow.address import OWN_SPACE
from dzflow.errors import DzflowError
from sdn.flows import Batch, Change, FlowEntry, FlowKey, FlowOp, difference
from sdn.pipeline import Pipeline
from sdn.topology import Host, Link, Topology

BASE = "base"
"""The partition of what a switch holds without any request."""

NOBODY = "nobody"
"""The partition of entries that no switch should hold."""

PartitionOf = Callable[[FlowEntry], str | None]
"""Which partition an entry belongs to, as its match tells; None if nobody knows it."""


class StaleEpoch(DzflowError):
    """Work of somebody who no longer owns the partition; nothing was sent."""


class Acknowledged(Struct, frozen=True, tag="acknowledged"):
    """The switch has carried everything out."""


class Failed(Struct, frozen=True, tag="failed"):
    """The switch refused some operations; `refused` says which (by place in the batch) and why."""

    refused: dict[int, str]
    table_full: bool = False


class Undefined(Struct, frozen=True, tag="undefined"):
    """Nobody knows whether the switch has carried it out: no answer, or no connection."""

    reason: str


Outcome = Acknowledged | Failed | Undefined


class SwitchUp(Struct, frozen=True):
    """A switch is connected, checked and holds what it should."""

    switch: str


class SwitchDown(Struct, frozen=True):
    """The connection to a switch is lost."""

    switch: str
    reason: str


class SwitchRefused(Struct, frozen=True):
    """A switch connected that cannot be used; the reason says what is missing."""

    dpid: int
    reason: str


class Superseded(Struct, frozen=True):
    """Another southbound process has become the master of a switch."""

    switch: str


class Repaired(Struct, frozen=True):
    """A switch did not hold what it should; these operations brought it back."""

    switch: str
    operations: int


class LinkChanged(Struct, frozen=True):
    """A link between switches was found, or is gone."""

    link: Link
    up: bool


class PortStateChanged(Struct, frozen=True):
    """A port of a switch went up or down."""

    switch: str
    port: int
    up: bool


class HostSeen(Struct, frozen=True):
    """A host was learned at a port (declared hosts are not reported)."""

    host: Host


NetworkEvent = (
    SwitchUp
    | SwitchDown
    | SwitchRefused
    | Superseded
    | Repaired
    | LinkChanged
    | PortStateChanged
    | HostSeen
)


class Southbound(Protocol):
    """A driver of switches. Calls may be made at the same time; each switch keeps their order."""

    async def apply(self, partition: str, epoch: int, batch: Batch) -> dict[str, Outcome]:
        """Carry out operations; one outcome per switch. StaleEpoch if the fence is higher."""

    async def raise_epoch(self, partition: str, epoch: int) -> None:
        """From now on, nothing older is sent for this partition, whatever is queued already."""

    async def reconcile(
        self, partition: str, epoch: int, expected: Mapping[str, Iterable[FlowEntry]]
    ) -> dict[str, Outcome]:
        """Declare what a partition should have on each switch, and apply the difference only."""

    async def read(self, switch: str) -> list[FlowEntry]:
        """Our entries as the switch has them now."""

    async def set_network(self, topology: Topology, pipeline: Pipeline) -> None:
        """Bring base entries and groups in line with a (changed) network."""


class Fence:
    """The least epoch that is let through, for each partition."""

    def __init__(self, epochs: Mapping[str, int] | None = None) -> None:
        self._epochs = dict(epochs or {})

    def raise_to(self, partition: str, epoch: int) -> None:
        """Let nothing older through; raises StaleEpoch if the fence is higher already."""
        self.check(partition, epoch)
        self._epochs[partition] = epoch

    def check(self, partition: str, epoch: int) -> None:
        """Raise StaleEpoch if something newer has been seen."""
        if self.stale(partition, epoch):
            raise StaleEpoch(
                f"partition {partition}: epoch {epoch} is over, {self._epochs[partition]} owns it"
                " now; stop working on this partition and read its state again"
            )

    def stale(self, partition: str, epoch: int) -> bool:
        """Whether something newer has been seen."""
        return epoch < self._epochs.get(partition, 0)


class Held(Struct, frozen=True, gc=False):
    """An entry that a switch should hold, and the partition that it belongs to."""

    partition: str
    entry: FlowEntry


Before = list[tuple[FlowKey, Held | None]]
"""What was before some operations, one by one."""


class Shadow:
    """What a switch should hold: base entries and those of all partitions that were declared."""

    def __init__(self, partition_of: PartitionOf) -> None:
        self._partition_of = partition_of
        self._held: dict[FlowKey, Held] = {}
        self.declared: set[str] = {NOBODY}

    @property
    def entries(self) -> Mapping[FlowKey, FlowEntry]:
        """All entries by their key, as they are now."""
        return _Entries(self._held)

    def holding(self) -> set[str]:
        """The partitions that have any entries."""
        return {one.partition for one in self._held.values()}

    def declare(self, partition: str, entries: Iterable[FlowEntry]) -> None:
        """From now on this partition should have just these entries.

        One that belonged to another partition is taken over.
        """
        held = self._held
        if partition in self.declared:
            for key in [key for key, one in held.items() if one.partition == partition]:
                del held[key]
        self.declared.add(partition)
        for entry in entries:
            held[entry.key] = Held(partition, entry)

    def note(self, partition: str, ops: Iterable[FlowOp]) -> Before:
        """Operations are on their way; returns what takes them back with `restore`."""
        before: Before = []
        self.declared.add(partition)
        held, delete = self._held, Change.DELETE
        for op in ops:  # the innermost loop of all: each look-up counts
            entry = op.entry
            key = entry.key
            was = held.get(key)
            before.append((key, was))
            if op.change is not delete:
                held[key] = Held(partition, entry)
            elif was is not None:
                del held[key]
        return before

    def restore(self, before: Before) -> None:
        """Operations have not been carried out after all."""
        for key, was in reversed(before):
            if was is not None:
                self._held[key] = was
            else:
                self._held.pop(key, None)

    def repair(
        self, found: Iterable[FlowEntry], ignoring: Collection[FlowKey] = frozenset()
    ) -> list[FlowOp]:
        """The operations that bring a switch with these entries (of ours) to what it should hold.

        Entries of partitions that nobody declared are left alone, as are the keys to ignore,
        because they were being changed while the switch was read.
        """
        have = [
            e
            for e in found
            if (key := e.key) not in ignoring
            and (key in self._held or self._owner(e) in self.declared)
        ]
        want = [one.entry for key, one in self._held.items() if key not in ignoring]
        return difference({"": have}, {"": want}).get("", [])

    def _owner(self, entry: FlowEntry) -> str | None:
        if entry.match is None or entry.match.address >> 102 & 0x3FF == OWN_SPACE:
            return BASE
        return self._partition_of(entry)


class _Entries(Mapping[FlowKey, FlowEntry]):
    """The entries of a shadow, without a copy."""

    def __init__(self, held: Mapping[FlowKey, Held]) -> None:
        self._held = held

    def __getitem__(self, key: FlowKey) -> FlowEntry:
        return self._held[key].entry

    def __iter__(self) -> Iterator[FlowKey]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)
