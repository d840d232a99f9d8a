"""The stored documents: records, spaces, the network, processes. All are immutable."""

from typing import Any, Literal

from msgspec import Struct

from configurators.engine.partition_map import PartitionMap
from sdn.network.topology import Host, Link, Switch
from sdn.tables.pipeline import Pipeline

State = Literal["pending", "active", "removing", "removed", "failed"]
RecordKind = Literal["subscription", "advertisement"]
Authentication = Literal["none", "tagged"]
WorkerKind = Literal["configurators", "southbound"]


class Timing(Struct, frozen=True, array_like=True, gc=False):
    """How long each stage of the last operation took, in milliseconds; `total_ms` is the sum."""

    indexed_ms: float = 0.0
    journaled_ms: float = 0.0
    queued_ms: float = 0.0
    decided_ms: float = 0.0
    pushed_ms: float = 0.0
    committed_ms: float = 0.0
    total_ms: float = 0.0


class NextFilter(Struct, frozen=True, array_like=True):
    """The filter that an update in progress leads to."""

    filter: Any
    regions: dict[int, bytes]
    reindex: bool = False  # the filter stays: it only gets the regions of another dictionary


class Record(Struct, frozen=True, array_like=True):
    """A subscription or advertisement.

    `seq` counts its operations: a task with a higher number replaces one with a lower number. `by`
    is the dispatcher that drives the open operation, if there is one: the record is pending or
    removing, or has a `next` filter. Until an operation is settled, the state before it counts:
    nothing (pending), or `regions`.
    """

    id: str
    kind: RecordKind
    host: str
    space: str
    filter: Any  # as the user gave it
    regions: dict[int, bytes]  # by index version, packed (`pack_regions`)
    state: State
    seq: int
    created: float  # seconds since 1970, as all stored times
    by: str = ""
    acknowledged: float | None = None
    flow_ops: int = 0
    timing: Timing | None = None
    label: str | None = None
    ttl: float | None = None
    expires: float | None = None
    reason: str | None = None  # why the operation waits, or has failed
    next: NextFilter | None = None

    @property
    def open(self) -> bool:
        """Whether an operation on it is in progress."""
        return self.next is not None or self.state in ("pending", "removing")

    @property
    def reindexing(self) -> bool:
        """Whether the operation in progress is one that no user has asked for."""
        return self.next is not None and self.next.reindex and self.state == "active"


class Version(Struct, frozen=True, array_like=True):
    """One version of a space's index: schema, dictionary of shapes, partition map."""

    schema: dict[str, Any]
    shapes: tuple[tuple[int, ...], ...] | None  # None for an index without a dictionary
    map: PartitionMap
    map_number: int = 0  # grows with each change of the map
    cutting: tuple[str, ...] = ()  # leaves that were added last; switches may lack their entries


class SpaceDoc(Struct, frozen=True, array_like=True):
    """A space. Requests are installed in all its versions; publishers write `current`."""

    name: str
    number: int
    versions: dict[int, Version]
    current: int
    by: str = ""  # the dispatcher that is changing the schema or the shapes, if any
    authentication: Authentication = "none"  # whether its events carry tags
    key: int = 0  # the number of the key with which publishers tag them


class SpaceKeys(Struct, frozen=True, array_like=True):
    """The secrets from which the keys of a space with tagged events are derived."""

    number: int
    secret: bytes
    former: bytes | None = None  # of the number before
    former_until: float = 0.0  # seconds since 1970

    def __repr__(self) -> str:
        return f"SpaceKeys({self.number})"  # without the secrets, which must not reach a log


class TreeDoc(Struct, frozen=True, array_like=True):
    """A spanning tree; each part of the network that is cut off has its own root."""

    links: tuple[Link, ...]
    root: str
    more_roots: tuple[str, ...] = ()


class Lost(Struct, frozen=True, array_like=True):
    """Switches and links that are down: trees avoid them, and no request waits for them."""

    switches: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()


