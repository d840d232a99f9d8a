"""The REST protocol with scripted answers: no network, no waiting."""

from typing import Any

import pytest

from dzflow.sdk.errors import BadAnswer, NotAcknowledged, RequestFailed, Unreachable
from dzflow.sdk.rest.api_protocol import ApiProtocol, Call, Lost, Reply

RECORD = {"id": "s1-77", "state": "active", "filter": "price > 1"}
PENDING = {**RECORD, "state": "pending"}


class Script:
    """Answers calls with replies in turn (the last one for ever); sleeping advances its clock."""

    def __init__(self, *replies: Reply | Lost, timeout: float = 10.0) -> None:
        self.replies = list(replies)
        self.calls: list[Call] = []
        self.pauses: list[float] = []
        self.now = 0.0
        self.protocol = ApiProtocol(self._send, self._sleep, lambda: self.now, timeout)

    async def _send(self, call: Call) -> Reply | Lost:
        self.calls.append(call)
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


async def begin(script: Script) -> Any:
    return await script.protocol.begin("subscription", "h1", "stocks", "price > 1", ttl=60.0)


async def test_retry_after_says_when_a_call_is_repeated() -> None:
    script = Script(Reply(503, None, 3.0), Reply(429, None, 2.0), Lost("gone"), Reply(201, RECORD))
    assert await begin(script) == RECORD
    assert script.pauses[:2] == [3.0, 2.0]
    assert script.pauses[2] < 1
    assert len(script.calls) == 4
    assert len({call.key for call in script.calls}) == 1


async def test_a_call_is_given_up_when_the_next_attempt_would_be_too_late() -> None:
    script = Script(Lost("no answer from there"))
    with pytest.raises(Unreachable, match="no answer from there"):
        await begin(script)
    assert script.now <= 10.0
    assert max(script.pauses) <= 2.0
    assert len(script.calls) < 20


async def test_an_accepted_request_is_polled_until_it_is_done() -> None:
    script = Script(Reply(202, PENDING), Reply(200, PENDING), Reply(200, RECORD))
    assert await begin(script) == RECORD
    assert [call.path for call in script.calls] == ["/subscribe", *["/requests/s1-77"] * 2]


async def test_a_request_that_fails_later_is_an_error() -> None:
    failed = {**RECORD, "state": "failed", "reason": "s3: table full"}
    script = Script(Reply(202, PENDING), Reply(200, failed))
    with pytest.raises(RequestFailed, match="table full"):
        await begin(script)


async def test_a_request_without_acknowledgement_is_withdrawn() -> None:
    script = Script(Reply(202, {**PENDING, "reason": "s3 is down"}))
    with pytest.raises(NotAcknowledged, match="s3 is down"):
        await begin(script)
    assert script.calls[-1].path == "/unsubscribe"
    assert script.calls[-1].body == {"id": "s1-77", "wait": False}


@pytest.mark.parametrize(("timeout", "wait"), [(5.0, 2.5), (30.0, 10.0)])
async def test_the_wait_for_the_switches_is_shorter_than_the_timeout(
    timeout: float, wait: float
) -> None:
    script = Script(Reply(200, RECORD), timeout=timeout)
    await begin(script)
    await script.protocol.update("subscription", "s1-77", "price > 1")
    script.replies = [Reply(200, {**RECORD, "state": "removed"})]
    await script.protocol.end("subscription", "s1-77")
    assert [call.body["wait"] for call in script.calls] == [wait] * 3
    script.replies = [Reply(207, [{"status": 200}])]
    await script.protocol.end_all("subscription", ["s1-77"], timeout=4.0)
    assert script.calls[-1].body == [{"id": "s1-77", "wait": 2.0}]


async def test_an_update_that_fails_later_is_an_error() -> None:
    updating = {**RECORD, "updating": True}
    refused = {**RECORD, "reason": "s3: table full"}
    script = Script(Reply(202, updating), Reply(200, refused))
    with pytest.raises(RequestFailed, match="table full"):
        await script.protocol.update("subscription", "s1-77", "price > 2")
    done = {**RECORD, "filter": "price > 2"}
    script = Script(Reply(202, updating), Reply(200, done))
    assert await script.protocol.update("subscription", "s1-77", "price > 2") == done


async def test_lists_are_read_page_by_page() -> None:
    one, two, three = ({"id": n} for n in range(3))
    script = Script(Reply(200, {"items": [one, two], "next": "b"}), Reply(200, {"items": [three]}))
    found = await script.protocol.items("/subscriptions", host="h1", space=None)
    assert found == [one, two, three]
    assert [call.params for call in script.calls] == [{"host": "h1"}, {"host": "h1", "after": "b"}]


async def test_many_records_are_ended_in_batches() -> None:
    ids = [f"s1-{n}" for n in range(2_500)]
    script = Script(Reply(207, [{"status": 200}, {"status": 404}]))
    await script.protocol.end_all("subscription", ids, timeout=5.0)
    assert [len(call.body) for call in script.calls] == [1_000, 1_000, 500]


@pytest.mark.parametrize("body", [None, [], "text", {"state": "active"}])
async def test_an_answer_that_is_no_record_is_an_error(body: object) -> None:
    with pytest.raises(BadAnswer, match="URL"):
        await begin(Script(Reply(200, body)))


def test_answers_are_read() -> None:
    assert Reply.read(503, {"retry-after": "7"}, b"<html>") == Reply(503, None, 7.0)
    assert Reply.read(429, {"retry-after": "Mon, 16 Nov"}, b"{}") == Reply(429, {})
    with pytest.raises(BadAnswer, match="not JSON"):
        Reply.read(200, {}, b"<html>")
