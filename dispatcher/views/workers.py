"""Partitions, configurators and southbound processes as users see them."""

from typing import Literal

from msgspec import Struct

from dispatcher.views.network import LinkView


class PartitionSwitchView(Struct, frozen=True):
    """How many entries of a partition a switch should hold."""

    id: str
    entries: int


class PartitionReach(Struct, frozen=True):
    """The part of the network that the entries of a partition use, as the control plane has it.

    Events come from `publishers`, travel over `links`, on these `trees`, to `subscribers` (hosts).
    """

    partition: str
    entries: int
    trees: list[int]
    switches: list[PartitionSwitchView]
    links: list[LinkView]
    publishers: list[str]
    subscribers: list[str]
    note: str | None = None


class PartitionView(Struct, frozen=True):
    """A partition, its owner and its load; `state` is unknown until the owner has reported it."""

    id: str
    space: str
    version: int
    leaf: str
    configurator: str
    epoch: int
    state: Literal["loading", "ready", "waiting", "unknown"]
    queued: int = 0
    active: int = 0
    entries: int = 0
    tasks: int = 0
    reason: str | None = None
    words: str = ""  # its part of the space: ranges of attributes


class ConfiguratorView(Struct, frozen=True):
    """A configurator; it is down if it is not registered, but owns partitions.

    One that is `leaving` ends when it has no work any more; `reason` says why it has not yet, or
    why it has not started.
    """

    id: str
    state: Literal["up", "unreachable", "down", "starting"]
    address: str | None
    node: str | None
    pid: int | None
    partitions: int
    queued: int
    active: int
    tasks: int
    leaving: bool = False
    reason: str | None = None


class SouthboundView(Struct, frozen=True):
    """A southbound process; switches connect to it at `openflow`, and `switches` of them are up.

    `leaving` and `reason` are those of a `ConfiguratorView`.
    """

    id: str
    state: Literal["up", "unreachable", "starting"]
    address: str | None
    node: str | None
    pid: int | None
    openflow: str | None
    switches: int
    leaving: bool = False
    reason: str | None = None


class ScaleView(Struct, frozen=True):
    """How many workers of a kind there are, and how many there should be.

    `leaving` are those that end when they have no work any more.
    """

    present: int
    wanted: int
    leaving: list[str]

    @property
    def done(self) -> bool:
        """Whether there is nothing left to do."""
        return self.present == self.wanted and not self.leaving
