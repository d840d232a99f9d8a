"""What is stored: records, spaces, the network. All are msgpack in etcd, and never changed."""

from typing import Any, Literal

from msgspec import Struct

from configurators.engine.partition_map import PartitionMap
from sdn.pipeline import Pipeline
from sdn.topology import Host, Link, Switch

State = Literal["pending", "active", "removing", "removed", "failed"]
RecordKind = Literal["subscription", "advertisement"]


class Timing(Struct, frozen=True, array_like=True, gc=False):
    """Where the time of the last operation went, in milliseconds; total is the sum of the rest."""

    indexed_ms: float = 0.0
    journaled_ms: float = 0.0
    queued_ms: float = 0.0
    decided_ms: float = 0.0
    pushed_ms: float = 0.0
    committed_ms: float = 0.0
    total_ms: float = 0.0


class NextFilter(Struct, frozen=True, array_like=True):
    """What an update that is under way leads to."""

    filter: Any
    regions: dict[int, bytes]


class Record(Struct, frozen=True, array_like=True):
    """A subscription or advertisement.

    `seq` counts its operations: what is told to partitions under a higher number replaces what was
    told under a lower one. `by` is the dispatcher that drives the open operation, if there is one:
    the record is pending or removing, or has a `next` filter. Until an operation is settled, what
    counts is what was before: nothing (pending), or `regions`.
    """

    id: str
    kind: RecordKind
    host: str
    space: str
    filter: Any  # as it was given
    regions: dict[int, bytes]  # by index version, packed (`pack_regions`)
    state: State
    seq: int
    created: float  # seconds since the epoch, as all times that are stored
    by: str = ""
    acknowledged: float | None = None
    flow_ops: int = 0
    timing: Timing | None = None
    label: str | None = None
    ttl: float | None = None
    expires: float | None = None
    reason: str | None = None  # why it is not done yet, or failed
    next: NextFilter | None = None

    @property
    def open(self) -> bool:
        """Whether an operation on it is under way."""
        return self.next is not None or self.state in ("pending", "removing")


class Version(Struct, frozen=True, array_like=True):
    """One version of a space's index: schema, dictionary of shapes, partition map."""

    schema: dict[str, Any]
    shapes: tuple[tuple[int, ...], ...] | None  # None for an index without a dictionary
    map: PartitionMap


class SpaceDoc(Struct, frozen=True, array_like=True):
    """A space. Requests are installed in all its versions; publishers write `current`."""

    name: str
    number: int
    versions: dict[int, Version]
    current: int
    by: str = ""  # the dispatcher that is changing the schema, if one is


class TreeDoc(Struct, frozen=True, array_like=True):
    """A spanning tree; each part of the network that is cut off has a root of its own."""

    links: tuple[Link, ...]
    root: str
    more_roots: tuple[str, ...] = ()


class Lost(Struct, frozen=True, array_like=True):
    """Switches and links that are out of order: trees avoid them, nobody waits for them."""

    switches: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()


class NetworkDoc(Struct, frozen=True, array_like=True):
    """The network: topology, tables and groups that were given out, trees by number.

    Entries stand on all `trees`. Publishers write `current` numbers (None: all there are);
    `retired` ones go after a while, and the others are not told of until all entries stand.
    """

    switches: tuple[Switch, ...]
    links: tuple[Link, ...]
    hosts: tuple[Host, ...]
    pipeline: Pipeline
    trees: dict[int, TreeDoc]
    lost: Lost = Lost()
    current: tuple[int, ...] | None = None
    retired: dict[int, float] = {}  # since when publishers are told of others
    wanted: int = 0  # how many trees there should be; 0: as many as there are
    last: int = -1  # the number that was given last

    @property
    def tree_count(self) -> int:
        """How many trees there are when nothing is lost."""
        return self.wanted or len(self.trees)

    @property
    def usable(self) -> frozenset[int]:
        """The trees that publishers may write."""
        return frozenset(self.trees if self.current is None else self.current)


class Process(Struct, frozen=True, array_like=True):
    """A process of the control plane that is alive: where its stream listens."""

    id: str
    address: str  # host:port
    pid: int
    node: str  # the machine (Ray node) it runs on
    openflow: str = ""  # host:port where switches connect, for southbound processes


class KeyUse(Struct, frozen=True, array_like=True):
    """What an idempotency key was used for: a fingerprint of the call, and the records' ids."""

    fingerprint: bytes
    ids: tuple[str, ...]
    made: float = 0.0  # when, in seconds since 1970
