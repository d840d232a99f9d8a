"""What the job `rebalance` finds: the JSON form, which the command prints.

Lists are bounded by the size of the network, not by the length of the traces.
"""

from msgspec import Struct

from configurators.engine.partition_map import PartitionMap
from spark.traces import Source


class SpacePlan(Struct, frozen=True):
    """A plan for the map of a space, in the form that `POST /partitions/plan` takes."""

    space: str
    version: int
    number: int  # of the map that the plan was made for
    map: PartitionMap
    assignment: dict[str, str]
    reasons: tuple[str, ...]


class Prediction(Struct, frozen=True):
    """What a map and its owners make of the traced requests."""

    partitions: int
    imbalance: float  # load of the busiest configurator over the mean; speeds count
    partition_imbalance: float  # load of the heaviest partition over the mean
    shares: dict[str, float]  # of the work, by configurator; empty in mode sea
    entries: int  # regions that no other one in their partition covers
    operations: int  # flow operations in the time of the traces
    waiting_ms: float | None  # mean, of a partial for its configurator; None: without bound
    latency_ms: float | None  # the same with the times of deciding and of the switches


class SpaceResult(Struct, frozen=True):
    """What was found out about one space. Without a plan, `why` says why there is none."""

    space: str
    work_ms: float
    share: float  # of the work of all spaces
    pushed_ms: float  # waiting for switches, which is no work
    filters: int  # distinct ones
    regions: int
    sampled: int  # regions that the plan is made from
    damaged: int  # filters that cannot be read, or do not fit the schema
    damaged_share: float  # of the space's work
    before: Prediction
    after: Prediction
    moved_share: float  # of the space's work: partitions that are new, or get another owner
    changed_entries: int  # entries that are added or removed once, to go over to the plan
    plan: SpacePlan | None
    why: str


class Rebalance(Struct, frozen=True):
    """Everything that the job finds."""

    source: Source
    mode: str = ""  # sna or sea; empty without requests
    configurators: dict[str, float] = {}  # their speeds
    spaces: tuple[SpaceResult, ...] = ()
