"""What the results of calls prove."""

import httpx
import pytest

from tests.robustness.calls import CallResult, Calls, updated

NEW, OLD = {"price": {"min": 1}}, {"price": {"min": 2}}


@pytest.mark.parametrize(
    ("status", "outcome", "filter", "concluded"),
    [
        (202, "ok", NEW, "ok"),
        (202, "ok", OLD, "unknown"),  # taken back, or overtaken
        (202, "unknown", OLD, "unknown"),
        (202, "failed", OLD, "failed"),
        (200, "ok", NEW, "ok"),
        # Answered as done: if it was not, the checker has to find that.
        (200, "ok", OLD, "ok"),
    ],
)
def test_accepted_update_is_done_only_if_its_filter_is_there(
    status: int, outcome: str, filter: object, concluded: str
) -> None:
    result = CallResult(outcome, {"filter": filter}, status)  # type: ignore[arg-type]
    assert updated(result, NEW).outcome == concluded


async def test_accepted_update_is_followed_until_it_is_settled() -> None:
    looks = iter([(OLD, True), (OLD, True), (OLD, False)])

    def answer(request: httpx.Request) -> httpx.Response:
        filter, updating = next(looks)
        status = 202 if request.method == "PUT" else 200
        record = {"id": "s1", "state": "active", "filter": filter, "updating": updating}
        return httpx.Response(status, json=record)

    transport = httpx.MockTransport(answer)
    async with httpx.AsyncClient(transport=transport, base_url="http://service") as http:
        calls = Calls(http)
        result = await calls.once("PUT", "/subscriptions/s1", {"filter": NEW})
        result = await calls.settle(result, result.record, lambda record: not record["updating"])
    assert next(looks, None) is None
    assert updated(result, NEW).outcome == "unknown"
