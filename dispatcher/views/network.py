"""The network as users see it: hosts, links, trees, switches, flow entries."""

from typing import Literal

from msgspec import Struct

from configurators.state.learned_hosts import HostMode
from sdn.network.switch_limits import AS_ALL, SwitchLimits


class HostView(Struct, frozen=True):
    """The switch and port of a host; `wire` is its address on an emulated network.

    `unreachable` says why other hosts cannot reach it, if they cannot.
    """

    id: str
    switch: str
    port: int
    mac: str | None = None
    ipv6: str | None = None
    wire: str | None = None
    unreachable: str | None = None


class ProposalView(Struct, frozen=True):
    """A host that was heard at a port and is not in the network, since when (seconds since 1970).

    Its id follows from its MAC. A `problem` keeps it from joining; with a `doubt`, it does not join
    by itself. A rejected one can still be accepted.
    """

    id: str
    switch: str
    port: int
    mac: str
    ipv6: str | None
    since: float
    state: Literal["proposed", "rejected"]
    problem: str | None = None
    doubt: str | None = None


class ProposalsSummary(Struct, frozen=True):
    """How many hosts are proposed and were rejected; `version` changes whenever the list does.

    `mode` is the setting `discovery.hosts`.
    """

    mode: HostMode
    proposed: int
    rejected: int
    version: int


class LinkView(Struct, frozen=True):
    """A link between two switches; discovery cannot find it if it does not carry `lldp`."""

    a: str
    a_port: int
    b: str
    b_port: int
    up: bool
    lldp: bool = True


class TreeView(Struct, frozen=True):
    """A tree: `whole` if all its links and switches are up, else `broken` lists those that are not.

    A tree that is not `used` is being installed, or is about to be removed.
    """

    number: int
    root: str
    links: list[LinkView]
    whole: bool
    broken: list[str]
    used: bool = True


class SwitchView(Struct, frozen=True):
    """A switch: whether it can be used, by which southbound process, and why not.

    `label` is what people call it, `limits` has what differs from the settings for all switches.

    `entries` are those that it should hold, `fullest_table` those of its fullest table, into which
    `table_capacity` fit, if the switch says so. `operations` counts the flow operations that it has
    acknowledged since the southbound processes started. These four change all the time: the stream
    leaves them out.
    """

    id: str
    dpid: int
    state: Literal["up", "down", "unknown"]
    reason: str | None
    southbound: str | None
    hosts: int
    links: int
    entries: int | None = None
    fullest_table: int | None = None
    table_capacity: int | None = None
    operations: int | None = None
    label: str = ""
    limits: SwitchLimits = AS_ALL


DifferenceKind = Literal["crossed", "host-at-link", "missing", "unexpected", "no-port", "refused"]


class DifferenceView(Struct, frozen=True):
    """Something in the network that is not as it should be; `text` says what, and where.

    | kind | meaning |
    | --- | --- |
    | crossed | a cable joins two ports of which one should lead elsewhere |
    | host-at-link | a cable to a switch is at a port where a host is declared |
    | missing | a link of the network is not found |
    | unexpected | a link is found that the network does not have |
    | no-port | a switch lacks a port of a link or a host |
    | refused | a switch was refused: unknown, the datapath id of another one, not usable |
    """

    kind: DifferenceKind
    text: str
    switch: str | None = None
    port: int | None = None


class TopologyView(Struct, frozen=True):
    """The network. All trees carry every space; `spaces` has the usable trees of each space.

    If it is `discovered`, switches and links join as they are found. `differences` says where it is
    not what it should be; without discovery, there are none.
    """

    switches: list[SwitchView]
    links: list[LinkView]
    hosts: list[HostView]
    trees: list[TreeView]
    spaces: dict[str, list[int]]
    discovered: bool = False
    differences: list[DifferenceView] = []


class FlowView(Struct, frozen=True):
    """An entry of a switch. Base entries belong to no space.

    `words` is the region as a filter. `legs` has the switch or host that each of the actions leads
    to, None if there is none now. `packets` and `bytes` are what the switch has counted, if it was
    asked and tells.
    """

    table: int
    priority: int
    match: str | None
    in_port: int | None
    actions: list[str]
    goto: int | None
    space: str | None
    version: int | None
    tree: int | None
    region: str | None
    partition: str | None
    words: str | None = None
    legs: list[str | None] = []
    packets: int | None = None
    bytes: int | None = None
