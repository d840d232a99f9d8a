"""Metrics for Prometheus: of this process, and of the control plane as its dispatcher sees it."""

from collections import Counter as Counts
from collections.abc import Iterable, Iterator, Mapping
from math import inf
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from dispatcher.dispatcher import Dispatcher
from dispatcher.metrics import LATENCY_BOUNDS
from dispatcher.views import StoreView
from dzflow.connections import ConnectionTable

MEDIA_TYPE = CONTENT_TYPE_PLAIN_0_0_4
_TIMES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """Counts requests, and the counters that applications report."""

    def __init__(self, most_series: int = 10_000) -> None:
        self._most_series = most_series
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "dzflow_http_requests",
            "HTTP requests that were answered.",
            ("route", "status"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "dzflow_http_request_seconds",
            "Duration of HTTP requests.",
            ("route",),
            buckets=_TIMES,
            registry=self.registry,
        )
        self.in_flight = Gauge(
            "dzflow_http_in_flight", "HTTP requests in progress.", registry=self.registry
        )
        self._elements = Counter(
            "dzflow_batch_elements",
            "Elements of batches, by the status of each.",
            ("route", "status"),
            registry=self.registry,
        )
        self._reported = Counter(
            "dzflow_reported_events",
            "Events as counted and reported by applications.",
            ("space", "counter"),
            registry=self.registry,
        )
        self._series: set[tuple[str, str]] = set()

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def elements(self, route: str, counts: Mapping[int, int]) -> None:
        """Count the elements of a batch, by status."""
        for status, count in counts.items():
            self._elements.labels(route, str(status)).inc(count)

    def report(self, counters: Mapping[str, Mapping[str, int]]) -> None:
        """Add the counters of an application since its last report."""
        for space, counts in counters.items():
            for name, count in counts.items():
                series = (space, name)
                if series not in self._series:
                    if len(self._series) >= self._most_series:
                        series = ("other", "other")
                    self._series.add(series)
                self._reported.labels(*series).inc(count)

    def watch(self, dispatcher: Dispatcher) -> None:
        """Add metrics of the whole control plane, as this dispatcher sees it."""
        self.registry.register(_ControlPlane(dispatcher))

    def watch_connections(self, table: ConnectionTable[Any]) -> None:
        """Add metrics of the connections of clients."""
        self.registry.register(_Connections(table))

    def text(self) -> bytes:
        """All metrics in Prometheus's text format."""
        return generate_latest(self.registry)


class _Connections(Collector):
    def __init__(self, table: ConnectionTable[Any]) -> None:
        self._table = table

    def collect(self) -> Iterator[Metric]:
        """The current state."""
        table = self._table
        yield _gauge("dzflow_http_connections", "Connections of clients.", {(): len(table)})
        yield _counter(
            "dzflow_http_connections_closed",
            "Connections that were closed while idle for others, or that found no room.",
            {("evicted",): table.evicted, ("refused",): table.refused},
            ("reason",),
        )


