"""The messages between dispatchers, configurators and southbound processes.

Regions and flow operations travel packed (`packing.py`): msgpack has no integers of 96 or 128 bits,
and these are the bulk of what is sent.
"""

from typing import Literal

from msgspec import Struct, field

from configurators.histogram import HistogramCounts
from sdn.network.findings import End, SeenHost
from sdn.network.topology import Link
from sdn.outcomes import Outcome
from sdn.tables.pipeline import SwitchNumbers
from sdn.tables.readings import Counts, TableUse

# Between dispatcher and configurator


class Task(Struct, frozen=True, array_like=True, gc=False):
    """What a partition should have of a record from now on.

    It replaces what the partition has of the record, unless that came with a higher `seq`: so a
    task may be repeated, or arrive late, without harm. No regions and no edge: nothing.
    """

    id: str
    seq: int
    host: str
    advertised: bool
    regions: bytes
    edge: bytes = b""
    trace: bytes = b""  # the context of the request's span, if its trace is sampled


class Tasks(Struct, frozen=True, array_like=True, tag="tasks"):
    """Tasks by partition. Each is answered by one `Done`, in any order.

    They are for the owner with this epoch (mode `sna`): a later owner may read the store after a
    record has ended, and must not begin it again.
    """

    tasks: dict[str, list[Task]]
    epochs: dict[str, int] = {}


class Offers(Struct, frozen=True, array_like=True, tag="offers"):
    """How many tasks a dispatcher has for the configurator that locks a partition (mode `sea`).

    The holder of the lock is told each change, the others only of tasks that wait; 0 if no tasks
    are left. `waits` says for how many seconds the oldest task has waited to be taken.
    """

    counts: dict[str, int]
    waits: dict[str, float] = {}


class Take(Struct, frozen=True, array_like=True, tag="take"):
    """The owner of a partition's lock requests at most `limit` tasks; they come as `Tasks`."""

    partition: str
    epoch: int
    limit: int


TaskOutcome = Literal["done", "failed", "superseded", "moved"]
"""Acknowledged by all switches; refused by one and undone; replaced by a task with a higher `seq`;
or not owned by this process, so that the dispatcher has to send it to the new owner."""


class Done(Struct, frozen=True, array_like=True, gc=False):
    """The result of a task, with the epoch of the partition's owner."""

    partition: str
    id: str
    seq: int
    epoch: int
    outcome: TaskOutcome
    reason: str | None = None
    decided_us: int = 0  # how long the decision took
    pushed_us: int = 0  # how long the switches took
    slice: int = 0  # the number of the slice, counted by each configurator
    size: int = 0  # tasks in that slice
    adds: int = 0  # this task's share of the slice's operations
    modifies: int = 0
    deletes: int = 0
    switches: int = 0  # that the slice touched


class Dones(Struct, frozen=True, array_like=True, tag="dones"):
    """The results of tasks."""

    dones: list[Done]


class Waiting(Struct, frozen=True, array_like=True, tag="waiting"):
    """Tasks that wait for a switch; the reason says which, and why. Their results follow."""

    partition: str
    tasks: list[tuple[str, int]]  # id, seq
    reason: str


# Between two configurators (mode `sna`)


class CopyRequest(Struct, frozen=True, array_like=True, tag="copy"):
    """Asks the owner of a partition for a copy of it, for a move, and to keep it up to date.

    The owner that does not have this epoch closes the stream.
    """

    partition: str
    epoch: int
    move: str  # the id of the move


class CopyPart(Struct, frozen=True, array_like=True, tag="copy-part"):
    """What a partition has of some records; it replaces what earlier parts said of them.

    With `complete`, all records were named at least once. Later parts say what the owner has
    carried out since.
    """

    move: str
    tasks: list[Task]
    complete: bool


class CopyEnd(Struct, frozen=True, array_like=True, tag="copy-end"):
    """The owner has stopped: the copy has all that was ever carried out under its epoch.

    `network` is the revision of the network that its entries are for. It is `in_order` if all
    switches have carried out everything.
    """

    move: str
    network: int
    in_order: bool


class CopyState(Struct, frozen=True, array_like=True, gc=False):
    """How far the copy of a partition has come that is made for a move."""

    partition: str
    move: str
    state: Literal["copying", "following", "ended"]


# Load


