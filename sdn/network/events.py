"""What a driver reports about the network."""

from msgspec import Struct

from sdn.network.topology import Host, Link


class SwitchUp(Struct, frozen=True):
    """A switch is connected and usable, and holds the entries that it should."""

    switch: str


class SwitchDown(Struct, frozen=True):
    """The connection to a switch is lost."""

    switch: str
    reason: str


class ConnectionChanged(Struct, frozen=True):
    """A switch has connected to this process, or its connection is lost; assigned to it or not."""

    switch: str
    connected: bool


class SwitchUnusable(Struct, frozen=True):
    """A switch has connected that cannot be used; the reason says what it lacks."""

    dpid: int
    reason: str


class MastershipLost(Struct, frozen=True):
    """Another southbound process has become the master of a switch."""

    switch: str


class Repaired(Struct, frozen=True):
    """A switch did not hold the entries that it should; so many operations repaired it."""

    switch: str
    operations: int


class RefusalChanged(Struct, frozen=True):
    """A switch refuses entries that it should hold; without a reason, it no longer does."""

    switch: str
    reason: str


class LinkChanged(Struct, frozen=True):
    """Discovery found a link between switches, or found it gone."""

    link: Link
    up: bool


class PortStateChanged(Struct, frozen=True):
    """A port of a switch went up or down."""

    switch: str
    port: int
    up: bool


class FindingsChanged(Struct, frozen=True):
    """Discovery has found something that is not part of the network, or no longer finds it."""


class HostSeen(Struct, frozen=True):
    """Discovery learned a host at a port (declared hosts are not reported)."""

    host: Host


NetworkEvent = (
    SwitchUp
    | SwitchDown
    | ConnectionChanged
    | SwitchUnusable
    | MastershipLost
    | Repaired
    | RefusalChanged
    | LinkChanged
    | PortStateChanged
    | FindingsChanged
    | HostSeen
)
