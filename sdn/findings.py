"""What a driver has found of the network by itself."""

from msgspec import Struct

from sdn.topology import Link


class Findings(Struct, frozen=True):
    """`strangers` are the datapath ids of switches that are connected, but not in the network."""

    strangers: tuple[int, ...] = ()
    links: tuple[Link, ...] = ()  # that carry probes both ways
