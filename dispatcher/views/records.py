"""Records as users see them."""

from typing import Any

from msgspec import Struct

from configurators.store.model import RecordKind, State


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
