"""The stored documents: records, spaces, the network, processes. All are immutable."""

from typing import Any, Literal

from msgspec import Struct

from configurators.engine.partition_map import PartitionMap
from sdn.pipeline import Pipeline
from sdn.topology import Host, Link, Switch

State = Literal["pending", "active", "removing", "removed", "failed"]
RecordKind = Literal["subscription", "advertisement"]
Authentication = Literal["none", "tagged"]


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
    by: str = ""  # the dispatcher that is changing the schema, if any
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
    removed after a while; the others are not announced until all their entries are installed.
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


class KeyUse(Struct, frozen=True, array_like=True):
    """What an idempotency key was used for: a fingerprint of the call, and the records' ids."""

    fingerprint: bytes
    ids: tuple[str, ...]
    made: float = 0.0  # when, in seconds since 1970