class WorkCounters(Struct, array_like=True, gc=False):
    """What a worker has done since it was made; they only grow.

    So a report may be lost or doubled without harm: receivers take differences. `since` is the
    epoch under which the counters began. A worker that owns its partition again (mode `sea`) counts
    on; a new worker begins with zeros and another `since`.
    """

    since: int = 0
    arrived: int = 0  # tasks that came; one that comes again while it waits counts once
    ended: int = 0  # tasks that ended here, with any result; not those that another owner gets
    waited_s: float = 0.0  # from the arrival of tasks to the begin of their slice, over tasks
    decided_s: float = 0.0  # processor time of decisions
    pushed_s: float = 0.0  # from decisions to the answers of all switches
    slices: int = 0  # decided and pushed; a part of a slice that was refused counts as another one
    flow_ops: int = 0  # acknowledged, also those that follow from a changed network


class PartitionLoad(Struct, frozen=True, array_like=True, gc=False):
    """The load and state of a partition."""

    partition: str
    epoch: int
    state: Literal["loading", "ready", "waiting"]
    queued: int
    active: int  # records with something in this partition
    entries: int  # flow entries, a cheap estimate; 0 if not known
    tasks: int  # done since the process started
    reason: str | None = None
    undefined: int = 0  # tasks that wait for switches which have not acknowledged for long
    oldest_s: float = 0.0  # how long the oldest of the queued tasks has waited
    counters: WorkCounters = field(default_factory=WorkCounters)


class ConfiguratorCounters(Struct, frozen=True, array_like=True):
    """What a configurator has counted since it started, for metrics."""

    started: float = 0.0  # seconds since 1970
    # Batches of one partition for one switch, by what the switch has said:
    acknowledged: int = 0
    refused: int = 0
    undefined: int = 0
    waiting: int = 0  # tasks that wait now for a switch that has not answered
    lock_waits: HistogramCounts = HistogramCounts()  # until it had a lock (mode `sea`)


class Load(Struct, frozen=True, array_like=True, tag="load"):
    """The load of a configurator, sent every second and when the network has changed."""

    configurator: str
    network: int  # the revision of the network that all its partitions have
    partitions: list[PartitionLoad]
    memory: int = 0  # resident bytes of the process
    cpu_s: float = 0.0  # processor time of the process since its start
    left: list[PartitionLoad] = []  # that it no longer owns, since the report before: last counters
    copies: list[CopyState] = []  # of partitions that are to move to it
    declared: bool = False  # all switches have what its partitions should have there
    counters: ConfiguratorCounters = ConfiguratorCounters()
    spaces: int = 0  # it knows all spaces as they were at this revision


# To and from southbound processes


class Apply(Struct, frozen=True, array_like=True, tag="apply"):
    """Carry out operations (packed, by switch) for a partition. Answered by `Applied`."""

    partition: str
    epoch: int
    batch: dict[str, bytes]
    trace: bytes = b""  # the context of a span, if its trace is sampled


class Applied(Struct, frozen=True, array_like=True, tag="applied"):
    """Outcomes by switch. If `stale` gives a reason, nothing was sent: the epoch is stale."""

    outcomes: dict[str, Outcome]
    stale: str | None = None


class RaiseEpochs(Struct, frozen=True, array_like=True, tag="raise"):
    """Reject all older epochs of these partitions. Answered by `Raised`."""

    epochs: dict[str, int]


class Raised(Struct, frozen=True, array_like=True, tag="raised"):
    """The epochs were raised, except for `stale` partitions, whose epoch is higher already.

    `undeclared` partitions were not declared for all switches of this southbound process.
    """

    stale: dict[str, str] = {}
    undeclared: list[str] = []


class Declare(Struct, frozen=True, array_like=True, tag="declare"):
    """What partitions should have on each switch (entries, packed, by partition and switch).

    It concerns the named `switches`, or else all that the southbound process is responsible for;
    a partition should have nothing on switches that `entries` leaves out. With `check`, these
    switches are then compared, once for all partitions, and the difference is sent. Answered by
    `Applied`, with an outcome for each switch (without `check`: acknowledged).

    A southbound process that has begun to hold a switch (the switch is new in its `SwitchReport`,
    or the stream is new) does not know what partitions should have there: it leaves their entries
    alone, and answers `Apply` with an undefined outcome until the partition was declared for that
    switch. So declare all partitions for all new switches, also those that are down.
    """

    epochs: dict[str, int]
    entries: dict[str, dict[str, bytes]]
    check: bool = True
    switches: list[str] | None = None
    trace: bytes = b""  # the context of a span, if its trace is sampled


