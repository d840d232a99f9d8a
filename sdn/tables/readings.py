"""What a driver reads from a switch: its entries with their counts, and how full its tables are."""

from collections.abc import Iterable
from typing import NamedTuple

from sdn.tables.flows import FlowEntry


class Counts(NamedTuple):
    """What an entry of a switch has counted since it was added."""

    packets: int
    bytes: int


class Reading(list[FlowEntry]):
    """The entries of a switch; `counts` has what each has counted, None if that is not known."""

    def __init__(self, entries: Iterable[FlowEntry], counts: list[Counts] | None = None) -> None:
        super().__init__(entries)
        self.counts = counts


class TableUse(NamedTuple):
    """How many entries a switch should hold: in all its tables, and in the fullest of them.

    `capacity` is how many fit into each table, None if the switch does not say so.
    """

    entries: int
    fullest: int
    capacity: int | None
