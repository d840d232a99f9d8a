"""Spaces as users see them, and how their shapes are used."""

from typing import Any

from msgspec import Struct

from configurators.store.model import Authentication


class SpaceView(Struct, frozen=True):
    """A space. Publishers write `version` and one of the usable `trees` into addresses."""

    name: str
    number: int
    version: int
    versions: list[int]
    schema: dict[str, Any]
    trees: list[int]
    prefix: int
    partitions: int
    changing: bool
    authentication: Authentication = "none"
    key: int = 0


class AxisView(Struct, frozen=True):
    """One axis of an index: leading bits of an attribute's values."""

    attribute: str
    bits: int


class ShapesView(Struct, frozen=True):
    """The dictionary of an index: for each shape, how many leading bits it fixes on each axis."""

    space: str
    version: int
    axes: list[AxisView]
    shapes: list[list[int]]
    changing: bool


class ShapeUse(Struct, frozen=True):
    """A shape, in words as well, and what uses it.

    `unwanted` is the share of the events in these regions that their subscriptions do not want, and
    `of_unwanted` the share that the shape has in all unwanted events; None without regions.
    """

    shape: list[int]
    text: str
    subscriptions: int
    regions: int
    unwanted: float | None
    of_unwanted: float | None


class ShapesUsage(Struct, frozen=True):
    """How the active subscriptions of a space use its shapes; those with most regions come first.

    Shares are expected ones: all events of the space count as equally likely. `note` says what was
    left out.
    """

    space: str
    version: int
    subscriptions: int
    regions: int
    unwanted: float | None
    items: list[ShapeUse]
    note: str | None = None
