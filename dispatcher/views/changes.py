"""Changes as the change feed reports them."""

from typing import Literal

from msgspec import Struct

from dispatcher.views.network import DifferenceView, LinkView, TreeView

ChangeType = Literal[
    "record",
    "space",
    "network",
    "proposals",
    "switch",
    "configurator",
    "plan",
    "job",
    "history",
    "load",
    "skipped",
    "lagged",
]


class NetworkSummary(Struct, frozen=True):
    """The trees of a network, the links of which a port is down, and what discovery found amiss."""

    revision: int
    trees: list[TreeView]
    down: list[LinkView]
    differences: list[DifferenceView]


class SpaceGone(Struct, frozen=True):
    """A space was deleted."""

    name: str
    deleted: bool = True


class Skipped(Struct, frozen=True):
    """Changes of records that a reader was not sent, because it wants only so many per second."""

    records: int


class Change(Struct, frozen=True):
    """Something has changed; `data` is its new view.

    | type | data |
    | --- | --- |
    | record | RecordView |
    | space | SpaceView, or SpaceGone |
    | network | NetworkSummary |
    | proposals | ProposalsSummary |
    | switch | SwitchView |
    | configurator | ConfiguratorView |
    | plan | the monitor's view of a plan for a partition map |
    | job | the monitor's view of the scheduled job |
    | history | the monitor's view of something that has happened |
    | load | the monitor's view of the last second |
    | skipped | Skipped: sent once a second at most, to readers that want a sample of the records |
    | lagged | None: the reader was too slow, and must read everything again; nothing follows |

    The views of the monitor are its own; readers get them as they are.
    """

    type: ChangeType
    data: Struct | None
