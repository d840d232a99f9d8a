"""Traces with OpenTelemetry: spans are sent to a collector by OTLP over HTTP.

Import it only where traces are on: the packages of the extra `otel` are not needed otherwise.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version
from threading import Thread

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from api.start.settings.sections.processes import TelemetrySettings
from configurators.tracing import Attributes, Span

_EXPORT_SECONDS = 5.0  # until a collector that does not answer is given up
_CLOSE_SECONDS = 2.0  # for the last spans, when a process ends
_TRACE, _SPAN = 16, 8  # bytes of ids

_HEADER = TraceContextTextMapPropagator()


class OpenTelemetryTracer:
    """Begins spans of a provider, which decides which traces are sampled."""

    def __init__(self, provider: TracerProvider) -> None:
        self._tracer = provider.get_tracer("dzflow", version("dzflow"))

    def accept(self, name: str, traceparent: str) -> Span | None:
        """Begin the first span for a caller's request; None if its trace is not sampled.

        It continues the trace of `traceparent` (the header of W3C Trace Context), if that is valid.
        """
        parent = _HEADER.extract({"traceparent": traceparent}, Context())
        return self._recorded(self._tracer.start_span(name, parent, kind=trace.SpanKind.SERVER))

    def begin(
        self, name: str, attributes: Attributes, parent: bytes = b"", links: Sequence[bytes] = ()
    ) -> Span | None:
        """Begin a span, of a new trace if it has no parent; None if its trace is not sampled.

        `parent` and `links` are contexts of other spans.
        """
        return self._recorded(
            self._tracer.start_span(
                name,
                _context(parent) if parent else Context(),
                attributes=attributes,
                links=[trace.Link(_unpack(each)) for each in links],
            )
        )

    def child(self, parent: trace.Span, name: str, attributes: Attributes) -> "OpenTelemetrySpan":
        """Begin a step of a span."""
        context = trace.set_span_in_context(parent, Context())
        return OpenTelemetrySpan(
            self, self._tracer.start_span(name, context, attributes=attributes)
        )

    def _recorded(self, span: trace.Span) -> Span | None:
        return OpenTelemetrySpan(self, span) if span.is_recording() else None


class OpenTelemetrySpan:
    """A span that is recorded."""

    def __init__(self, tracer: OpenTelemetryTracer, span: trace.Span) -> None:
        self._tracer = tracer
        self._span = span
        self.context = _pack(span.get_span_context())

    def child(self, name: str, attributes: Attributes) -> Span:
        """Begin a step of this step."""
        return self._tracer.child(self._span, name, attributes)

    def set(self, attributes: Attributes) -> None:
        """Add attributes."""
        self._span.set_attributes(attributes)

    def event(self, name: str) -> None:
        """Note that something happens now."""
        self._span.add_event(name)

    def end(self, error: str = "", name: str = "") -> None:
        """The step is over; with an error, it has failed. A name replaces the first one."""
        if name:
            self._span.update_name(name)
        if error:
            self._span.set_status(trace.StatusCode.ERROR, error)
        self._span.end()


def _pack(context: trace.SpanContext) -> bytes:
    """A context as messages carry it: both ids, and the flags."""
    ids = context.trace_id.to_bytes(_TRACE) + context.span_id.to_bytes(_SPAN)
    return ids + bytes((context.trace_flags,))


def _unpack(packed: bytes) -> trace.SpanContext:
    """The context that another process has sent; one that is not valid if it makes no sense."""
    flags = trace.TraceFlags(packed[-1] if len(packed) == _TRACE + _SPAN + 1 else 0)
    trace_id = int.from_bytes(packed[:_TRACE])
    span_id = int.from_bytes(packed[_TRACE : _TRACE + _SPAN])
    return trace.SpanContext(trace_id, span_id, is_remote=True, trace_flags=flags)


def _context(parent: bytes) -> Context:
    return trace.set_span_in_context(trace.NonRecordingSpan(_unpack(parent)), Context())


@asynccontextmanager
async def open_tracer(
    telemetry: TelemetrySettings, process: str, id: str
) -> AsyncIterator[OpenTelemetryTracer]:
    """A tracer that sends spans to the collector in the background.

    Spans that the collector does not take in time are dropped, and the log says so: traces never
    slow requests down. `process` is the kind of this process, `id` its name.
    """
    about = {
        "service.namespace": "dzflow",
        "service.name": f"dzflow-{process}",
        "service.instance.id": id,
        "service.version": version("dzflow"),
    }
    provider = TracerProvider(
        ParentBased(TraceIdRatioBased(telemetry.share)),
        Resource.create(about),
        shutdown_on_exit=False,
    )
    exporter = OTLPSpanExporter(
        telemetry.endpoint,
        certificate_file=str(telemetry.ca) if telemetry.ca else None,
        headers={name: each.get_secret_value() for name, each in telemetry.headers.items()},
        timeout=_EXPORT_SECONDS,
    )
    provider.add_span_processor(BatchSpanProcessor(exporter))
    try:
        yield OpenTelemetryTracer(provider)
    finally:
        # It may wait for a collector that does not answer, so that it gets a thread of its own.
        closing = Thread(target=provider.shutdown, name="last spans", daemon=True)
        closing.start()
        await asyncio.to_thread(closing.join, _CLOSE_SECONDS)
