"""The span of an operation, in the trace of the call that asked for it."""

from configurators.store.model import Record
from configurators.tracing import MOST_SPANS, Span
from dispatcher.requests.operation import Operation


def begin_span(operation: Operation, call: Span, place: int) -> None:
    """Begin the span of the operation at this place of a call; only the first ones have one."""
    if place < MOST_SPANS:
        name = f"{operation.action} {operation.kind}"
        operation.span = call.child(name, {"dzflow.host": operation.host})


def end_span(operation: Operation, outcome: str, record: Record | None = None) -> None:
    """End the span of an operation, if it has one; `record` is how its record is now."""
    span = operation.span
    if span is None:
        return
    operation.span = None
    span.set({"dzflow.outcome": outcome})
    if record is not None:
        rollout = operation.rollout
        span.set(
            {
                "dzflow.record": record.id,
                "dzflow.space": record.space,
                "dzflow.partitions": len(list(rollout.partitions)),
                "dzflow.flow_operations": rollout.flow_ops,
            }
        )
    span.end("" if outcome in ("done", "superseded", "handed over") else outcome)
