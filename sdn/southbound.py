"""What every driver of switches offers: acknowledged batches behind a fence, and reconciliation.

Pure parts only: outcomes, the fence, and the shadow of what a switch should hold. Drivers
(OpenFlow, ONOS) are thin shells around them.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from msgspec import Struct

from dzflow.address import OWN_SPACE
from dzflow.errors import DzflowError
from sdn.flows import Batch, Change, FlowEntry, FlowKey, FlowOp, difference
from sdn.pipeline import Pipeline
from sdn.topology import Host, Link, Topology

BASE = "base"
"""The partition of what a switch holds without any request."""

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
        known = self._epochs.get(partition, 0)
        if epoch < known:
            raise StaleEpoch(
                f"partition {partition}: epoch {epoch} is over, {known} owns it now; stop working"
                " on this partition and read its state again"
            )


class Shadow:
    """What a switch should hold: base entries and those of all partitions that were declared."""

    def __init__(self, partition_of: PartitionOf) -> None:
        self._partition_of = partition_of
        self.entries: dict[FlowKey, FlowEntry] = {}
        self._owners: dict[FlowKey, str] = {}
        self._keys: dict[str, set[FlowKey]] = {}  # of each partition that was declared

    def declare(self, partition: str, entries: Iterable[FlowEntry]) -> None:
        """From now on this partition should have just these entries.

        One that belonged to another partition is taken over.
        """
        for key in list(self._keys.setdefault(partition, set())):
            self._put(partition, key, None)
        for entry in entries:
            self._put(partition, entry.key, entry)

    def note(self, partition: str, ops: Iterable[FlowOp]) -> list[tuple[FlowKey, FlowEntry | None]]:
        """Operations are on their way; returns what takes them back with `restore`."""
        before = []
        self._keys.setdefault(partition, set())
        for op in ops:
            key = op.entry.key
            before.append((key, self.entries.get(key)))
            self._put(partition, key, None if op.change is Change.DELETE else op.entry)
        return before

    def restore(self, partition: str, before: Iterable[tuple[FlowKey, FlowEntry | None]]) -> None:
        """Operations have not been carried out after all."""
        for key, entry in reversed(list(before)):
            self._put(partition, key, entry)

    def _put(self, partition: str, key: FlowKey, entry: FlowEntry | None) -> None:
        owner = self._owners.get(key)
        if entry is None:
            if owner is not None:
                self._keys[owner].discard(key)
                del self._owners[key], self.entries[key]
            return
        if owner != partition:
            if owner is not None:
                self._keys[owner].discard(key)
            self._owners[key] = partition
            self._keys[partition].add(key)
        self.entries[key] = entry

    def repair(
        self, found: Iterable[FlowEntry], ignoring: frozenset[FlowKey] = frozenset()
    ) -> list[FlowOp]:
        """The operations that bring a switch with these entries (of ours) to what it should hold.

        Entries of partitions that nobody declared are left alone, as are the keys to ignore,
        because they were being changed while the switch was read.
        """
        have = [
            e
            for e in found
            if e.key not in ignoring and (e.key in self.entries or self._owner(e) in self._keys)
        ]
        want = [e for key, e in self.entries.items() if key not in ignoring]
        return difference({"": have}, {"": want}).get("", [])

    def _owner(self, entry: FlowEntry) -> str | None:
        if entry.match is None or entry.match.address >> 102 & 0x3FF == OWN_SPACE:
            return BASE
        return self._partition_of(entry)
