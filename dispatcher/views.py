"""What the dispatcher is asked and what it answers."""

from typing import Any, Literal

from msgspec import Struct

from configurators.store.model import RecordKind, State
from dispatcher.changes.damping import Patience
from sdn.pipeline import PlanName


class DispatcherOptions(Struct, frozen=True):
    """How a dispatcher works; the defaults are for one machine."""

    id: str = ""  # made up, and different at each start, if it is empty
    node: str = ""
    plan: PlanName = "legs"
    partitions_per_configurator: int = 4
    partitions: int | None = None  # of a new space, instead of the above
    mode: Literal["sna", "sea"] = "sna"
    window: int = 4_000  # operations in flight
    window_per_host: int = 64  # what runs is worked off in its order, whoever else comes
    most_per_host: int = 512  # the same with operations that take long, for a switch say
    queue: int = 20_000  # operations that wait for the window
    queue_per_host: int = 5_000
    rate: float | None = None  # operations a second, overall
    rate_per_host: float | None = None
    burst_s: float = 2.0  # of a rate that may come at once
    finished_ttl: float = 3_600.0  # how long removed and failed records are kept
    key_ttl: float = 86_400.0  # how long idempotency keys are kept
    lease_ttl: int = 10
    grace: float = 5.0  # how long old index versions and trees stay after publishers were told
    network_timeout: float = 30.0  # for a changed host to be taken up everywhere
    patience: Patience = Patience()  # with switches and links that fail
    traces: str | None = None  # folder for traces; none are written without
    traces_bytes: int = 2 << 30  # that they may take on the disk; then the oldest go


class Ask(Struct, frozen=True):
    """A subscription or advertisement that somebody wants."""

    host: str
    space: str
    filter: Any
    label: str | None = None
    ttl: float | None = None


class Refused(Struct, frozen=True):
    """An element of a batch that was found wrong before; its answer carries this problem."""

    problem: Any  # as the caller wants to find it in the answer
    status: int = 422


class TimingView(Struct, frozen=True, gc=False):
    """Where the time of the last operation went; total is exactly the sum of the rest."""

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


class Answer(Struct, frozen=True):
    """What has become of one element: a record, or a problem, and the HTTP status that fits.

    201: begun; 200: ended or updated; 202: durable, but not at its end yet. The problem is a
    `Problem`, or what a `Refused` brought along.
    """

    status: int
    record: RecordView | None = None
    problem: Any = None


class Page(Struct, frozen=True):
    """Records, and where to go on (`after`), if there may be more."""

    items: list[RecordView]
    next: str | None


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


class HostView(Struct, frozen=True):
    """Where a host hangs; `wire` is where applications reach it on an emulated network.

    `unreachable` says why others cannot reach it, if they cannot.
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
    """A tree, whether every link and switch of it is up, and if not, what is broken.

    One that is not `used` is being installed, or goes soon.
    """

    number: int
    root: str
    links: list[LinkView]
    whole: bool
    broken: list[str]
    used: bool = True


class SwitchView(Struct, frozen=True):
    """A switch: whether it can be used, by which southbound process, and why not."""

    id: str
    dpid: int
    state: Literal["up", "down", "unknown"]
    reason: str | None
    southbound: str | None
    hosts: int
    links: int


class TopologyView(Struct, frozen=True):
    """The network: all trees carry every space; `spaces` has the usable ones of each."""

    switches: list[SwitchView]
    links: list[LinkView]
    hosts: list[HostView]
    trees: list[TreeView]
    spaces: dict[str, list[int]]


class FlowView(Struct, frozen=True):
    """An entry of a switch. Base entries belong to no space."""

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


class PartitionView(Struct, frozen=True):
    """A partition, its owner and its load; `state` is unknown until the owner has told."""

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


class ConfiguratorView(Struct, frozen=True):
    """A configurator; it is down if it is known from partitions only."""

    id: str
    state: Literal["up", "unreachable", "down"]
    address: str | None
    node: str | None
    pid: int | None
    partitions: int
    queued: int
    active: int
    tasks: int


class Part(Struct, frozen=True):
    """One part of the control plane: usable or not, and why not."""

    name: str
    ok: bool
    reason: str | None = None


class Impairment(Struct, frozen=True):
    """A switch, partition or process that cannot be used now, and why."""

    kind: Literal["switch", "partition", "process"]
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


class TouchedFlow(Struct, frozen=True):
    """A flow operation that a request would take."""

    switch: str
    change: Literal["add", "modify", "delete"]
    flow: FlowView


class Explanation(Struct, frozen=True):
    """What a filter comes to. `note` says what was not looked at for the flows."""

    regions: list[str]
    cells: list[str]
    false_share: float
    partitions: list[str]
    flows: list[TouchedFlow]
    note: str | None = None


ChangeType = Literal["record", "space", "network", "switch", "configurator", "lagged"]


class SpaceGone(Struct, frozen=True):
    """A space was deleted."""

    name: str
    deleted: bool = True


class Change(Struct, frozen=True):
    """Something changed: the data is the new view of it (as JSON can say it).

    | type | data |
    | --- | --- |
    | record | RecordView |
    | space | SpaceView, or SpaceGone |
    | network | {"revision", "trees": [TreeView]} |
    | switch | SwitchView |
    | configurator | ConfiguratorView |
    | lagged | None: the reader was too slow and must read everything anew; the last one |
    """

    type: ChangeType
    data: Any


class Restored(Struct, frozen=True):
    """What a restore has brought back, and how many records the switches refused."""

    spaces: int
    records: int
    failed: int = 0
