"""What a filter leads to, and how an event would travel."""

from typing import Literal

from msgspec import Struct, field

from dispatcher.views.network import FlowView


class TouchedFlow(Struct, frozen=True):
    """A flow operation that a request would cause."""

    switch: str
    change: Literal["add", "modify", "delete"]
    flow: FlowView


class HopTarget(Struct, frozen=True, omit_defaults=True):
    """A port that a switch sends an event out of, and the switch or host behind it."""

    port: int
    switch: str | None = None
    host: str | None = None


class HopView(Struct, frozen=True):
    """What a switch does with an event that comes from a host or another switch."""

    switch: str
    in_port: int
    sender: str = field(name="from")
    to: list[HopTarget]


class EventPath(Struct, frozen=True):
    """How an event would travel by the tables that the control plane has computed.

    `admitted` says whether table 0 of the publisher's switch lets the event in, and `reason` why it
    does not. `hops` is in the order in which switches are reached. The event would reach the
    `delivered` hosts. Of these, no filter of the `unwanted` ones matches it. `missed` hosts have a
    filter that matches an admitted event, and would not get it. The last four are null for a caller
    that may not learn what other hosts want.
    """

    address: str
    tree: int
    admitted: bool
    reason: str | None
    hops: list[HopView] | None
    delivered: list[str] | None
    unwanted: list[str] | None
    missed: list[str] | None


class Explanation(Struct, frozen=True):
    """What a filter leads to, and how an event would travel; only what was asked for.

    `note` says what is left out.
    """

    regions: list[str]
    cells: list[str]
    false_share: float | None
    partitions: list[str]
    flows: list[TouchedFlow]
    note: str | None = None
    event: EventPath | None = None
