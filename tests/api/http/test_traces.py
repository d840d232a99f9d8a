"""One trace for each request, from the caller through all processes to the switches."""

import itertools
import subprocess
import sys
from collections.abc import Iterator

import httpx
import pytest
from opentelemetry.trace import SpanKind, StatusCode

from configurators.ownership.ownership import Mode
from configurators.tracing import MOST_SPANS
from tests.etcd import TestEtcd
from tests.rest import SCHEMA, advertisement, subscription
from tests.spans import Spans, named, parent_of
from tests.stack import Stack, StackOptions
from tests.support import until_sync

_NUMBERS = itertools.count(1)
CALLER = 0xABCD
SAMPLED, NOT_SAMPLED = 1, 0


def header(trace: int, flags: int = SAMPLED) -> dict[str, str]:
    return {"traceparent": f"00-{trace:032x}-{CALLER:016x}-{flags:02x}"}


class Traced:
    """A control plane whose processes all trace."""

    def __init__(self, stack: Stack, spans: Spans, client: httpx.Client) -> None:
        self.stack = stack
        self.spans = spans
        self.client = client

    def space(self) -> str:
        """A new space with a publisher."""
        name = f"traced-{next(_NUMBERS)}"
        assert self.client.put(f"/spaces/{name}", json=SCHEMA).status_code == 201
        assert self.client.post("/advertise", json=advertisement(name)).status_code == 201
        return name

    def new_trace(self) -> int:
        return 0x5EED0000 + next(_NUMBERS)


@pytest.fixture(scope="module", params=["sna", "sea"])
def traced(etcd_server: TestEtcd, request: pytest.FixtureRequest) -> Iterator[Traced]:
    mode: Mode = request.param
    spans = Spans(share=0.0)  # what is not asked for is not there
    options = StackOptions(mode=mode, tracer=spans.tracer)
    with (
        Stack(etcd_server.access(), options) as stack,
        httpx.Client(base_url=stack.url, timeout=60) as client,
    ):
        yield Traced(stack, spans, client)


def test_a_request_is_one_trace_from_the_caller_to_the_switches(traced: Traced) -> None:
    space, trace = traced.space(), traced.new_trace()
    made = traced.client.post("/subscribe", json=subscription(space), headers=header(trace))
    assert made.status_code == 201
    spans = traced.spans.complete(trace, "POST /subscribe")
    (call,) = named(spans, "POST /subscribe")
    (operation,) = named(spans, "begin subscription")
    slices, pushes = named(spans, "slice"), named(spans, "push")
    assert len(spans) == 2 + len(slices) + len(pushes)
    assert parent_of(call) == CALLER
    assert call.kind is SpanKind.SERVER
    assert parent_of(operation) == call.context.span_id
    assert {parent_of(each) for each in slices} == {operation.context.span_id}
    assert {parent_of(each) for each in pushes} == {each.context.span_id for each in slices}
    assert {each.attributes["dzflow.partition"] for each in slices if each.attributes} == set(
        made.json()["partitions"]
    )
    assert all(each.status.status_code is StatusCode.UNSET for each in spans)
    assert [event.name for event in operation.events] == ["written", "acknowledged"]


def test_attributes_say_what_happened(traced: Traced) -> None:
    space, trace = traced.space(), traced.new_trace()
    made = traced.client.post("/subscribe", json=subscription(space), headers=header(trace)).json()
    spans = traced.spans.complete(trace, "POST /subscribe")
    (call,) = named(spans, "POST /subscribe")
    assert call.attributes == {
        "http.request.method": "POST",
        "http.route": "/subscribe",
        "http.response.status_code": 201,
    }
    (operation,) = named(spans, "begin subscription")
    assert operation.attributes == {
        "dzflow.host": "h2",
        "dzflow.outcome": "done",
        "dzflow.record": made["id"],
        "dzflow.space": space,
        "dzflow.partitions": len(made["partitions"]),
        "dzflow.flow_operations": made["flow_ops"],
    }
    for slice in named(spans, "slice"):
        assert slice.attributes
        assert slice.attributes["dzflow.tasks"] == 1
    for push in named(spans, "push"):
        assert push.attributes
        assert push.attributes["dzflow.acknowledged"] == push.attributes["dzflow.switches"]


def test_updates_and_removals_are_traced_too(traced: Traced) -> None:
    space = traced.space()
    id = traced.client.post("/subscribe", json=subscription(space)).json()["id"]
    path = f"/subscriptions/{id}"
    filter = {"filter": {"price": {"lte": 7}}}
    for method, body, route, name in (
        ("PUT", filter, "PUT /subscriptions/{id}", "update subscription"),
        ("DELETE", None, "DELETE /subscriptions/{id}", "end subscription"),
    ):
        trace = traced.new_trace()
        done = traced.client.request(method, path, json=body, headers=header(trace))
        assert done.status_code == 200
        spans = traced.spans.complete(trace, route)
        assert len(named(spans, name)) == 1
        assert named(spans, "push")