class _ControlPlane(Collector):
    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    def describe(self) -> Iterable[Metric]:
        """Nothing: the series depend on the state."""
        return []

    def _counted(self) -> Iterator[Metric]:
        """Counters of the dispatcher since its start."""
        counts = self._dispatcher.metrics
        yield _counter(
            "dzflow_operations",
            "Requests that have ended.",
            {(*names,): count for names, count in counts.operations.items()},
            ("kind", "action", "outcome"),
        )
        yield _counter(
            "dzflow_refused",
            "Requests that were refused.",
            {(kind,): count for kind, count in counts.refused.items()},
            ("type",),
        )
        yield _counter(
            "dzflow_stage_seconds",
            "Time that requests have spent in each stage.",
            {(stage,): spent / 1e6 for stage, spent in counts.stages.items()},
            ("stage",),
        )
        below, buckets = 0, []
        for bound, count in zip((*LATENCY_BOUNDS, inf), counts.latency, strict=True):
            below += count
            buckets.append(("+Inf" if bound == inf else str(bound), below))
        latency = HistogramMetricFamily(
            "dzflow_operation_seconds", "Time from a request to its end.", labels=()
        )
        latency.add_metric((), buckets, counts.latency_sum)
        yield latency
        for name, text, value in (
            (
                "flow_operations",
                "Flow operations that switches have acknowledged.",
                counts.flow_ops,
            ),
            ("adopted", "Requests adopted from dead dispatchers.", counts.adopted),
            ("expired", "Records that have expired.", counts.expired),
        ):
            yield _counter(f"dzflow_{name}", text, {(): value})
        yield _counter(
            "dzflow_removed_early",
            "Finished records and idempotency keys that were removed to make room.",
            {(kind,): counts.removed_early[kind] for kind in ("finished", "keys")},
            ("kind",),
        )

    def collect(self) -> Iterator[Metric]:
        """The current state."""
        yield from self._counted()
        health = self._dispatcher.health()
        yield _gauge("dzflow_ready", "Whether requests can be served.", {(): float(health.ready)})
        impaired = Counts(each.kind for each in health.impaired)
        yield _gauge(
            "dzflow_impaired",
            "Switches, partitions and processes that cannot be used.",
            {(kind,): impaired[kind] for kind in ("switch", "partition", "process", "document")},
            ("kind",),
        )
        yield _gauge("dzflow_switches", "Switches of the network.", {(): health.switches})
        yield _gauge("dzflow_switches_up", "Switches that are up.", {(): health.switches_up})
        if store := health.store:
            yield from _store(store)
        configurators = self._dispatcher.configurators()
        for name, text in (
            ("partitions", "Partitions that it owns."),
            ("queued", "Tasks that wait."),
            ("active", "Records with something in its partitions."),
        ):
            yield _gauge(
                f"dzflow_configurator_{name}",
                text,
                {(view.id,): getattr(view, name) for view in configurators},
                ("configurator",),
            )
        partitions = self._dispatcher.partitions()
        for name, text in (
            ("queued", "Tasks that wait."),
            ("active", "Records with something in it."),
            ("entries", "Flow entries."),
        ):
            yield _gauge(
                f"dzflow_partition_{name}",
                text,
                {(view.id, view.space): getattr(view, name) for view in partitions},
                ("partition", "space"),
            )


def _store(store: StoreView) -> Iterator[Metric]:
    """How full etcd's database is."""
    for name, text, value in (
        ("size_bytes", "Size of etcd's database.", store.size),
        ("in_use_bytes", "Size without what was freed and will be used again.", store.in_use),
        ("quota_bytes", "The size at which etcd refuses writes.", store.quota),
        ("full", "Whether etcd refuses writes.", store.level == "full"),
        ("refusing", "Whether new requests are refused.", store.level in ("refusing", "full")),
    ):
        yield _gauge(f"dzflow_etcd_{name}", text, {(): float(value)})
    yield _gauge(
        "dzflow_kept",
        "Finished records and idempotency keys that are kept.",
        {("finished",): store.finished_records, ("keys",): store.idempotency_keys},
        ("kind",),
    )
    yield _gauge(
        "dzflow_kept_bytes",
        "Their size.",
        {("finished",): store.finished_bytes, ("keys",): store.idempotency_bytes},
        ("kind",),
    )


def _counter(
    name: str,
    text: str,
    values: Mapping[tuple[str, ...], float],
    labels: tuple[str, ...] = (),
) -> Metric:
    family = CounterMetricFamily(name, text, labels=labels)
    for label, value in values.items():
        family.add_metric(label, value)
    return family


def _gauge(
    name: str,
    text: str,
    values: Mapping[tuple[str, ...], float],
    labels: tuple[str, ...] = (),
) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for label, value in values.items():
        family.add_metric(label, value)
    return family
