"""What both ways to own partitions have in common: what they are asked, and what they work with."""

from dataclasses import dataclass
from typing import Literal, Protocol

from configurators.environment import Clock
from configurators.histogram import Histogram
from configurators.partition.known_state import KnownState
from configurators.partition.partitions import Partitions
from configurators.partition.slices.replies import ReplyBatcher
from configurators.southbound.clients import SouthboundClients
from configurators.store.etcd.client import Etcd
from configurators.streams.messages import CopyRequest, CopyState, Offers, Tasks
from configurators.streams.peers import OpenStream
from configurators.streams.stream import Stream
from dzflow.aio import CriticalTasks

Mode = Literal["sna", "sea"]
"""Shared nothing (each partition is assigned to one configurator), or shared everything (any
configurator locks any partition)."""


class Ownership(Protocol):
    """Gains and loses partitions, and gets their tasks from dispatchers.

    It keeps the workers of the partitions that this process owns in `Partitions`. Whichever way a
    partition is gained, the new owner first raises its epoch at all southbound processes, then
    reads the partition's state, and only then decides anything.
    """

    async def run(self) -> None:
        """Gain and lose partitions until cancelled."""

    def receive(self, stream: Stream, message: Tasks | Offers | CopyRequest) -> None:
        """Handle a message: tasks or offers of a dispatcher, or the request of a configurator."""

    def review(self) -> None:
        """Act on a network or on spaces that have become known or have changed."""

    def lose(self, partition: str, reason: str) -> None:
        """Stop work on a partition that another configurator owns by now."""

    def drop(self, partition: str, reason: str) -> None:
        """Stop work on a partition that no longer exists, and delete its entries."""

    def copies(self) -> list[CopyState]:
        """How far the copies have come of partitions that are to move here."""


@dataclass(frozen=True, slots=True)
class OwnershipContext:
    """The parts of the configurator process that an ownership works with."""

    id: str  # of the configurator
    etcd: Etcd
    clock: Clock
    known: KnownState
    partitions: Partitions
    southbound: SouthboundClients
    replies: ReplyBatcher
    open_stream: OpenStream
    tasks: CriticalTasks
    lock_waits: Histogram  # seconds from the wish for a lock until this process has it
