"""What users see: records, spaces, the network, the control plane, and changes of all of them."""

from typing import Any, Literal

from msgspec import Struct, field

from configurators.store.model import Authentication, RecordKind, State


class TimingView(Struct, frozen=True, gc=False):
    """How long each stage of the last operation took; the total is exactly the sum of the rest."""

    indexed_ms: float
    journaled_ms: float
    queued_ms: float
    decided_ms: float
    pushed_ms: float
    committed_ms: float
    total_ms: float


class RecordView(Struct, frozen=True):
    """A record as users see it. Times are seconds since the epoch."""

    id: str
    kind: RecordKind
    host: str
    space: str
    filter: Any
    regions: list[str]
    partitions: list[str]
    state: State
    created: float
    acknowledged: float | None
    flow_ops: int
    timing: TimingView | None
    label: str | None = None
    ttl: float | None = None
    expires: float | None = None
    reason: str | None = None
    updating: bool = False


class SpaceView(Struct, frozen=True):
    """A space. Publishers write `version` and one of the usable `trees` into addresses."""

    name: str
    number: int
    version: int
    versions: list[int]
    schema: dict[str, Any]
    trees: list[int]
    prefix: int
    partitions: int
    changing: bool
    authentication: Authentication = "none"
    key: int = 0


class AxisView(Struct, frozen=True):
    """One axis of an index: leading bits of an attribute's values."""

    attribute: str
    bits: int


class ShapesView(Struct, frozen=True):
    """The dictionary of an index: for each shape, how many leading bits it fixes on each axis."""

    space: str
    version: int
    axes: list[AxisView]
    shapes: list[list[int]]
    changing: bool


class ShapeUse(Struct, frozen=True):
    """A shape, in words as well, and what uses it.

    `unwanted` is the share of the events in these regions that their subscriptions do not want, and
    `of_unwanted` the share that the shape has in all unwanted events; None without regions.
    """

    shape: list[int]
    text: str
    subscriptions: int
    regions: int
    unwanted: float | None
    of_unwanted: float | None


class ShapesUsage(Struct, frozen=True):
    """How the active subscriptions of a space use its shapes; those with most regions come first.

    Shares are expected ones: all events of the space count as equally likely. `note` says what was
    left out.
    """

    space: str
    version: int
    subscriptions: int
    regions: int
    unwanted: float | None
    items: list[ShapeUse]
    note: str | None = None


class PublishingKey(Struct, frozen=True):
    """The key with which the applications of a host tag their events in a space.

    `stream` is the number under which the caller counts its events. No other caller has the same.
    """

    space: str
    host: str
    key: int
    secret: bytes
    stream: int

    def __repr__(self) -> str:
        return f"PublishingKey({self.space!r}, {self.host!r}, {self.key})"


class SpaceKey(Struct, frozen=True):
    """A secret of a space, from which the keys of its publishers are derived."""

    key: int
    secret: bytes

    def __repr__(self) -> str:
        return f"SpaceKey({self.key})"


class ReceivingKeys(Struct, frozen=True):
    """The keys under which events of a space are genuine; streams before the oldest are not."""

    space: str
    current: int
    keys: list[SpaceKey]
    oldest_stream: int


class Advertised(Struct, frozen=True):
    """What a host advertises."""

    host: str
    filter: Any


class Publishers(Struct, frozen=True):
    """What hosts advertise in a space, and the id after which the next page begins."""

    items: list[Advertised]
    next: str | None


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


class LinkView(Struct, frozen=True):
    """A link between two switches."""

    a: str
    a_port: int
    b: str
    b_port: int
    up: bool


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


class PartitionSwitchView(Struct, frozen=True):
    """How many entries of a partition a switch should hold."""

    id: str
    entries: int


class PartitionReach(Struct, frozen=True):
    """The part of the network that the entries of a partition use, as the control plane has it.

    Events come from `publishers`, travel over `links`, on these `trees`, to `subscribers` (hosts).
    """

    partition: str
    entries: int
    trees: list[int]
    switches: list[PartitionSwitchView]
    links: list[LinkView]
    publishers: list[str]
    subscribers: list[str]
    note: str | None = None


class PartitionView(Struct, frozen=True):
    """A partition, its owner and its load; `state` is unknown until the owner has reported it."""

    id: str
    space: str
    version: int
    leaf: str
    configurator: str
    epoch: int
    state: Literal["loading", "ready", "waiting", "unknown"]
    queued: int = 0
    active: int = 0
    entries: int = 0
    tasks: int = 0
    reason: str | None = None
    words: str = ""  # its part of the space: ranges of attributes


class ConfiguratorView(Struct, frozen=True):
    """A configurator; it is down if it is not registered, but owns partitions.

    One that is `leaving` ends when it has no work any more; `reason` says why it has not yet, or
    why it has not started.
    """

    id: str
    state: Literal["up", "unreachable", "down", "starting"]
    address: str | None
    node: str | None
    pid: int | None
    partitions: int
    queued: int
    active: int
    tasks: int
    leaving: bool = False
    reason: str | None = None


