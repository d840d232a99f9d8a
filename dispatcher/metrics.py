"""What a dispatcher counts, for `/metrics`."""

from collections import Counter
from collections.abc import Mapping
from typing import Literal, get_args

from configurators.histogram import LATENCY_BOUNDS, STEP_BOUNDS, Histogram
from configurators.store.model import Record, Timing

STAGES = ("indexed", "journaled", "queued", "decided", "pushed", "committed")
"""The stages of a request, as in the `timing` of its record."""

MigrationOutcome = Literal["done", "failed"]
"""The partition has moved, or the attempt has failed."""

MIGRATION_OUTCOMES: tuple[MigrationOutcome, ...] = get_args(MigrationOutcome)


PlanOutcome = Literal["done", "aborted"]
PLAN_OUTCOMES: tuple[PlanOutcome, ...] = get_args(PlanOutcome)

StepOutcome = Literal["done", "undone"]
"""The partitions of the new map work; or the former map is in force again."""

STEP_OUTCOMES: tuple[StepOutcome, ...] = get_args(StepOutcome)


class Metrics:
    """Counts since the start of the process; read them at any time."""

    def __init__(self) -> None:
        self.operations: Counter[tuple[str, str, str]] = Counter()
        """Operations that have ended, by record kind, action (begin, end, update, reindex) and
        ending (done, failed, superseded)."""
        self.refused: Counter[str] = Counter()
        """Elements that were refused, by the type of problem."""
        self.latency = Histogram(LATENCY_BOUNDS)
        self.stages = {stage: Histogram(STEP_BOUNDS) for stage in STAGES}
        self.adds = self.modifies = self.deletes = 0  # flow operations that were acknowledged
        self.tasks_sent = 0
        self.tasks_done: Counter[str] = Counter()  # by outcome
        self.adopted = 0
        self.expired = 0
        self.removed_early: Counter[str] = Counter()
        """Finished records and idempotency keys removed to make room, by the kind of group."""
        self.etcd_checks = Histogram(STEP_BOUNDS)  # those that etcd has answered
        self.etcd_failures = 0  # checks that it has not answered
        self.migrations = MigrationMetrics()
        self.plans = PlanMetrics()
        self.jobs = JobMetrics()

    def operation_ended(self, record: Record, action: str, ending: str, seconds: float) -> None:
        """Count an operation that has ended; nobody waits for one that only indexes again."""
        self.operations[record.kind, action, ending] += 1
        if action == "reindex":
            return
        self.latency.observe(seconds)
        if ending != "superseded" and record.timing:
            self._count_stages(record.timing)

    def _count_stages(self, timing: Timing) -> None:
        stages = self.stages
        stages["indexed"].observe(timing.indexed_ms / 1000)
        stages["journaled"].observe(timing.journaled_ms / 1000)
        stages["queued"].observe(timing.queued_ms / 1000)
        stages["decided"].observe(timing.decided_ms / 1000)
        stages["pushed"].observe(timing.pushed_ms / 1000)
        stages["committed"].observe(timing.committed_ms / 1000)


class JobMetrics:
    """What is known of the scheduled job; the same in each process."""

    def __init__(self) -> None:
        self.outcomes: Mapping[str, int] = {}
        self.last_success: float | None = None  # seconds since 1970

    def note(self, outcomes: Mapping[str, int], last_success: float | None) -> None:
        """Note how many runs have ended in which way, and when the last one had a result."""
        self.outcomes = outcomes
        self.last_success = last_success


class PlanMetrics:
    """What the process that carries out plans for partition maps counts of them."""

    def __init__(self) -> None:
        self.outcomes: Counter[PlanOutcome] = Counter()
        self.steps: Counter[StepOutcome] = Counter()


class MigrationMetrics:
    """What is counted of migrations: by the process that carries them out, and by each dispatcher.

    The process that moves a partition calls `ended` once per attempt. Every dispatcher that has
    held back requests of the partition calls `held` once, when it lets them go.
    """

    def __init__(self) -> None:
        self.outcomes: Counter[MigrationOutcome] = Counter()
        self.held_back = Histogram(STEP_BOUNDS)  # how long a dispatcher held a partition's requests
        self.requests_held = 0

    def ended(self, outcome: MigrationOutcome) -> None:
        """Count an attempt to move a partition."""
        self.outcomes[outcome] += 1

    def held(self, seconds: float, requests: int) -> None:
        """Count that so many requests of a partition were held back, the first one so long."""
        self.held_back.observe(seconds)
        self.requests_held += requests
