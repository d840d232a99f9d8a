"""The parameters of paths and queries. `None` stands for a parameter that was left out."""

from typing import Annotated, Literal

from fastapi import Path, Query
from msgspec import Meta

from api.http.schema.models import HostId, LinkId, PartitionId, RecordId, SpaceName, SwitchId, Wait
from api.http.schema.msgspec_types import Checked, schema_of
from configurators.store.model import State

_Limit = Annotated[int, Meta(ge=1, le=1_000, description="The most to give.")]
_After = Annotated[str, Meta(max_length=64, description="`next` of the page before.")]
_Types = Annotated[
    str,
    Meta(
        max_length=200,
        description="Types of changes, separated by commas; default all but `load`.",
    ),
]
_Most = Annotated[
    int,
    Meta(
        ge=1,
        le=10_000,
        description=(
            "At most so many changes of records per second; an event `skipped` says how many were "
            "left out. Default: all."
        ),
        examples=[20],
    ),
]
_Source = Annotated[
    Literal["cp", "dp"],
    Meta(description="As the control plane believes (cp) or as the switch has them (dp)."),
]

_Since = Annotated[
    float,
    Meta(
        ge=-86_400,
        le=1e11,
        description=(
            "Seconds since 1970, or, if negative, seconds before now. "
            "Intervals that end later are given."
        ),
        examples=[-60],
    ),
]
_HistorySince = Annotated[
    float,
    Meta(
        ge=-86_400 * 365,
        le=1e11,
        description=(
            "Seconds since 1970, or, if negative, seconds before now. Later events are given."
        ),
        examples=[-3600],
    ),
]
_Resolution = Annotated[
    Literal[1, 10, 60],
    Meta(
        description=(
            "The finest length of an interval in seconds. "
            "A coarser one is given if this one is not kept for so long."
        )
    ),
]

# A name that is looked up is only documented: 404 is the answer if nothing has it.

RecordPath = Annotated[str, schema_of(RecordId), Path()]
SpacePath = Annotated[str, schema_of(SpaceName), Path()]
HostPath = Annotated[str, schema_of(HostId), Path()]
LinkPath = Annotated[str, schema_of(LinkId), Path()]
SwitchPath = Annotated[str, schema_of(SwitchId), Path()]

PartitionPath = Annotated[str, schema_of(PartitionId), Path()]

NewSpacePath = Annotated[str, Checked(SpaceName), Path()]
NewHostPath = Annotated[str, Checked(HostId), Path()]
NewSwitchPath = Annotated[str, Checked(SwitchId), Path()]
NewLinkPath = Annotated[str, Checked(LinkId), Path()]

HostQuery = Annotated[str | None, Checked(HostId), Query()]
SpaceQuery = Annotated[str | None, Checked(SpaceName), Query()]
StateQuery = Annotated[State | None, Checked(State), Query()]
LimitQuery = Annotated[int, Checked(_Limit), Query()]
AfterQuery = Annotated[str | None, Checked(_After), Query()]
WaitQuery = Annotated[bool | float, Checked(Wait), Query()]
SourceQuery = Annotated[Literal["cp", "dp"], Checked(_Source), Query()]
TypesQuery = Annotated[str | None, Checked(_Types), Query()]
MostQuery = Annotated[int | None, Checked(_Most), Query()]
SinceQuery = Annotated[float, Checked(_Since), Query()]
HistorySinceQuery = Annotated[float, Checked(_HistorySince), Query()]
ResolutionQuery = Annotated[Literal[1, 10, 60], Checked(_Resolution), Query()]
