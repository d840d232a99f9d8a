"""Traces of requests across processes: what parts can do with them, and how their contexts travel.

Traces are off by default: then there is no tracer (None), no message has a context, and all that a
part does is to look whether there is one. `api/start/telemetry.py` has the tracer that is used.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

MOST_SPANS = 10
"""The most elements of one call, and the most requests of one slice, that have spans of their own.
Without a bound, a call with 1,000 elements would be a trace that nobody can read."""

Attributes = Mapping[str, str | int | float]


class Span(Protocol):
    """A step of a trace that is recorded, from now until `end`."""

    @property
    def context(self) -> bytes:
        """What a message carries, so that another process can continue the trace."""

    def child(self, name: str, attributes: Attributes) -> "Span":
        """Begin a step of this step."""

    def set(self, attributes: Attributes) -> None:
        """Add attributes; they never contain secrets or filters."""

    def event(self, name: str) -> None:
        """Note that something happens now."""

    def end(self, error: str = "", name: str = "") -> None:
        """The step is over; with an error, it has failed. A name replaces the first one."""


class Tracer(Protocol):
    """Begins spans, of the traces that are sampled."""

    def accept(self, name: str, traceparent: str) -> Span | None:
        """Begin the first span for a caller's request; None if its trace is not sampled.

        It continues the trace of `traceparent` (the header of W3C Trace Context), if that is valid.
        """

    def begin(
        self, name: str, attributes: Attributes, parent: bytes = b"", links: Sequence[bytes] = ()
    ) -> Span | None:
        """Begin a span, of a new trace if it has no parent; None if its trace is not sampled.

        `parent` and `links` are contexts of other spans.
        """
