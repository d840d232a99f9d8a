"""What the job `shapes` finds: the JSON form, which the command prints."""

from typing import Literal

from msgspec import Struct

from dzflow.index import Shape
from spark.traces import Source

Basis = Literal["events", "uniform"]
"""What a prediction is made with: sampled events, or all events being equally likely."""


class Proposal(Struct, frozen=True):
    """A dictionary for a version of a space's index."""

    space: str
    version: int
    shapes: tuple[Shape, ...]
    reasons: tuple[str, ...]


class Prediction(Struct, frozen=True):
    """What a dictionary makes of the sampled filters."""

    shapes: int  # in the dictionary
    masks: int  # that regions of these filters have
    entries: float  # regions of a filter, on average
    unwanted: float  # the share of the events that reach a filter's regions, and do not match it


class Change(Struct, frozen=True):
    """What a change to a dictionary takes, and what it gains."""

    gain: float = 0.0  # the share of the events in the filters' regions that no longer come
    filters: int = 0  # subscriptions whose regions change
    added: int = 0  # regions that they get
    removed: int = 0  # regions that they lose


class SpaceShapes(Struct, frozen=True):
    """The result for one space. Without a proposal, `why` says why there is none."""

    space: str
    subscriptions: int  # active at the end; all that there were if none is active
    active: bool
    filters: int  # distinct ones
    sampled: int  # filters that the figures are made from
    damaged: int  # of the sampled: they cannot be read, or do not fit the schema
    events: int  # sampled events that the figures are made from
    damaged_events: int  # sampled events that do not fit the schema
    basis: Basis
    before: Prediction | None  # None if there is nothing to predict with
    after: Prediction | None
    change: Change
    proposal: Proposal | None
    why: str


class ShapesFound(Struct, frozen=True):
    """Everything that the job finds."""

    source: Source
    spaces: tuple[SpaceShapes, ...] = ()
