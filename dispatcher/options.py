"""The settings of a dispatcher."""

from typing import Literal

from msgspec import Struct

from configurators.state.learned_hosts import HostMode
from configurators.store.retention import Bound, GroupKind
from dispatcher.changes.damping import Patience
from dispatcher.knowledge.usage import Quotas
from dispatcher.requests.intake.permissions import Permission
from sdn.tables.pipeline import PlanName

FINISHED_FLOOR = 30.0
"""Seconds that a finished record is kept at least, unless etcd is full: its caller may wait."""

KEY_FLOOR = 600.0
"""Seconds that an idempotency key is honoured at least."""


class Limit(Struct, frozen=True):
    """The most workers of a kind that can be had, and why."""

    most: int
    reason: str


class DispatcherOptions(Struct, frozen=True):
    """How a dispatcher works; the defaults suit one machine."""

    id: str = ""  # if empty, the dispatcher makes up a new one at each start
    node: str = ""  # the machine's name; if empty, the operating system's
    plan: PlanName = "legs"
    partitions_per_configurator: int = 4
    partitions: int | None = None  # of a new space, instead of the above
    mode: Literal["sna", "sea"] = "sna"
    window: int = 4_000  # operations in flight
    window_per_host: int = 64  # operations in flight of one host, so that no host blocks others
    most_per_host: int = 512  # the same, including operations that wait long, for a switch say
    queue: int = 20_000  # operations that wait for the window
    queue_per_host: int = 5_000
    rate: float | None = None  # operations per second, of all hosts together
    rate_per_host: float | None = None
    burst_s: float = 2.0  # a burst may use up the tokens of this many seconds
    finished_ttl: float = 600.0  # seconds that removed and failed records are kept
    finished_records: int = 100_000  # the most of them that are kept, of all dispatchers together
    finished_bytes: int = 128 << 20
    work: float | None = 500.0  # ms of processor time per second, for filters of all hosts
    work_per_host: float | None = 200.0
    max_filter: int | None = 64 << 10  # bytes of a filter
    max_record: int | None = 256 << 10  # bytes of a record
    max_page: int | None = 4 << 20  # bytes of a page of records
    quotas: Quotas = Quotas(500_000, 256 << 20, 2_000_000, 1 << 30)
    permissions: tuple[Permission, ...] = ()  # of hosts; without any, they may do everything
    key_ttl: float = 86_400.0  # seconds that idempotency keys are kept
    keys: int = 500_000  # the most of them that are kept, but all of the last ten minutes
    key_bytes: int = 256 << 20
    quota: int = 2 << 30  # bytes of etcd's database; etcd's own default
    history: float = 60.0  # seconds of etcd's history that are kept, for slow readers
    lease_ttl: int = 10
    grace: float = 5.0  # seconds that old index versions and trees stay after publishers know
    network_timeout: float = 30.0  # seconds for all processes to apply a changed host
    southbound_limit: Limit | None = None  # of southbound processes
    southbound_outside: bool = False  # the service does not start southbound processes
    reuse_from: int = 8  # legs that are gone from a switch; then others may have their tables
    patience: Patience = Patience()  # with switches and links that fail
    settled_after: float = 5.0  # seconds without a new switch or link, before trees get better
    hosts: HostMode = "declared"  # or learned
    accept_after: float = 30.0  # seconds alone at a port until a host is accepted by itself
    traces: str | None = None  # a folder or an address for traces; without one, none are written
    traces_bytes: int = 2 << 30  # of traces in a folder; the oldest files are deleted beyond it
    traces_roll: float = 300.0  # seconds until a file of traces is closed, and the next one begun

    @property
    def bounds(self) -> dict[GroupKind, Bound]:
        """The most finished records and idempotency keys that are kept."""
        return {
            "finished": Bound(self.finished_records, self.finished_bytes, FINISHED_FLOOR),
            "keys": Bound(self.keys, self.key_bytes, KEY_FLOOR),
        }