class SouthboundView(Struct, frozen=True):
    """A southbound process; switches connect to it at `openflow`, and `switches` of them are up.

    `leaving` and `reason` are those of a `ConfiguratorView`.
    """

    id: str
    state: Literal["up", "unreachable", "starting"]
    address: str | None
    node: str | None
    pid: int | None
    openflow: str | None
    switches: int
    leaving: bool = False
    reason: str | None = None


class ScaleView(Struct, frozen=True):
    """How many workers of a kind there are, and how many there should be.

    `leaving` are those that end when they have no work any more.
    """

    present: int
    wanted: int
    leaving: list[str]

    @property
    def done(self) -> bool:
        """Whether there is nothing left to do."""
        return self.present == self.wanted and not self.leaving


class Part(Struct, frozen=True):
    """One part of the control plane: usable or not, and why not."""

    name: str
    ok: bool
    reason: str | None = None


class StoreView(Struct, frozen=True):
    """How full etcd's database is, in bytes, and how much of that may be removed to make room.

    `in_use` is `size` without what was freed and will be used again. The quota limits `size`.
    `records` are the subscriptions and advertisements that there are, as far as this API process
    knows: with several, it counts those of the others every now and then.
    """

    size: int
    in_use: int
    quota: int
    level: Literal["normal", "high", "refusing", "full"]
    finished_records: int
    finished_bytes: int
    idempotency_keys: int
    idempotency_bytes: int
    records: int = 0


class Compaction(Struct, frozen=True):
    """The size of etcd's database before and after it was compacted, in bytes.

    With `full`, it is still at its quota.
    """

    size_before: int
    in_use_before: int
    size: int
    in_use: int
    quota: int
    full: bool


class Impairment(Struct, frozen=True):
    """A switch, partition, process or stored document that cannot be used now, and why."""

    kind: Literal["switch", "partition", "process", "document"]
    id: str
    reason: str


class Health(Struct, frozen=True):
    """Whether requests can be served now; `reasons` is empty if so.

    Requests that concern something `impaired` have to wait.
    """

    ready: bool
    reasons: list[str]
    impaired: list[Impairment]
    etcd: Part
    dispatchers: list[Part]
    configurators: list[Part]
    southbound: list[Part]
    switches_up: int
    switches: int
    partitions_ready: int
    partitions: int
    store: StoreView | None = None


class TouchedFlow(Struct, frozen=True):
    """A flow operation that a request would cause."""

    switch: str
    change: Literal["add", "modify", "delete"]
    flow: FlowView


class HopTarget(Struct, frozen=True, omit_defaults=True):
    """A port that a switch sends an event out of, and the switch or host behind it."""

    port: int
    switch: str | None = None
    host: str | None = None


class HopView(Struct, frozen=True):
    """What a switch does with an event that comes from a host or another switch."""

    switch: str
    in_port: int
    sender: str = field(name="from")
    to: list[HopTarget]


class EventPath(Struct, frozen=True):
    """How an event would travel by the tables that the control plane has computed.

    `admitted` says whether table 0 of the publisher's switch lets the event in, and `reason` why it
    does not. `hops` is in the order in which switches are reached. The event would reach the
    `delivered` hosts. Of these, no filter of the `unwanted` ones matches it. `missed` hosts have a
    filter that matches an admitted event, and would not get it. The last four are null for a caller
    that may not learn what other hosts want.
    """

    address: str
    tree: int
    admitted: bool
    reason: str | None
    hops: list[HopView] | None
    delivered: list[str] | None
    unwanted: list[str] | None
    missed: list[str] | None


class Explanation(Struct, frozen=True):
    """What a filter leads to, and how an event would travel; only what was asked for.

    `note` says what is left out.
    """

    regions: list[str]
    cells: list[str]
    false_share: float | None
    partitions: list[str]
    flows: list[TouchedFlow]
    note: str | None = None
    event: EventPath | None = None


ChangeType = Literal[
    "record",
    "space",
    "network",
    "switch",
    "configurator",
    "plan",
    "job",
    "history",
    "load",
    "skipped",
    "lagged",
]


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
    | network | {"revision", "trees": [TreeView], "down": [LinkView]} |
    | switch | SwitchView |
    | configurator | ConfiguratorView |
    | plan | the monitor's view of a plan for a partition map |
    | job | the monitor's view of the scheduled job |
    | history | the monitor's view of something that has happened |
    | load | the monitor's view of the last second |
    | skipped | Skipped: sent once a second at most, to readers that want a sample of the records |
    | lagged | None: the reader was too slow, and must read everything again; nothing follows |
    """

    type: ChangeType
    data: Any


class Restored(Struct, frozen=True):
    """How many spaces and records were restored, and how many records the switches refused."""

    spaces: int
    records: int
    failed: int = 0
