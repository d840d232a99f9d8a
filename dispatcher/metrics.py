"""What is counted, for whoever wants to show it."""

from bisect import bisect_left
from collections import Counter

LATENCY_BOUNDS = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
"""Upper bounds of the histogram of latencies, in seconds; there is one more without a bound."""


class Metrics:
    """Counts since the start of the process. Read them whenever you like."""

    def __init__(self) -> None:
        self.operations: Counter[tuple[str, str, str]] = Counter()
        """Operations at their end, by record kind, action (begin, end, update) and outcome (done,
        failed, superseded)."""
        self.refused: Counter[str] = Counter()
        """Elements that were refused, by the kind of problem."""
        self.latency = [0] * (len(LATENCY_BOUNDS) + 1)
        self.latency_sum = 0.0
        self.stages: Counter[str] = Counter()
        """Microseconds spent per stage: indexed, journaled, queued, decided, pushed, committed."""
        self.flow_ops = 0
        self.tasks_sent = 0
        self.tasks_done: Counter[str] = Counter()  # by outcome
        self.adopted = 0
        self.expired = 0

    def finished(self, kind: str, action: str, outcome: str, seconds: float) -> None:
        """An operation has come to its end."""
        self.operations[kind, action, outcome] += 1
        self.latency[bisect_left(LATENCY_BOUNDS, seconds)] += 1
        self.latency_sum += seconds
