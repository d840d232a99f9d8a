"""What a replay says: the JSON form of `dzflow trace replay`.

`work_ms` is the processor time that the engine took to decide on this machine, in milliseconds.
"""

from msgspec import Struct

from spark.traces import SkippedFile
from spark.workload.model import LeftOut


class Operations(Struct, frozen=True):
    """Flow operations by kind."""

    adds: int = 0
    modifies: int = 0
    deletes: int = 0

    @property
    def total(self) -> int:
        """All of them together."""
        return self.adds + self.modifies + self.deletes


class PartitionFigures(Struct, frozen=True):
    """What one partition did."""

    name: str
    space: str
    configurator: str  # empty if it is not known
    partials: int
    slices: int
    work_ms: float
    operations: Operations
    entries: int  # at the end


class ConfiguratorFigures(Struct, frozen=True):
    """What the partitions of one configurator did; its name is empty if it is not known."""

    name: str
    partitions: int
    partials: int
    work_ms: float
    operations: int


class MapFigures(Struct, frozen=True):
    """The replay under one partition map for each space."""

    partials: int
    slices: int
    work_ms: float
    operations: Operations
    entries: int  # at the end
    most_entries: int  # that there were at any time
    partitions: tuple[PartitionFigures, ...]  # of all spaces, the busiest first
    configurators: tuple[ConfiguratorFigures, ...]
    partition_imbalance: float | None  # maximum over mean of the work
    configurator_imbalance: float | None  # None if owners are not known


class Unusable(Struct, frozen=True):
    """Requests of the workload that were not replayed."""

    unknown_spaces: int = 0  # that the newest trace file does not describe
    unfit_filters: int = 0  # that the current schema refuses
    unmatched: int = 0  # changes and ends of records that are not active, and double begins


class ReplayReport(Struct, frozen=True):
    """Everything that a replay says."""

    path: str
    topology: str
    slice_size: int
    requests: dict[str, int]  # that were replayed, by kind
    left_out: LeftOut  # by the job that rebuilt the workload
    unusable: Unusable
    traced: MapFigures
    planned: MapFigures | None = None
    change: Operations | None = None  # to go over from one map to the other at the end
    skipped: tuple[SkippedFile, ...] = ()
    notices: tuple[str, ...] = ()
