"""The events of a session."""

from msgspec import Struct

from sdn.openflow.protocol.constants import (
    OUT_OF_GROUPS,
    STALE_GENERATION,
    TABLE_FULL,
    BadRequest,
    ErrorType,
    Role,
)
from sdn.openflow.protocol.messages import FlowStat, Foreign, GroupDesc, Port, TableFeature
from sdn.tables.flows import Change, FlowEntry


class Ready(Struct, frozen=True):
    """The switch has introduced itself: from now on it can be asked and told things."""

    dpid: int
    version: int
    n_tables: int
    capabilities: int
    ports: tuple[Port, ...]


class Closed(Struct, frozen=True):
    """The session is over; send the outgoing bytes, then close the connection."""

    reason: str


class PortChanged(Struct, frozen=True):
    """A port came (ADD), changed (MODIFY) or went (DELETE)."""

    change: Change
    port: Port


class BarrierReply(Struct, frozen=True):
    """The switch says it has carried out everything that was sent before this barrier."""

    xid: int


class EchoReply(Struct, frozen=True):
    """The switch is alive."""

    xid: int
    data: bytes


class SwitchError(Struct, frozen=True):
    """The switch refused the message with this xid; `text` says why in words."""

    xid: int
    kind: int
    code: int
    text: str

    @property
    def table_full(self) -> bool:
        """Whether there was no room for an entry or a group."""
        return (self.kind, self.code) in (
            (ErrorType.FLOW_MOD_FAILED, TABLE_FULL),
            (ErrorType.GROUP_MOD_FAILED, OUT_OF_GROUPS),
        )

    @property
    def stale_generation(self) -> bool:
        """Whether another controller has already asked for a role with a later generation."""
        return (self.kind, self.code) == (ErrorType.ROLE_REQUEST_FAILED, STALE_GENERATION)

    @property
    def is_slave(self) -> bool:
        """Whether we may change nothing because another controller is the master."""
        return (self.kind, self.code) == (ErrorType.BAD_REQUEST, BadRequest.IS_SLAVE)


class RoleReply(Struct, frozen=True):
    """Our role, as the switch answers a request for one."""

    xid: int
    role: Role
    generation: int


class RoleChanged(Struct, frozen=True):
    """Another controller has changed our role (1.4)."""

    role: Role
    generation: int


class FlowStats(Struct, frozen=True):
    """A part of the entries that were asked for; more follow until one is the last."""

    xid: int
    entries: tuple[FlowStat, ...]
    last: bool


class GroupDescs(Struct, frozen=True):
    """All groups of the switch."""

    xid: int
    groups: tuple[GroupDesc, ...]


class GroupFeatures(Struct, frozen=True):
    """Whether groups as ours (type all: rewrite, output) can be had, and how many."""

    xid: int
    usable: bool
    max_groups: int


class TableFeatures(Struct, frozen=True):
    """What each table of the switch can do."""

    xid: int
    tables: tuple[TableFeature, ...]


class PacketIn(Struct, frozen=True):
    """A packet that an entry sent to the controller."""

    port: int
    data: bytes
    cookie: int
    reason: int
    table: int


class FlowUpdated(Struct, frozen=True):
    """The monitor saw an entry change that was not ours to change (1.4)."""

    change: Change
    cookie: int
    entry: FlowEntry | Foreign


class MonitorPaused(Struct, frozen=True):
    """The switch tells of no changes for now, it has no room for them (1.4)."""


class MonitorResumed(Struct, frozen=True):
    """The switch has told all changes since the pause (1.4)."""


Event = (
    Ready
    | Closed
    | PortChanged
    | BarrierReply
    | EchoReply
    | SwitchError
    | RoleReply
    | RoleChanged
    | FlowStats
    | GroupDescs
    | GroupFeatures
    | TableFeatures
    | PacketIn
    | FlowUpdated
    | MonitorPaused
    | MonitorResumed
)
