"""The spans of a slice that serves several requests."""

from configurators.partition.slices.spans import SliceSpans
from configurators.streams.messages import Task
from configurators.tracing import MOST_SPANS
from tests.spans import Spans, parent_of


def requests(spans: Spans, count: int) -> list[bytes]:
    """The contexts of so many requests, each in a trace of its own."""
    found = []
    for _ in range(count):
        span = spans.tracer.begin("request", {})
        assert span
        found.append(span.context)
    return found


def task(number: int, trace: bytes = b"") -> Task:
    return Task(f"s1-{number}", 1, "h1", False, b"", b"", trace)


def test_each_sampled_request_has_a_span_and_the_first_one_has_the_pushes() -> None:
    spans = Spans()
    contexts = requests(spans, 3)
    tasks = [task(0), *(task(n, each) for n, each in enumerate(contexts, 1)), task(9)]
    found = SliceSpans.begin(spans.tracer, "1.0/0", tasks)
    assert found
    found.end()
    first, *others = spans.all()
    ids = [int.from_bytes(context[16:24]) for context in contexts]
    assert [parent_of(span) for span in (first, *others)] == ids
    assert len({span.context.trace_id for span in (first, *others)}) == 3
    assert found.context[16:24] == first.context.span_id.to_bytes(8)
    assert [link.context.span_id for link in first.links] == ids[1:]
    for span in others:
        assert [link.context.span_id for link in span.links] == [first.context.span_id]
    for span in (first, *others):
        assert span.attributes == {"dzflow.partition": "1.0/0", "dzflow.tasks": 5}


def test_a_slice_without_sampled_requests_has_no_span() -> None:
    spans = Spans()
    assert SliceSpans.begin(spans.tracer, "1.0/0", [task(0), task(1)]) is None
    assert SliceSpans.begin(spans.tracer, "1.0/0", [task(0, b"\x01" * 24 + b"\x00")]) is None
    assert spans.all() == ()


def test_the_spans_of_a_large_slice_are_bounded() -> None:
    spans = Spans()
    tasks = [task(n, each) for n, each in enumerate(requests(spans, 2 * MOST_SPANS))]
    found = SliceSpans.begin(spans.tracer, "1.0/0", tasks)
    assert found
    found.end("refused")
    assert len(spans.all()) == MOST_SPANS
    assert all(not span.status.is_ok for span in spans.all())
