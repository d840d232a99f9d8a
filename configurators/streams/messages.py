"""The messages between dispatchers, configurators and southbound processes.

Regions and flow operations travel packed (`packing.py`): msgpack has no integers of 96 or 128 bits,
and these are the bulk of what is sent.
"""

from typing import Literal

from msgspec import Struct

from sdn.outcomes import Outcome

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


class Tasks(Struct, frozen=True, array_like=True, tag="tasks"):
    """Tasks by partition. Each is answered by one `Done`, in any order.

    They are for the owner with this epoch (mode `sna`): a later owner may read the store after a
    record has ended, and must not begin it again.
    """

    tasks: dict[str, list[Task]]
    epochs: dict[str, int] = {}


class Offers(Struct, frozen=True, array_like=True, tag="offers"):
    """How many tasks a dispatcher has for the configurator that locks a partition (mode `sea`).

    The dispatcher sends it to all configurators on each change; 0 if no tasks are left.
    """

    counts: dict[str, int]


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


class Load(Struct, frozen=True, array_like=True, tag="load"):
    """The load of a configurator, sent every second and when the network has changed."""

    configurator: str
    network: int  # the revision of the network that all its partitions have
    partitions: list[PartitionLoad]


# To and from southbound processes


class Apply(Struct, frozen=True, array_like=True, tag="apply"):
    """Carry out operations (packed, by switch) for a partition. Answered by `Applied`."""

    partition: str
    epoch: int
    batch: dict[str, bytes]


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


class ReadFlows(Struct, frozen=True, array_like=True, tag="read"):
    """Read dzflow's entries from a switch. Answered by `Flows`."""

    switch: str


class Flows(Struct, frozen=True, array_like=True, tag="flows"):
    """Entries of a switch, packed; or the reason why it cannot be read."""

    entries: bytes
    reason: str | None = None


class SwitchReport(Struct, frozen=True, array_like=True, tag="holds"):
    """What a southbound process reports when a stream opens, and on each change.

    `switches` are those that it is master of and that are up; `down` gives reasons for those that
    it is responsible for and cannot use. `network` is the revision of the network that it has
    taken up, `ports_down` the ports (switch, port) that are known to be down.
    """

    southbound: str
    switches: list[str]
    down: dict[str, str]
    network: int
    ports_down: list[tuple[str, int]]


ToConfigurator = Tasks | Offers
FromConfigurator = Dones | Waiting | Load | Take
ToSouthbound = Apply | RaiseEpochs | Declare | ReadFlows
FromSouthbound = Applied | Raised | Flows | SwitchReport
