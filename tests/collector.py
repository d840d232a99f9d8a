"""A collector of traces on loopback: takes what exporters send by OTLP over HTTP."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from msgspec import Struct
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Received(Struct, frozen=True):
    """A span as the collector got it, with the service that sent it."""

    service: str
    name: str
    trace: bytes
    id: bytes
    parent: bytes


class Collector:
    """What was received so far."""

    def __init__(self) -> None:
        self.url = ""
        self.spans: list[Received] = []
        self.headers: list[dict[str, str]] = []

    def of(self, trace: int) -> list[Received]:
        """The spans of one trace."""
        return [span for span in self.spans if int.from_bytes(span.trace) == trace]

    def take(self, body: bytes) -> None:
        """Take one message of an exporter."""
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            about = {each.key: each.value.string_value for each in resource.resource.attributes}
            for scope in resource.scope_spans:
                for span in scope.spans:
                    self.spans.append(
                        Received(
                            about["service.name"],
                            span.name,
                            span.trace_id,
                            span.span_id,
                            span.parent_span_id,
                        )
                    )


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector that listens while the context lasts."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            collector.headers.append(dict(self.headers))
            collector.take(body)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector.url = f"http://127.0.0.1:{server.server_address[1]}/v1/traces"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()
