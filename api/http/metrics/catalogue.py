"""All metrics: name, type, unit, labels and meaning. Whatever `/metrics` shows is described here.

The reference page is written from this (`reference.py`), and the dashboard and the alerts in
`monitor/` are checked against it.
"""

from typing import Literal

from msgspec import Struct

Origin = Literal["process", "system"]
"""Counted by each API process for itself, so that the sum over all API processes counts; or known
of the whole system, so that every API process says the same."""


class MetricSpec(Struct, frozen=True):
    """A metric. The name of a counter ends in `_total`, as Prometheus shows it."""

    name: str
    type: Literal["counter", "gauge", "histogram"]
    unit: str
    text: str
    labels: tuple[str, ...] = ()
    origin: Origin = "process"


class Section(Struct, frozen=True):
    """Metrics of one subject."""

    title: str
    metrics: tuple[MetricSpec, ...]


def _counter(
    name: str, unit: str, text: str, labels: str = "", origin: Origin = "process"
) -> MetricSpec:
    return MetricSpec(name, "counter", unit, text, tuple(labels.split()), origin)


def _gauge(
    name: str, unit: str, text: str, labels: str = "", origin: Origin = "process"
) -> MetricSpec:
    return MetricSpec(name, "gauge", unit, text, tuple(labels.split()), origin)


def _histogram(name: str, text: str, labels: str = "", origin: Origin = "process") -> MetricSpec:
    return MetricSpec(name, "histogram", "seconds", text, tuple(labels.split()), origin)


