"""What a driver has found of the network by itself."""

from msgspec import Struct

from sdn.network.topology import Host, Link

End = tuple[str, int]
"""A port of a switch."""


class SeenHost(Struct, frozen=True):
    """A host that discovery has heard, and since when it is where it is now, in seconds.

    It is called after its MAC. Declared hosts are among them only if they were heard at a port
    that is not theirs.
    """

    host: Host
    since: float


class Findings(Struct, frozen=True):
    """What discovery knows; nothing if it is not `active`.

    `strangers` are the datapath ids of switches that are connected, but not in the network;
    `crossed` has the ports at which probes arrive of a port that should lead elsewhere, with that
    port; `refused` has the reasons for connections that were refused lately, by datapath id.
    """

    active: bool = False
    strangers: tuple[int, ...] = ()
    links: tuple[Link, ...] = ()  # that carry probes both ways
    crossed: dict[
        End, End
    ] = {}  # ports at which probes arrive of a port that should lead elsewhere
    refused: dict[int, str] = {}
    absent: tuple[End, ...] = ()  # ports of links and hosts that their switches do not have
    hosts: tuple[SeenHost, ...] = ()  # `since` is of the driver's clock; none if it learns none
