"""The metrics of one API process: what it counts itself, and the collectors of all others."""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from api.http.metrics.catalogue import METRICS
from api.http.metrics.control_plane import ControlPlane
from api.http.metrics.families import family
from api.http.metrics.reports import Reports
from dispatcher.dispatcher import Dispatcher
from dzflow.process.connections import ConnectionTable

MEDIA_TYPE = CONTENT_TYPE_PLAIN_0_0_4
_TIMES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)

# A second series for each counter, which nobody reads.
disable_created_metrics()  # type: ignore[no-untyped-call]


class HttpMetrics:
    """Counts requests, and the counters that applications report."""

    def __init__(self, most_series: int = 10_000) -> None:
        self.since = time.time()
        self.registry = CollectorRegistry()
        self._requests = self._counter("dzflow_http_requests_total")
        spec = METRICS["dzflow_http_request_seconds"]
        self._seconds = Histogram(
            spec.name, spec.text, spec.labels, buckets=_TIMES, registry=self.registry
        )
        spec = METRICS["dzflow_http_in_flight"]
        self.in_flight = Gauge(spec.name, spec.text, registry=self.registry)
        self._elements = self._counter("dzflow_batch_elements_total")
        self._reported = self._counter("dzflow_reported_events_total")
        self.reports = Reports(most_series)
        """What applications have reported."""

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def elements(self, route: str, counts: Mapping[int, int]) -> None:
        """Count the elements of a batch, by status."""
        for status, count in counts.items():
            self._elements.labels(route, str(status)).inc(count)

    def report(self, host: str, counters: Mapping[str, Mapping[str, int]]) -> None:
        """Add the counters of an application of a host since its last report."""
        for series, count in self.reports.add(host, counters, time.time()):
            self._reported.labels(*series).inc(count)

    def watch(self, dispatcher: Dispatcher) -> None:
        """Add metrics of the whole control plane, as this dispatcher sees it."""
        self.registry.register(ControlPlane(dispatcher))

    def watch_connections(self, table: ConnectionTable[Any]) -> None:
        """Add metrics of the connections of clients."""
        self.registry.register(_Connections(table))

    def watch_ray(self, is_up: Callable[[], bool | None]) -> None:
        """Add whether Ray runs; None if that is not known."""
        self.registry.register(_Ray(is_up))

    def text(self) -> bytes:
        """All metrics in Prometheus's text format."""
        return generate_latest(self.registry)

    def _counter(self, name: str) -> Counter:
        spec = METRICS[name]
        return Counter(spec.name, spec.text, spec.labels, registry=self.registry)


class _Connections(Collector):
    def __init__(self, table: ConnectionTable[Any]) -> None:
        self._table = table

    def collect(self) -> Iterator[Metric]:
        """The current state."""
        table = self._table
        yield family("dzflow_http_connections", len(table))
        closed = {("evicted",): table.evicted, ("refused",): table.refused}
        yield family("dzflow_http_connections_closed_total", closed)


class _Ray(Collector):
    def __init__(self, is_up: Callable[[], bool | None]) -> None:
        self._is_up = is_up

    def collect(self) -> Iterator[Metric]:
        """The current state."""
        up = self._is_up()
        yield family("dzflow_ray_up", {} if up is None else float(up))