_HTTP = (
    _counter(
        "dzflow_http_requests_total",
        "requests",
        "HTTP requests that were answered.",
        "route status",
    ),
    _histogram("dzflow_http_request_seconds", "Duration of HTTP requests.", "route"),
    _gauge("dzflow_http_in_flight", "requests", "HTTP requests in progress."),
    _gauge("dzflow_http_connections", "connections", "Connections of clients."),
    _counter(
        "dzflow_http_connections_closed_total",
        "connections",
        "Connections that were closed while idle for others, or that found no room.",
        "reason",
    ),
    _counter(
        "dzflow_batch_elements_total",
        "requests",
        "Elements of batches, by the status of each.",
        "route status",
    ),
)
_REQUESTS = (
    _counter(
        "dzflow_operations_total", "requests", "Requests that have ended.", "kind action outcome"
    ),
    _counter("dzflow_refused_total", "requests", "Requests that were refused.", "type"),
    _histogram("dzflow_operation_seconds", "Time from a request to its end."),
    _histogram(
        "dzflow_operation_stage_seconds", "Time that a request has spent in each stage.", "stage"
    ),
    _counter(
        "dzflow_stage_seconds_total",
        "seconds",
        "The sums of dzflow_operation_stage_seconds, under their former name.",
        "stage",
    ),
    _gauge("dzflow_operations_queued", "requests", "Requests that wait to be begun."),
    _gauge("dzflow_operations_in_flight", "requests", "Requests that have begun and not ended."),
    _counter("dzflow_tasks_sent_total", "tasks", "Tasks that were sent to configurators."),
    _counter(
        "dzflow_tasks_answered_total",
        "tasks",
        "Answers of configurators to tasks; `done` means acknowledged by all switches.",
        "outcome",
    ),
    _counter(
        "dzflow_flow_operations_total",
        "operations",
        "Flow operations that requests have caused and switches have acknowledged.",
        "kind",
    ),
    _counter("dzflow_adopted_total", "requests", "Requests adopted from dead dispatchers."),
    _counter("dzflow_expired_total", "records", "Records that have expired."),
    _counter(
        "dzflow_trace_rows_dropped_total",
        "rows",
        "Rows of request traces that were dropped: the storage is too slow, full, or unavailable.",
    ),
)
_PARTITIONS = (
    _gauge(
        "dzflow_configurator_up",
        "0 or 1",
        "Whether a configurator runs and is connected.",
        "configurator",
        "system",
    ),
    _gauge(
        "dzflow_configurator_partitions",
        "partitions",
        "Partitions that a configurator owns.",
        "configurator",
        "system",
    ),
    _gauge(
        "dzflow_configurator_queued",
        "tasks",
        "Tasks that wait or are in work at a configurator.",
        "configurator",
        "system",
    ),
    _gauge(
        "dzflow_configurator_active",
        "records",
        "Records with something in the partitions of a configurator.",
        "configurator",
        "system",
    ),
    _gauge(
        "dzflow_configurator_memory_bytes",
        "bytes",
        "Resident memory of a configurator's process.",
        "configurator",
        "system",
    ),
    _counter(
        "dzflow_configurator_cpu_seconds_total",
        "seconds",
        "Processor time of a configurator's process.",
        "configurator",
        "system",
    ),
    _counter(
        "dzflow_configurator_batches_total",
        "batches",
        "Batches that a configurator has sent to one switch, by outcome.",
        "configurator outcome",
        "system",
    ),
    _gauge(
        "dzflow_configurator_undefined_tasks",
        "tasks",
        "Tasks that wait for a switch that has not said what it has done.",
        "configurator",
        "system",
    ),
    _histogram(
        "dzflow_lock_wait_seconds",
        "Time until a configurator had the lock of a partition (mode sea).",
        "configurator",
        "system",
    ),
    _gauge(
        "dzflow_partition_queued",
        "tasks",
        "Tasks that wait or are in work in a partition.",
        "partition space",
        "system",
    ),
    _gauge(
        "dzflow_partition_active",
        "records",
        "Records with something in a partition.",
        "partition space",
        "system",
    ),
    _gauge(
        "dzflow_partition_entries",
        "entries",
        "Flow entries of a partition.",
        "partition space",
        "system",
    ),
    _counter(
        "dzflow_partition_tasks_total",
        "tasks",
        "Tasks that the owner of a partition has done; starts again with each owner.",
        "partition space",
        "system",
    ),
    _gauge(
        "dzflow_partition_waiting",
        "0 or 1",
        "Whether a partition waits for a switch, or for a process.",
        "partition space",
        "system",
    ),
    _counter(
        "dzflow_migrations_total",
        "migrations",
        "Attempts to move a partition to another configurator, by outcome.",
        "outcome",
    ),
    _histogram(
        "dzflow_migration_held_seconds",
        "Time for which a dispatcher has held back the requests of a partition that moved.",
    ),
    _counter(
        "dzflow_migration_held_requests_total",
        "requests",
        "Requests that were held back because their partition moved.",
    ),
    _counter(
        "dzflow_map_plans_total",
        "plans",
        "Plans for partition maps that have ended, by outcome.",
        "outcome",
    ),
    _counter(
        "dzflow_map_steps_total",
        "steps",
        "Changes of a partition map by a plan, by outcome.",
        "outcome",
    ),
    _counter(
        "dzflow_jobs_total",
        "runs",
        "Runs of the scheduled Spark job that have ended, by outcome.",
        "outcome",
        "system",
    ),
    _gauge(
        "dzflow_job_success_time_seconds",
        "seconds",
        "When the scheduled Spark job last had a result, since 1970.",
        "",
        "system",
    ),
)
_SWITCHES = (
    _gauge("dzflow_switches", "switches", "Switches of the network.", "", "system"),
    _gauge("dzflow_switches_up", "switches", "Switches that are up.", "", "system"),
    _gauge(
        "dzflow_network_differences",
        "differences",
        "Where the network is not what it should be, by discovery; as `dzflow topology` shows.",
        "kind",
        "system",
    ),
    _gauge(
        "dzflow_host_proposals",
        "hosts",
        "Hosts that were heard and are not in the network, by state: proposed or rejected.",
        "state",
        "system",
    ),
    _gauge(
        "dzflow_switch_up",
        "0 or 1",
        "Whether a switch is connected and holds what it should.",
        "switch",
        "system",
    ),
    _counter(
        "dzflow_switch_batches_total",
        "batches",
        "Batches of flow operations that were sent to a switch, by outcome.",
        "switch southbound outcome",
        "system",
    ),
    _counter(
        "dzflow_switch_flow_operations_total",
        "operations",
        "Flow operations in batches that a switch has acknowledged.",
        "switch southbound",
        "system",
    ),
    _counter(
        "dzflow_switch_repairs_total",
        "operations",
        "Operations that reconciliation has sent to a switch to repair its tables.",
        "switch southbound",
        "system",
    ),
    _counter(
        "dzflow_switch_connections_total",
        "connections",
        "How often a switch has connected and become usable.",
        "switch southbound",
        "system",
    ),
    _histogram(
        "dzflow_southbound_push_seconds",
        "Time from the arrival of a batch until all its switches have answered.",
        "southbound",
        "system",
    ),
)
_HEALTH = (
    _gauge("dzflow_ready", "0 or 1", "Whether requests can be served.", "", "system"),
    _gauge(
        "dzflow_impaired",
        "objects",
        "Switches, partitions, processes and stored documents that cannot be used.",
        "kind",
        "system",
    ),
    _gauge(
        "dzflow_worker_start_time_seconds",
        "seconds",
        "When a configurator or southbound process started, in seconds since 1970.",
        "worker",
        "system",
    ),
    _gauge(
        "dzflow_ray_up",
        "0 or 1",
        "Whether Ray runs, which restarts workers that die.",
        "",
        "system",
    ),
    _gauge("dzflow_etcd_up", "0 or 1", "Whether etcd answers this API process."),
    _histogram(
        "dzflow_etcd_check_seconds",
        "Time until etcd has answered a check (a linearizable read, every two seconds).",
    ),
    _counter(
        "dzflow_etcd_check_failures_total",
        "checks",
        "Checks that etcd has not answered, or not in time.",
    ),
    _gauge("dzflow_etcd_size_bytes", "bytes", "Size of etcd's database.", "", "system"),
    _gauge(
        "dzflow_etcd_in_use_bytes",
        "bytes",
        "Size without what was freed and will be used again.",
        "",
        "system",
    ),
    _gauge(
        "dzflow_etcd_quota_bytes", "bytes", "The size at which etcd refuses writes.", "", "system"
    ),
    _gauge("dzflow_etcd_full", "0 or 1", "Whether etcd refuses writes.", "", "system"),
    _gauge(
        "dzflow_etcd_refusing",
        "0 or 1",
        "Whether new requests are refused, because etcd is nearly full.",
        "",
        "system",
    ),
    _gauge(
        "dzflow_kept",
        "records",
        "Finished records and idempotency keys that are kept.",
        "kind",
        "system",
    ),
    _gauge("dzflow_kept_bytes", "bytes", "Their size.", "kind", "system"),
    _counter(
        "dzflow_removed_early_total",
        "records",
        "Finished records and idempotency keys that were removed to make room.",
        "kind",
    ),
)
_EVENTS = (
    _counter(
        "dzflow_reported_events_total",
        "events",
        "Events as counted and reported by applications.",
        "space counter",
    ),
)

