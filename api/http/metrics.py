"""What Prometheus can read of this process and of what it knows of the others."""

from collections import Counter as Counts
from collections.abc import Iterable, Iterator, Mapping
from math import inf

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
from dispatcher.reports.metrics import LATENCY_BOUNDS

MEDIA_TYPE = CONTENT_TYPE_PLAIN_0_0_4
_MOST_SERIES = 10_000
_TIMES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """Counts requests and what applications report."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "dzflow_http_requests",
            "Calls that were answered.",
            ("route", "status"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "dzflow_http_request_seconds",
            "How long answers took.",
            ("route",),
            buckets=_TIMES,
            registry=self.registry,
        )
        self.in_flight = Gauge(
            "dzflow_http_in_flight", "Calls that are being answered.", registry=self.registry
        )
        self._elements = Counter(
            "dzflow_batch_elements",
            "Elements of batches, by the status of each.",
            ("route", "status"),
            registry=self.registry,
        )
        self._reported = Counter(
            "dzflow_reported_events",
            "What applications have counted, as they report it.",
            ("space", "counter"),
            registry=self.registry,
        )
        self._series: set[tuple[str, str]] = set()

    def answered(self, route: str, status: int, seconds: float) -> None:
        """A call was answered."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def elements(self, route: str, counts: Mapping[int, int]) -> None:
        """A batch was answered: so many elements with each status."""
        for status, count in counts.items():
            self._elements.labels(route, str(status)).inc(count)

    def report(self, counters: Mapping[str, Mapping[str, int]]) -> None:
        """An application has counted this since its last report."""
        for space, counts in counters.items():
            for name, count in counts.items():
                series = (space, name)
                if series not in self._series:
                    if len(self._series) >= _MOST_SERIES:
                        series = ("other", "other")
                    self._series.add(series)
                self._reported.labels(*series).inc(count)

    def watch(self, dispatcher: Dispatcher) -> None:
        """Tell of the whole control plane, too, as the dispatcher sees it."""
        self.registry.register(_ControlPlane(dispatcher))

    def text(self) -> bytes:
        """All of it in Prometheus's text form."""
        return generate_latest(self.registry)


class _ControlPlane(Collector):
    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    def describe(self) -> Iterable[Metric]:
        """Nothing: what there is depends on the state."""
        return []

    def _counted(self) -> Iterator[Metric]:
        """What the dispatcher has counted since it started."""
        counts = self._dispatcher.metrics
        yield _counter(
            "dzflow_operations",
            "Requests at their end.",
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
            "dzflow_operation_seconds", "From a request to its end.", labels=()
        )
        latency.add_metric((), buckets, counts.latency_sum)
        yield latency
        for name, text, value in (
            (
                "flow_operations",
                "Flow operations that switches have acknowledged.",
                counts.flow_ops,
            ),
            ("adopted", "Requests taken over from dispatchers that died.", counts.adopted),
            ("expired", "Records whose time was up.", counts.expired),
        ):
            yield _counter(f"dzflow_{name}", text, {(): value})

    def collect(self) -> Iterator[Metric]:
        """The state as it is now."""
        yield from self._counted()
        health = self._dispatcher.health()
        yield _gauge("dzflow_ready", "Whether requests can be served.", {(): float(health.ready)})
        impaired = Counts(each.kind for each in health.impaired)
        yield _gauge(
            "dzflow_impaired",
            "Switches, partitions and processes that cannot be used.",
            {(kind,): impaired[kind] for kind in ("switch", "partition", "process")},
            ("kind",),
        )
        yield _gauge("dzflow_switches", "Switches of the network.", {(): health.switches})
        yield _gauge("dzflow_switches_up", "Switches that are up.", {(): health.switches_up})
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
