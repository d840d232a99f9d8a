"""Collects spans in memory, for tests of traces."""

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

from api.start.telemetry import OpenTelemetryTracer
from tests.support import until_sync


class Spans:
    """A tracer whose spans can be read as soon as they have ended."""

    def __init__(self, share: float = 1.0) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(ParentBased(TraceIdRatioBased(share)), shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = OpenTelemetryTracer(provider)

    def all(self) -> tuple[ReadableSpan, ...]:
        """All spans that have ended."""
        return self._exporter.get_finished_spans()

    def of(self, trace: int) -> list[ReadableSpan]:
        """The spans of one trace that have ended."""
        return [span for span in self.all() if span.context.trace_id == trace]

    def complete(self, trace: int, *roots: str) -> list[ReadableSpan]:
        """The spans of a trace, once spans of these names have ended."""
        until_sync(lambda: set(roots) <= {span.name for span in self.of(trace)})
        return self.of(trace)


def named(spans: list[ReadableSpan], name: str) -> list[ReadableSpan]:
    """The spans of a name."""
    return [span for span in spans if span.name == name]


def parent_of(span: ReadableSpan) -> int:
    """The id of the parent of a span; 0 if it has none."""
    return span.parent.span_id if span.parent else 0
