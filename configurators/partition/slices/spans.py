"""The spans of a slice, which serves many requests, in the traces of these requests."""

from collections.abc import Sequence
from typing import Self

from configurators.streams.messages import Task
from configurators.tracing import MOST_SPANS, Attributes, Span, Tracer


class SliceSpans:
    """One span in the trace of each sampled request of a slice, at most `MOST_SPANS`.

    The first span has what follows from the slice, such as the pushes to switches, and links to the
    requests of the others. Each of the others links to the first.
    """

    def __init__(self, first: Span, others: Sequence[Span]) -> None:
        self._first = first
        self._others = others

    @classmethod
    def begin(cls, tracer: Tracer, partition: str, tasks: Sequence[Task]) -> Self | None:
        """Begin the spans of a slice; None if none of its tasks belongs to a sampled trace."""
        contexts = [task.trace for task in tasks if task.trace][:MOST_SPANS]
        if not contexts:
            return None
        attributes: Attributes = {"dzflow.partition": partition, "dzflow.tasks": len(tasks)}
        first = tracer.begin("slice", attributes, contexts[0], contexts[1:])
        if first is None:
            return None
        link = [first.context]
        begun = [tracer.begin("slice", attributes, each, link) for each in contexts[1:]]
        return cls(first, [span for span in begun if span is not None])

    @property
    def context(self) -> bytes:
        """The context of what follows from the slice."""
        return self._first.context

    def end(self, error: str = "") -> None:
        """The slice is over; with an error, it was not carried out."""
        for span in (self._first, *self._others):
            span.end(error)
