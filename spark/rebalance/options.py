"""What is asked of the job `rebalance`. Needs no Spark."""

from collections.abc import Mapping

from msgspec import Struct

from spark.rebalance.planner import MIN_GAIN
from spark.shapes.model import Proposal

MOST_REGIONS = 20_000
"""Regions of one space that a plan is made from."""


class RebalanceOptions(Struct, frozen=True):
    """What is asked of the job. What is not known of the configurators, the traces tell."""

    space: str = ""  # only this one; all if empty
    partitions: int | None = None  # of each space; as many as now if None
    min_gain: float = MIN_GAIN
    speeds: Mapping[str, float] = {}  # of all configurators
    owners: Mapping[str, str] | None = None  # the configurator of each partition
    shapes: tuple[Proposal, ...] = ()  # dictionaries to plan for, instead of those in force
    since_us: int | None = None
    until_us: int | None = None
    most_regions: int = MOST_REGIONS
