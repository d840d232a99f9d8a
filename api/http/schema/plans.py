"""The bodies of requests and answers about plans for partition maps."""

from typing import Annotated

from msgspec import Meta, Struct, field

from api.http.schema.models import In, SpaceName
from dzflow.address import MAX_VERSION
from dzflow.region import WIDTH
from monitor.plans.validation import MOST_LEAVES
from monitor.views import PlanView
from sdn.tables.pipeline import PlanName


class NodeIn(In, frozen=True):
    """A test of one bit of an address; a child that is left out is a partition."""

    bit: Annotated[int, Meta(ge=0, lt=WIDTH, description="0 is the first bit after the tree.")]
    zero: "NodeIn | None" = None
    one: "NodeIn | None" = None
    open: Annotated[
        "NodeIn | None", Meta(description="For regions that leave the bit open; not under `lpm`.")
    ] = None


class MapIn(In, frozen=True):
    """A partition map: a tree of tests. Without a root there is one partition, `all`."""

    plan: PlanName
    root: NodeIn | None = None


class PlanIn(In, frozen=True):
    """A plan for the partition map of a space, and for the owners of its partitions."""

    space: SpaceName
    version: Annotated[
        int, Meta(ge=0, le=MAX_VERSION, description="The index version that the map is for.")
    ]
    number: Annotated[
        int, Meta(ge=0, le=2**53, description="The number of the map that the plan was made for.")
    ]
    map: MapIn
    assignment: Annotated[
        dict[
            Annotated[str, Meta(max_length=1_024)],
            Annotated[str, Meta(min_length=1, max_length=128)],
        ],
        Meta(
            max_length=MOST_LEAVES,
            description=(
                "The configurator of each partition, by the partition's name in the map (mode "
                "`sna`). A partition that is left out stays where it is."
            ),
        ),
    ] = field(default_factory=dict)
    reasons: Annotated[
        list[Annotated[str, Meta(max_length=1_000)]],
        Meta(max_length=100, description="Why; kept with the plan."),
    ] = field(default_factory=list)


class PlansOut(Struct, frozen=True):
    """The last plan of each space that ever had one, running or ended."""

    items: list[PlanView]
    next: str | None = None
