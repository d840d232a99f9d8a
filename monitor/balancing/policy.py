"""What every balancing policy is asked, and what it answers. Pure."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from monitor.load.samples import Sample

LOOK_BACK = 360.0
"""Seconds of history that policies get, if it is known for so long."""


class ProposedMove(Struct, frozen=True):
    """A partition that should move, and why."""

    partition: str
    source: str  # the configurator that owns it
    target: str
    reason: str  # for operators, with the figures that led to it


class PastMove(Struct, frozen=True):
    """A move that has ended, whether the partition has moved or not."""

    at: float  # when it ended, in seconds since 1970
    partition: str
    source: str
    target: str
    done: bool


class Situation(Struct, frozen=True):
    """What a policy decides from. Nothing else counts: no clock, no state of its own."""

    now: float  # seconds since 1970
    history: Sequence[Sample]  # the oldest first; those of the last seconds are a second long
    owners: Mapping[str, str]  # the configurator of each partition
    targets: Collection[str]  # configurators that may get partitions
    past: Sequence[PastMove] = ()  # of the last hour, the oldest first
    moving: Mapping[str, str] = {}  # the target of each partition that is moving

    def home(self, partition: str) -> str:
        """The configurator that a partition will belong to when its move has ended."""
        return self.moving.get(partition, self.owners[partition])


class Policy(Protocol):
    """Proposes moves, the most urgent first; none if the load is balanced well enough.

    Each proposal is for another partition, from its owner to one of the targets. Partitions that
    are moving are left alone.
    """

    def propose(self, situation: Situation) -> list[ProposedMove]:
        """The moves that pay in this situation."""
