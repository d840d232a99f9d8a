"""Records as users see them."""

from collections.abc import Iterable

from configurators.store.model import Record, Timing
from dispatcher.requests.routing import region_texts
from dispatcher.views import RecordView, TimingView


def record_view(
    record: Record,
    partitions: Iterable[str],
    version: int,
    waiting: str | None = None,
    expires: float | None = None,
) -> RecordView:
    """A record with its regions under an index version, in text.

    `waiting` is a reason that is known here and not stored; `expires` is newer than the record's.
    """
    packed = record.regions.get(version)
    if packed is None:
        packed = next(iter(record.regions.values()), b"")
    timing = record.timing
    return RecordView(
        record.id,
        record.kind,
        record.host,
        record.space,
        record.filter,
        region_texts(packed),
        list(partitions),
        record.state,
        record.created,
        record.acknowledged,
        record.flow_ops,
        _timing_view(timing) if timing else None,
        record.label,
        record.ttl,
        expires or record.expires,
        waiting or record.reason,
        record.next is not None,
    )


def _timing_view(timing: Timing) -> TimingView:
    return TimingView(
        timing.indexed_ms,
        timing.journaled_ms,
        timing.queued_ms,
        timing.decided_ms,
        timing.pushed_ms,
        timing.committed_ms,
        timing.total_ms,
    )


def timing_of(
    total: float, indexed: float, journaled: float, decided: float, pushed: float, committed: float
) -> Timing:
    """Where the time went (in seconds), in whole microseconds that add up exactly.

    What is not accounted for was spent in queues. Should parts come to more than the total, because
    they were measured by different clocks, the switches' part gives way.
    """
    whole = max(0, round(total * 1e6))
    parts = [max(0, round(part * 1e6)) for part in (indexed, journaled, committed, decided, pushed)]
    left = whole
    for place, part in enumerate(parts):
        parts[place] = min(part, left)
        left -= parts[place]
    first, second, last, fourth, fifth = (part / 1000 for part in parts)
    queued = left / 1000
    return Timing(
        first, second, queued, fourth, fifth, last, first + second + queued + fourth + fifth + last
    )