class ReadFlows(Struct, frozen=True, array_like=True, tag="read"):
    """Read dzflow's entries from a switch. Answered by `Flows`."""

    switch: str


class Flows(Struct, frozen=True, array_like=True, tag="flows"):
    """Entries of a switch, packed; or the reason why it cannot be read.

    `counts` has what each entry has counted, if the switch tells.
    """

    entries: bytes
    reason: str | None = None
    counts: list[Counts] | None = None


class FindVacant(Struct, frozen=True, array_like=True, tag="find-vacant"):
    """Find out which of these tables and groups of a switch are not used. Answered by `Vacant`."""

    switch: str
    numbers: SwitchNumbers


class Vacant(Struct, frozen=True, array_like=True, tag="vacant"):
    """The tables and groups that hold nothing of ours but misses; or why that is not known."""

    numbers: SwitchNumbers
    reason: str | None = None


class SwitchReport(Struct, frozen=True, array_like=True, tag="holds"):
    """What a southbound process reports when a stream opens, and on each change.

    `switches` are those that it is master of and that are up; `down` gives reasons for those that
    it is responsible for and cannot use. `network` is the revision of the network that it has
    taken up, `ports_down` the ports (switch, port) that are known to be down. `refusing` gives
    reasons for those of `switches` that do not hold all that was declared.
    """

    southbound: str
    switches: list[str]
    down: dict[str, str]
    network: int
    ports_down: list[tuple[str, int]]
    spaces: int = 0  # it knows all spaces as they were at this revision
    refusing: dict[str, str] = {}
    cleaned: int = 0  # as `spaces`, and no entries are left of maps that were changed before
    silent: list[tuple[str, int]] = []  # ends of links that carry no probes, of `switches`


class FoundNetwork(Struct, frozen=True, array_like=True, tag="found"):
    """What the discovery of a southbound process has found: on each change, as a whole.

    Configurators have no use for it. `sdn.network.findings.Findings` explains the fields.
    """

    southbound: str
    strangers: tuple[int, ...]
    links: tuple[Link, ...]
    crossed: tuple[tuple[End, End], ...] = ()
    refused: dict[int, str] = {}
    absent: tuple[End, ...] = ()


class FoundHosts(Struct, frozen=True, array_like=True, tag="hosts"):
    """The hosts that the discovery of a southbound process has heard: on changes, as a whole.

    `since` is in seconds since 1970. Only dispatchers have a use for it. The longer it is, the more
    seldom it is sent.
    """

    southbound: str
    hosts: tuple[SeenHost, ...]


class SwitchCounters(Struct, frozen=True, array_like=True, gc=False):
    """What a southbound process has counted of one switch since it started."""

    # Batches of one partition, by what the switch has said:
    acknowledged: int = 0
    refused: int = 0
    undefined: int = 0
    operations: int = 0  # in batches that were acknowledged
    repairs: int = 0  # operations that reconciliation has sent
    connections: int = 0  # how often it has connected and become usable


class SouthboundCounters(Struct, frozen=True, array_like=True, tag="counters"):
    """What a southbound process has counted since it started, for metrics.

    It is sent when a stream opens, and every second if something has changed. Configurators have no
    use for it.
    """

    southbound: str
    started: float  # seconds since 1970
    switches: dict[str, SwitchCounters]
    pushes: HistogramCounts  # from the arrival of an `Apply` until all its switches have answered
    tables: dict[str, TableUse] = {}  # of the switches that it is responsible for, as they are now


ToConfigurator = Tasks | Offers | CopyRequest
FromConfigurator = Dones | Waiting | Load | Take
FromCopySource = CopyPart | CopyEnd | Load  # a configurator sends its load to all its peers
ToSouthbound = Apply | RaiseEpochs | Declare | ReadFlows | FindVacant
FromSouthbound = (
    Applied
    | Raised
    | Flows
    | Vacant
    | SwitchReport
    | FoundNetwork
    | FoundHosts
    | SouthboundCounters
)
