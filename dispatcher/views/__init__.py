"""What users see: records, spaces, the network, the control plane, and changes of all of them."""

from dispatcher.views.changes import Change, ChangeType, NetworkSummary, Skipped, SpaceGone
from dispatcher.views.event_keys import (
    Advertised,
    Publishers,
    PublishingKey,
    ReceivingKeys,
    SpaceKey,
)
from dispatcher.views.explanations import EventPath, Explanation, HopTarget, HopView, TouchedFlow
from dispatcher.views.health import Health, Impairment, Part
from dispatcher.views.network import (
    DifferenceKind,
    DifferenceView,
    FlowView,
    HostView,
    LinkView,
    ProposalsSummary,
    ProposalView,
    SwitchView,
    TopologyView,
    TreeView,
)
from dispatcher.views.records import RecordView, TimingView
from dispatcher.views.spaces import AxisView, ShapesUsage, ShapesView, ShapeUse, SpaceView
from dispatcher.views.store import Compaction, Restored, StoreView
from dispatcher.views.workers import (
    ConfiguratorView,
    PartitionReach,
    PartitionSwitchView,
    PartitionView,
    ScaleView,
    SouthboundView,
)

__all__ = [
    "Advertised",
    "AxisView",
    "Change",
    "ChangeType",
    "Compaction",
    "ConfiguratorView",
    "DifferenceKind",
    "DifferenceView",
    "EventPath",
    "Explanation",
    "FlowView",
    "Health",
    "HopTarget",
    "HopView",
    "HostView",
    "Impairment",
    "LinkView",
    "NetworkSummary",
    "Part",
    "PartitionReach",
    "PartitionSwitchView",
    "PartitionView",
    "ProposalView",
    "ProposalsSummary",
    "Publishers",
    "PublishingKey",
    "ReceivingKeys",
    "RecordView",
    "Restored",
    "ScaleView",
    "ShapeUse",
    "ShapesUsage",
    "ShapesView",
    "Skipped",
    "SouthboundView",
    "SpaceGone",
    "SpaceKey",
    "SpaceView",
    "StoreView",
    "SwitchView",
    "TimingView",
    "TopologyView",
    "TouchedFlow",
    "TreeView",
]
