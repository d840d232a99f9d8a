"""The outcome of a batch on one switch: acknowledged, refused in part, or unknown."""

from msgspec import Struct


class Acknowledged(Struct, frozen=True, tag="acknowledged"):
    """The switch has carried out all operations."""


class Failed(Struct, frozen=True, tag="failed"):
    """The switch refused some operations: `refused` has the reason by position in the batch."""

    refused: dict[int, str]
    table_full: bool = False


class Undefined(Struct, frozen=True, tag="undefined"):
    """It is unknown whether the switch has carried out the batch: no answer, or no connection."""

    reason: str


Outcome = Acknowledged | Failed | Undefined
