"""What dispatchers, configurators and southbound processes say to each other over streams.

Regions and flow operations travel packed (`packing.py`): msgpack has no integers of 96 or 128 bits,
and these are the bulk of what is sent.
"""

from typing import Literal

from msgspec import Struct

from sdn.outcomes import Outcome

# Between dispatcher and configurator


class Task(Struct, frozen=True, array_like=True, gc=False):
    """What a partition shall have of a record from now on.

    It replaces whatever the partition has of it, unless that came under a higher `seq`; so a task
    can be repeated, and come late, without harm. Without regions and edge: nothing more.
    """

    id: str
    seq: int
    host: str
    advertised: bool
    regions: bytes
    edge: bytes = b""


class Tasks(Struct, frozen=True, array_like=True, tag="tasks"):
    """Tasks by partition. Each is answered by one `Done`, in any order.

    They are for the owner with this epoch (mode `sna`): somebody who owns the partition later may
    read the store after a record has ended, and must not begin it anew.
    """

    tasks: dict[str, list[Task]]
    epochs: dict[str, int] = {}


class Offers(Struct, frozen=True, array_like=True, tag="offers"):
    """How many tasks of partitions a dispatcher has for whoever locks them (mode `sea`).

    It is told to all configurators, whenever that changes; 0 if there are none any more.
    """

    counts: dict[str, int]


class Take(Struct, frozen=True, array_like=True, tag="take"):
    """The owner of a partition's lock wants at most so many of its tasks: they come as `Tasks`."""

    partition: str
    epoch: int
    limit: int


TaskOutcome = Literal["done", "failed", "superseded", "moved"]
"""Acknowledged by all switches; refused by one and undone; replaced by a task with a higher `seq`;
or not owned here (any more), so that it has to be sent to the new owner."""


class Done(Struct, frozen=True, array_like=True, gc=False):
    """A task has come to its end, under the epoch of the partition's owner."""

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
    """Tasks that have come to their end."""

    dones: list[Done]


class Waiting(Struct, frozen=True, array_like=True, tag="waiting"):
    """Tasks wait for a switch; the reason says which and why. They are not at an end."""

    partition: str
    tasks: list[tuple[str, int]]  # id, seq
    reason: str


class PartitionLoad(Struct, frozen=True, array_like=True, gc=False):
    """How a partition is doing."""

    partition: str
    epoch: int
    state: Literal["loading", "ready", "waiting"]
    queued: int
    active: int  # records with something in this partition
    entries: int  # flow entries, estimated cheaply; 0 if not known
    tasks: int  # done since the process started
    reason: str | None = None


class Load(Struct, frozen=True, array_like=True, tag="load"):
    """What a configurator tells every second, and when the network changed."""

    configurator: str
    network: int  # the revision of the network that all its partitions have taken up
    partitions: list[PartitionLoad]


# To and from southbound processes


class Apply(Struct, frozen=True, array_like=True, tag="apply"):
    """Carry out operations (packed, by switch) for a partition. Answered by `Applied`."""

    partition: str
    epoch: int
    batch: dict[str, bytes]


class Applied(Struct, frozen=True, array_like=True, tag="applied"):
    """Outcomes by switch; or, if `stale` says so, nothing was sent because the epoch is over."""

    outcomes: dict[str, Outcome]
    stale: str | None = None


class RaiseEpochs(Struct, frozen=True, array_like=True, tag="raise"):
    """Let nothing older through for these partitions. Answered by `Raised`."""

    epochs: dict[str, int]


class Raised(Struct, frozen=True, array_like=True, tag="raised"):
    """The fence has risen, except for partitions whose epoch here is higher already.

    Of those that are `undeclared` it is not known here what all switches should hold.
    """

    stale: dict[str, str] = {}
    undeclared: list[str] = []


class Declare(Struct, frozen=True, array_like=True, tag="declare"):
    """What partitions should have on each switch (entries, packed, by partition and switch).

    It is about the `switches` that are named, or else about all that the southbound process is
    responsible for; on those that `entries` leaves out a partition should have nothing. With
    `check`, these switches are then compared, once for all partitions, and the difference is sent.
    Answered by `Applied`, with an outcome for each switch (without `check`: acknowledged).

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
    """Read our entries as a switch has them. Answered by `Flows`."""

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
