"""The metrics of the control plane, as one dispatcher counts and sees it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import get_args

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from api.http.metrics.families import family, histogram
from configurators.histogram import LATENCY_BOUNDS, STEP_BOUNDS
from configurators.streams.messages import (
    ConfiguratorCounters,
    Load,
    SouthboundCounters,
    SwitchCounters,
)
from dispatcher.dispatcher import Dispatcher
from dispatcher.metrics import (
    MIGRATION_OUTCOMES,
    PLAN_OUTCOMES,
    STEP_OUTCOMES,
    JobMetrics,
    MigrationMetrics,
    PlanMetrics,
)
from dispatcher.views import DifferenceKind, Health, StoreView
from monitor.jobs.state import JOB_OUTCOMES

_IMPAIRED = ("switch", "partition", "process", "document")
_OUTCOMES = ("acknowledged", "refused", "undefined")


class ControlPlane(Collector):
    """Collects the metrics of a dispatcher, and of the processes that report to it."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    def describe(self) -> Iterable[Metric]:
        """Nothing: the dispatcher is asked only when its metrics are read."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The metrics as they are now."""
        health, status = self._dispatcher.health(), self._dispatcher.status
        loads, southbound = status.configurator_loads(), status.southbound_counters()
        counters = {name: load.counters for name, load in loads.items()}
        yield from self._requests()
        yield from self._configurators()
        yield from _used_by_configurators(loads)
        yield from _counted_by_configurators(counters)
        yield from self._partitions()
        yield from _migrations(self._dispatcher.metrics.migrations)
        yield from _plans(self._dispatcher.metrics.plans)
        yield from _jobs(self._dispatcher.metrics.jobs)
        yield from self._switches(health)
        yield from _counted_by_southbound(southbound)
        yield from _health(health)
        started = {(name,): each.started for name, each in counters.items()}
        started |= {(each.southbound,): each.started for each in southbound}
        yield family("dzflow_worker_start_time_seconds", started)
        yield from self._etcd(health)
        yield from _store(health.store)

    def _requests(self) -> Iterator[Metric]:
        counts = self._dispatcher.metrics
        queued, in_flight = self._dispatcher.queue()
        stages = {(stage,): spent for stage, spent in counts.stages.items()}
        yield family("dzflow_operations_total", counts.operations)
        yield family("dzflow_refused_total", {(kind,): n for kind, n in counts.refused.items()})
        yield histogram("dzflow_operation_seconds", {(): counts.latency}, LATENCY_BOUNDS)
        yield histogram("dzflow_operation_stage_seconds", stages, STEP_BOUNDS)
        yield family(
            "dzflow_stage_seconds_total", {stage: spent.sum for stage, spent in stages.items()}
        )
        yield family("dzflow_operations_queued", queued)
        yield family("dzflow_operations_in_flight", in_flight)
        yield family("dzflow_tasks_sent_total", counts.tasks_sent)
        yield family(
            "dzflow_tasks_answered_total",
            {(outcome,): n for outcome, n in counts.tasks_done.items()},
        )
        kinds = {("add",): counts.adds, ("modify",): counts.modifies, ("delete",): counts.deletes}
        yield family("dzflow_flow_operations_total", kinds)
        yield family("dzflow_adopted_total", counts.adopted)
        yield family("dzflow_expired_total", counts.expired)
        yield family("dzflow_trace_rows_dropped_total", self._dispatcher.trace_rows_dropped)

    def _configurators(self) -> Iterator[Metric]:
        views = self._dispatcher.status.configurators()
        up = {(view.id,): float(view.state == "up") for view in views}
        yield family("dzflow_configurator_up", up)
        for spec, name in (
            ("dzflow_configurator_partitions", "partitions"),
            ("dzflow_configurator_queued", "queued"),
            ("dzflow_configurator_active", "active"),
        ):
            yield family(spec, {(view.id,): getattr(view, name) for view in views})

    def _partitions(self) -> Iterator[Metric]:
        views = self._dispatcher.status.partitions()
        for spec, name in (
            ("dzflow_partition_queued", "queued"),
            ("dzflow_partition_active", "active"),
            ("dzflow_partition_entries", "entries"),
            ("dzflow_partition_tasks_total", "tasks"),
        ):
            yield family(spec, {(view.id, view.space): getattr(view, name) for view in views})
        waiting = {(view.id, view.space): float(view.state == "waiting") for view in views}
        yield family("dzflow_partition_waiting", waiting)

    def _switches(self, health: Health) -> Iterator[Metric]:
        yield family("dzflow_switches", health.switches)
        yield family("dzflow_switches_up", health.switches_up)
        found = Counter(one.kind for one in self._dispatcher.status.differences())
        kinds = get_args(DifferenceKind)
        yield family("dzflow_network_differences", {(kind,): found[kind] for kind in kinds})
        heard = self._dispatcher.host_proposals.summary()
        hosts = {("proposed",): heard.proposed, ("rejected",): heard.rejected}
        yield family("dzflow_host_proposals", hosts)
        views = self._dispatcher.status.switches()
        up = {(view.id,): float(view.state == "up") for view in views}
        yield family("dzflow_switch_up", up)

    def _etcd(self, health: Health) -> Iterator[Metric]:
        counts = self._dispatcher.metrics
        yield family("dzflow_etcd_up", float(health.etcd.ok))
        yield histogram("dzflow_etcd_check_seconds", {(): counts.etcd_checks}, STEP_BOUNDS)
        yield family("dzflow_etcd_check_failures_total", counts.etcd_failures)
        removed = {(kind,): counts.removed_early[kind] for kind in ("finished", "keys")}
        yield family("dzflow_removed_early_total", removed)