def test_a_batch_is_one_trace_with_spans_of_its_first_elements(traced: Traced) -> None:
    space, trace, size = traced.space(), traced.new_trace(), 3 * MOST_SPANS
    body = [subscription(space, filter={"price": {"gte": n}}) for n in range(size)]
    assert traced.client.post("/subscribe", json=body, headers=header(trace)).status_code == 207
    spans = traced.spans.complete(trace, "POST /subscribe")
    (call,) = named(spans, "POST /subscribe")
    assert call.attributes
    assert call.attributes["dzflow.elements"] == size
    operations = named(spans, "begin subscription")
    assert len(operations) == MOST_SPANS
    assert {parent_of(each) for each in operations} == {call.context.span_id}
    ids = {each.context.span_id for each in operations}
    slices = named(spans, "slice")
    assert {parent_of(each) for each in slices} <= ids
    # What was carried out together is linked: the first span of a slice has the push, if there is
    # something to push, and links to the other requests; the spans of these link to the first.
    links = {each.context.span_id: {link.context.span_id for link in each.links} for each in slices}
    first = {id for id, linked in links.items() if linked <= ids}
    pushing = {parent_of(each) for each in named(spans, "push")}
    assert pushing
    assert pushing <= first
    for id in links.keys() - first:
        assert len(links[id] & first) == 1


def test_a_caller_that_does_not_sample_is_not_traced(traced: Traced) -> None:
    space, trace = traced.space(), traced.new_trace()
    before = len(traced.spans.all())
    for headers in (header(trace, NOT_SAMPLED), {"traceparent": "00-nonsense-01"}, {}):
        made = traced.client.post("/subscribe", json=subscription(space), headers=headers)
        assert made.status_code == 201
    assert len(traced.spans.all()) == before


def test_a_refused_request_ends_its_span_with_an_error(traced: Traced) -> None:
    space, trace = traced.space(), traced.new_trace()
    body = subscription(space, filter={"colour": {"eq": 1}})
    refused = traced.client.post("/subscribe", json=body, headers=header(trace))
    assert refused.status_code == 422
    spans = traced.spans.complete(trace, "POST /subscribe")
    (operation,) = named(spans, "begin subscription")
    assert operation.status.status_code is StatusCode.ERROR
    assert operation.attributes
    assert operation.attributes["dzflow.outcome"] == "refused"
    assert named(spans, "POST /subscribe")[0].status.status_code is StatusCode.UNSET


def test_spans_have_no_secrets_and_no_filters(traced: Traced) -> None:
    space, trace = traced.space(), traced.new_trace()
    token = traced.stack.tokens["h2"]
    headers = header(trace) | {"Authorization": f"Bearer {token}", "Idempotency-Key": "key-of-h2"}
    body = subscription(space, filter={"price": {"gte": 421.75}}, label="private-label")
    url = f"{traced.stack.guarded_url}/subscribe"
    made = httpx.post(url, json=body, headers=headers, timeout=60)
    assert made.status_code == 201
    spans = traced.spans.complete(trace, "POST /subscribe")
    assert named(spans, "push")
    text = " ".join(span.to_json() for span in spans)
    for secret in (token, "key-of-h2", "421.75", "private-label"):
        assert secret not in text


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
def test_calls_that_monitors_repeat_are_not_traced(traced: Traced, path: str) -> None:
    trace = traced.new_trace()
    assert traced.client.get(path, headers=header(trace)).status_code == 200
    assert traced.client.get("/spaces", headers=header(trace)).status_code == 200
    assert [span.name for span in traced.spans.complete(trace, "GET /spaces")] == ["GET /spaces"]


def test_without_a_caller_the_share_decides(etcd_server: TestEtcd) -> None:
    spans = Spans(share=1.0)
    options = StackOptions(tracer=spans.tracer)
    with (
        Stack(etcd_server.access(), options) as stack,
        httpx.Client(base_url=stack.url, timeout=60) as client,
    ):
        client.put("/spaces/all", json=SCHEMA)
        assert client.post("/subscribe", json=subscription("all")).status_code == 201
        calls = [span for span in spans.all() if span.name == "PUT /spaces/{name}"]
        assert [parent_of(call) for call in calls] == [0]

        def all_whole() -> bool:
            declared = [span for span in spans.all() if span.name == "declare"]
            roots = {span.context.trace_id for span in declared if not parent_of(span)}
            whole = {span.context.trace_id for span in declared} == roots
            return whole and len(declared) > len(roots) > 0  # the southbound process has a part

        # Declarations serve no request, so they are traces of their own, which may end later.
        until_sync(all_whole)


OFF = """
import sys
import configurators.process, configurators.southbound.process
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
import api.start.actors.configurator, api.start.actors.southbound, api.start.api_server
from api.start.parts import common
from api.start.settings.settings import Settings
import asyncio
async def off():
    async with common.tracing(Settings(), "api", "d1") as tracer:
        assert tracer is None
asyncio.run(off())
optional = ("opentelemetry.sdk", "opentelemetry.exporter")
found = [name for name in sys.modules if name.startswith(optional)]
assert not found, found
"""


def test_nothing_is_imported_while_traces_are_off() -> None:
    done = subprocess.run([sys.executable, "-c", OFF], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
