"""Counters of a dispatcher, for `/metrics`."""

from bisect import bisect_left
from collections import Counter

from configurators.store.model import Record

LATENCY_BOUNDS = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
"""Upper bounds of the histogram of latencies, in seconds; there is one more without a bound."""

STAGES = ("indexed", "journaled", "queued", "decided", "pushed", "committed")


class Metrics:
    """Counts since the start of the process; read them at any time."""

    def __init__(self) -> None:
        self.operations: Counter[tuple[str, str, str]] = Counter()
        """Operations that have ended, by record kind, action (begin, end, update) and ending (done,
        failed, superseded)."""
        self.refused: Counter[str] = Counter()
        """Elements that were refused, by the type of problem."""
        self.latency = [0] * (len(LATENCY_BOUNDS) + 1)
        self.latency_sum = 0.0
        self.stages = dict.fromkeys(STAGES, 0.0)
        """Microseconds spent per stage."""
        self.flow_ops = 0
        self.tasks_sent = 0
        self.tasks_done: Counter[str] = Counter()  # by outcome
        self.adopted = 0
        self.expired = 0
        self.removed_early: Counter[str] = Counter()
        """Finished records and idempotency keys removed to make room, by the kind of group."""

    def operation_ended(
        self, record: Record, action: str, ending: str, seconds: float, flow_ops: int
    ) -> None:
        """Count an operation that has ended."""
        self.operations[record.kind, action, ending] += 1
        self.latency[bisect_left(LATENCY_BOUNDS, seconds)] += 1
        self.latency_sum += seconds
        self.flow_ops += flow_ops
        timing = record.timing
        if ending != "superseded" and timing:
            stages = self.stages
            stages["indexed"] += timing.indexed_ms * 1000
            stages["journaled"] += timing.journaled_ms * 1000
            stages["queued"] += timing.queued_ms * 1000
            stages["decided"] += timing.decided_ms * 1000
            stages["pushed"] += timing.pushed_ms * 1000
            stages["committed"] += timing.committed_ms * 1000