def _used_by_configurators(loads: Mapping[str, Load]) -> Iterator[Metric]:
    memory = {(name,): load.memory for name, load in loads.items()}
    yield family("dzflow_configurator_memory_bytes", memory)
    used = {(name,): load.cpu_s for name, load in loads.items()}
    yield family("dzflow_configurator_cpu_seconds_total", used)


def _counted_by_configurators(counters: dict[str, ConfiguratorCounters]) -> Iterator[Metric]:
    batches = {
        (name, outcome): getattr(each, outcome)
        for name, each in counters.items()
        for outcome in _OUTCOMES
    }
    yield family("dzflow_configurator_batches_total", batches)
    waiting = {(name,): each.waiting for name, each in counters.items()}
    yield family("dzflow_configurator_undefined_tasks", waiting)
    waits = {(name,): each.lock_waits for name, each in counters.items()}
    yield histogram("dzflow_lock_wait_seconds", waits, STEP_BOUNDS)


def _counted_by_southbound(counters: list[SouthboundCounters]) -> Iterator[Metric]:
    switches: dict[tuple[str, str], SwitchCounters] = {
        (switch, each.southbound): found
        for each in counters
        for switch, found in each.switches.items()
    }
    batches = {
        (*names, outcome): getattr(found, outcome)
        for names, found in switches.items()
        for outcome in _OUTCOMES
    }
    yield family("dzflow_switch_batches_total", batches)
    for spec, name in (
        ("dzflow_switch_flow_operations_total", "operations"),
        ("dzflow_switch_repairs_total", "repairs"),
        ("dzflow_switch_connections_total", "connections"),
    ):
        yield family(spec, {names: getattr(found, name) for names, found in switches.items()})
    pushes = {(each.southbound,): each.pushes for each in counters}
    yield histogram("dzflow_southbound_push_seconds", pushes, STEP_BOUNDS)


def _migrations(counts: MigrationMetrics) -> Iterator[Metric]:
    outcomes = {(outcome,): counts.outcomes[outcome] for outcome in MIGRATION_OUTCOMES}
    yield family("dzflow_migrations_total", outcomes)
    yield histogram("dzflow_migration_held_seconds", {(): counts.held_back}, STEP_BOUNDS)
    yield family("dzflow_migration_held_requests_total", counts.requests_held)


def _plans(counts: PlanMetrics) -> Iterator[Metric]:
    outcomes = {(outcome,): counts.outcomes[outcome] for outcome in PLAN_OUTCOMES}
    yield family("dzflow_map_plans_total", outcomes)
    steps = {(outcome,): counts.steps[outcome] for outcome in STEP_OUTCOMES}
    yield family("dzflow_map_steps_total", steps)


def _jobs(known: JobMetrics) -> Iterator[Metric]:
    outcomes = {(outcome,): known.outcomes.get(outcome, 0) for outcome in JOB_OUTCOMES}
    yield family("dzflow_jobs_total", outcomes)
    success = {} if known.last_success is None else {(): known.last_success}
    yield family("dzflow_job_success_time_seconds", success)


def _health(health: Health) -> Iterator[Metric]:
    yield family("dzflow_ready", float(health.ready))
    impaired: Counter[str] = Counter(each.kind for each in health.impaired)
    yield family("dzflow_impaired", {(kind,): impaired[kind] for kind in _IMPAIRED})


def _store(store: StoreView | None) -> Iterator[Metric]:
    """How full etcd's database is, once that is known."""
    if store is None:
        return
    yield family("dzflow_etcd_size_bytes", store.size)
    yield family("dzflow_etcd_in_use_bytes", store.in_use)
    yield family("dzflow_etcd_quota_bytes", store.quota)
    yield family("dzflow_etcd_full", float(store.level == "full"))
    yield family("dzflow_etcd_refusing", float(store.level in ("refusing", "full")))
    kept = {("finished",): store.finished_records, ("keys",): store.idempotency_keys}
    yield family("dzflow_kept", kept)
    sizes = {("finished",): store.finished_bytes, ("keys",): store.idempotency_bytes}
    yield family("dzflow_kept_bytes", sizes)
