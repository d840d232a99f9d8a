"""The outermost layer: internal errors, slow readers, too many requests, request ids."""

import asyncio
import json
import logging

import pytest
from starlette.types import Message, Receive, Scope, Send

from api.http.app_settings import ApiSettings
from api.http.border.edge import Edge, SlowReader
from api.http.border.request_ids import request_id
from api.http.metrics.registry import HttpMetrics
from tests.api.http.border.bare import answer, ended, serving
from tests.support import WAIT

SCOPE: Scope = {"type": "http", "method": "GET", "path": "/x", "headers": []}


async def receive() -> Message:
    return {"type": "http.disconnect"}


def answers(edge: Edge, scope: Scope = SCOPE) -> list[Message]:
    """What is sent for one request."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(edge(dict(scope), receive, send))
    return sent


@pytest.mark.parametrize("error", [RuntimeError("a secret"), TimeoutError(), KeyError("x")])
def test_an_internal_error_is_a_problem_without_details(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async def app(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise error

    with caplog.at_level(logging.ERROR):
        start, body = answers(Edge(app, ApiSettings(), HttpMetrics()))
    headers = dict(start["headers"])
    problem = json.loads(body["body"])
    assert start["status"] == problem["status"] == 500
    assert headers[b"content-type"] == b"application/problem+json"
    assert problem["request_id"] == headers[b"x-request-id"].decode()
    assert "secret" not in body["body"].decode()
    assert any(record.exc_info for record in caplog.records)


def test_the_connection_of_a_slow_reader_is_closed() -> None:
    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(_message: Message) -> None:
        await asyncio.Event().wait()

    edge = Edge(app, ApiSettings(send_timeout=0.01), HttpMetrics())
    with pytest.raises(SlowReader):
        asyncio.run(edge(dict(SCOPE), receive, send))


def test_the_id_of_a_request_is_known_while_it_is_served() -> None:
    seen: list[str] = []

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        seen.append(request_id.get())
        await send({"type": "http.response.start", "status": 204, "headers": []})

    edge = Edge(app, ApiSettings(), HttpMetrics())
    for given, kept in ((b"mine-1", True), (b"x" * 65, False), (b"a\nb", False), (b"", False)):
        start = answers(edge, {**SCOPE, "headers": [(b"x-request-id", given)]})[0]
        assert dict(start["headers"])[b"x-request-id"] == seen[-1].encode()
        assert (seen[-1].encode() == given) is kept
    assert request_id.get() == ""


async def test_too_many_requests_at_once_are_refused_except_for_health() -> None:
    go, inside = asyncio.Event(), asyncio.Event()
    statuses: list[int] = []

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        inside.set()
        await go.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    edge = Edge(app, ApiSettings(max_requests=1), HttpMetrics())
    first = asyncio.create_task(edge(dict(SCOPE), receive, send))
    await inside.wait()
    await edge(dict(SCOPE), receive, send)
    go.set()
    await edge({**SCOPE, "path": "/healthz"}, receive, send)
    await first
    assert sorted(statuses) == [200, 200, 503]


async def test_a_server_that_ends_answers_what_is_in_progress_and_keeps_no_connection() -> None:
    entered, go_on, draining = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001
        if scope["path"] == "/slow":
            entered.set()
            await go_on.wait()
        await answer(send, b"done")

    edge = Edge(app, ApiSettings(), HttpMetrics(), draining=draining.is_set)
    async with serving(edge) as bare, asyncio.timeout(WAIT):
        get = b"GET %b HTTP/1.1\r\nhost: localhost\r\n\r\n"
        waiting, other = bare.connection(get % b"/slow"), bare.connection()
        async with waiting as (slow, _), other as (reader, writer):
            await entered.wait()
            writer.write(get % b"/quick")
            head = await reader.readuntil(b"\r\n\r\n")
            assert b"connection: close" not in head, "the connection stays for the next request"
            await reader.readexactly(len(b"done"))
            draining.set()
            writer.write(get % b"/quick")
            assert b"connection: close" in await ended(reader)
            bare.server.should_exit = True
            go_on.set()
            assert (await ended(slow)).endswith(b"done"), "what was in progress has been answered"
