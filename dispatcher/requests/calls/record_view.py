"""Records as users see them."""

from collections.abc import Iterable

from configurators.store.model import Record, Timing
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.knowledge.expiry_times import ExpiryTimes
from dispatcher.requests.intake.routing import Routing, region_texts
from dispatcher.requests.operation import Operation
from dispatcher.views import RecordView, TimingView


class RecordViews:
    """Makes views of records, with what this dispatcher knows beyond what is stored."""

    def __init__(self, catalogue: Catalogue, routing: Routing, times: ExpiryTimes) -> None:
        self._catalogue = catalogue
        self._routing = routing
        self._times = times

    def view(self, record: Record, operation: Operation | None = None) -> RecordView:
        """A record; with its operation, if there is one, also its partitions and why it waits."""
        space = self._catalogue.spaces.get(record.space)
        version = space.doc.current if space else 0
        waiting = None
        if operation and not operation.reindex:
            rollout = operation.rollout
            updated = operation.action == "update" and record.next is None and not rollout.refusal
            partitions = rollout.after if operation.action == "begin" or updated else rollout.before
            waiting = rollout.waiting
        else:
            partitions = self._routing.shares(space, record) if space else {}
        expires = None if record.ttl is None else self._times.get(record.id)
        return _view(record, partitions, version, waiting, expires)


def _view(
    record: Record,
    partitions: Iterable[str],
    version: int,
    waiting: str | None,
    expires: float | None,
) -> RecordView:
    """A record with its regions under an index version, in text."""
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
        record.next is not None and not record.reindexing,
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