class NetworkDoc(Struct, frozen=True, array_like=True):
    """The network: topology, the numbers of tables and groups, trees by number.

    All `trees` have entries. Publishers use the `current` numbers (None: all). `retired` trees are
    removed after a while; the others are not announced until all their entries are installed. Those
    that are `outdone` are retired then: better ones take their place. Links that are `withdrawn`
    are removed when no tree uses them any more.
    """

    switches: tuple[Switch, ...]
    links: tuple[Link, ...]
    hosts: tuple[Host, ...]
    pipeline: Pipeline
    trees: dict[int, TreeDoc]
    lost: Lost = Lost()
    current: tuple[int, ...] | None = None
    retired: dict[int, float] = {}  # since when publishers use other trees
    wanted: int = 0  # how many trees there should be; 0: as many as there are
    last: int = -1  # the number that was assigned last
    discovered: bool = False  # switches and links join as they are found
    outdone: tuple[int, ...] = ()
    unprobed: tuple[Link, ...] = ()  # that discovery cannot find, as an operator says
    withdrawn: tuple[Link, ...] = ()

    @property
    def tree_count(self) -> int:
        """How many trees there are when nothing is down."""
        return self.wanted or len(self.trees)

    @property
    def usable(self) -> frozenset[int]:
        """The trees that publishers may use."""
        return frozenset(self.trees if self.current is None else self.current)


class Process(Struct, frozen=True, array_like=True):
    """A process of the control plane that is alive, and where it listens for streams."""

    id: str
    address: str  # host:port
    pid: int
    node: str  # the machine (Ray node) it runs on
    openflow: str = ""  # host:port where switches connect, for southbound processes


MovePhase = Literal["asked", "copying", "handing over", "moved", "failed"]
MoveCause = Literal["operator", "balancer", "draining", "filling", "plan"]
"""Who wants a move: an operator, the balancer's policy, a configurator that leaves or is new, or a
plan for the partition map."""


class Move(Struct, frozen=True, array_like=True):
    """A partition that goes from its owner to another configurator while both are alive.

    | phase | what happens |
    | --- | --- |
    | asked | nothing yet: the leading monitor begins with it |
    | copying | the target copies the partition, while the owner goes on working |
    | handing over | dispatchers hold new tasks back; the owner ends its slice and stops |
    | moved | the owner key names the target, since the same transaction |
    | failed | nothing has moved: the owner goes on; `text` says why |

    Only the owner key says who owns the partition. `epoch` is the revision at which it named the
    source: if the key has changed since, the move is over.
    """

    id: str  # of this attempt
    source: str
    epoch: int
    target: str
    phase: MovePhase
    text: str  # why it moves, or why it has failed
    began: float  # seconds since 1970
    cause: MoveCause = "operator"


PlanPhase = Literal["cutting", "settling", "moving", "done", "aborted"]


class PlanStep(Struct, frozen=True, array_like=True):
    """One change of a partition map: leaves that go, and the leaves that have their part then."""

    removed: tuple[str, ...]
    added: tuple[str, ...]


class MapPlan(Struct, frozen=True, array_like=True):
    """A partition map that a space is to get, and who is to own its partitions.

    | phase | what happens |
    | --- | --- |
    | cutting | the next step is prepared; then the map is changed in one transaction |
    | settling | new partitions are taken over; they work when all switches have their entries |
    | moving | partitions move to the configurators that the plan assigns them to |
    | done, aborted | nothing more; `text` says why it was aborted |
    """

    id: str
    space: str
    version: int
    made_for: int  # the number of the map that the plan was made for
    map_number: int  # of the map that the last step has led to
    map: PartitionMap
    assignment: dict[str, str]  # the configurator of each leaf; the others stay where they are
    reasons: tuple[str, ...]
    phase: PlanPhase
    began: float  # seconds since 1970
    steps: tuple[PlanStep, ...]  # that lead there
    text: str = ""
    aborting: bool = False  # nothing more is begun, and the step that is settling is undone
    before: PartitionMap | None = None  # that the step which is settling began with

    @property
    def running(self) -> bool:
        """Whether it is still being carried out."""
        return self.phase not in ("done", "aborted")


class Wanted(Struct, frozen=True, array_like=True):
    """How many workers of a kind there should be: those with a higher number are to leave.

    `given` is the number in the settings that were applied last; None if they named none.
    """

    count: int
    given: int | None = None


class Connections(Struct, frozen=True, array_like=True):
    """The switches of a southbound process, in order: what the others divide the switches by.

    `connected` has those whose connection counts, `held` those that it is responsible for, and
    `away` those of them that were connected to it and are not any more. A process that is `leaving`
    is about to end, and hands its switches over.
    """

    connected: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    away: tuple[str, ...] = ()
    leaving: bool = False


class KeyUse(Struct, frozen=True, array_like=True):
    """What an idempotency key was used for: a fingerprint of the call, and the records' ids."""

    fingerprint: bytes
    ids: tuple[str, ...]
    made: float = 0.0  # when, in seconds since 1970