SECTIONS = (
    Section("HTTP", _HTTP),
    Section("Requests", _REQUESTS),
    Section("Partitions and configurators", _PARTITIONS),
    Section("Switches", _SWITCHES),
    Section("Health, etcd and Ray", _HEALTH),
    Section("Events", _EVENTS),
)

LABELS = {
    "action": "`begin`, `end`, `update`, or `reindex` if no user has asked for it",
    "configurator": "a configurator that runs or owns partitions",
    "counter": "a counter of the SDK: `published`, `received`, `delivered`, `unwanted` and so on",
    "kind": "of records: `subscription`, `advertisement`; of flow operations: `add`, `modify`,"
    " `delete`; of impaired objects: `switch`, `partition`, `process`, `document`; of what is"
    " kept: `finished`, `keys`",
    "outcome": "of requests: `done`, `failed`, `superseded`; of tasks: these and `moved`; of"
    " batches: `acknowledged`, `refused`, `undefined`; of migrations: `done`, `failed`; of"
    " plans: `done`, `aborted`; of their steps: `done`, `undone`;"
    " of jobs: `done`, `failed`, `late`, `interrupted`",
    "partition": "a partition of a space",
    "reason": "`evicted` or `refused`",
    "route": "method and path template of an endpoint; `other` for paths that do not exist",
    "southbound": "a southbound process that is connected",
    "space": "a space that exists",
    "stage": "a stage of a request, as in the `timing` of its record",
    "state": "of hosts that were heard: `proposed`, `rejected`",
    "status": "an HTTP status",
    "switch": "a switch of the network",
    "type": "the type of a problem, as in the answer to the caller",
    "worker": "a configurator or southbound process that is connected",
}
"""The values that each label can have. Hosts and ids of records are never among them."""

METRICS = {spec.name: spec for section in SECTIONS for spec in section.metrics}
"""All metrics by name, in the order of the reference page."""
