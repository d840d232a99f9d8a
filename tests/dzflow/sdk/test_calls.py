"""Calls are repeated until they are answered, and carried out once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

import pytest

from dzflow.errors import BadInput
from dzflow.sdk import Rest
from dzflow.sdk.errors import (
    Busy,
    InvalidRequest,
    NotAcknowledged,
    NotFound,
    Refused,
    RequestFailed,
    Unreachable,
)
from dzflow.sdk.rest.access import ApiAccess
from dzflow.sdk.rest.api_protocol import ApiProtocol
from dzflow.sdk.rest.async_rest import HttpTransport
from tests.dzflow.sdk.fake_service import STOCKS, FakeService
from tests.dzflow.sdk.support import at, fails


@asynccontextmanager
async def hasty(url: str) -> AsyncIterator[ApiProtocol]:
    """A client that gives up after five looks at the clock, however long they take."""
    transport = HttpTransport(ApiAccess(url))
    yield ApiProtocol(transport.send, asyncio.sleep, count().__next__, timeout=5.0)
    await transport.close()


@pytest.mark.parametrize("kind", ["busy", "lost"])
def test_a_call_that_is_not_answered_is_repeated_and_carried_out_once(
    service: FakeService, kind: str
) -> None:
    service.faults.append(fails(kind, 3, "/subscribe"))
    with at(service, "h1") as application:
        subscription = application.subscribe("stocks", {})
        assert set(service.records) == {subscription.id}
        keys = [key for method, path, key in service.calls if path == "/subscribe"]
        assert len(keys) == 4
        assert len(set(keys)) == 1
        assert keys[0] is not None
        service.faults.append(fails(kind, 2, "/unsubscribe"))
        subscription.close()
        assert service.records == {}


def test_each_call_has_a_key_of_its_own(service: FakeService) -> None:
    with Rest(service.url) as rest:
        ids = {rest.begin("subscription", "h1", "stocks", {})["id"] for _ in range(3)}
        assert len(ids) == 3
        for name in ids:
            rest.end("subscription", name)
    keys = [key for method, _, key in service.calls if method == "POST"]
    assert len(set(keys)) == 6


async def test_a_call_ends_with_its_timeout(service: FakeService) -> None:
    service.faults.append(fails("busy", 10**6, "/subscribe"))
    async with hasty(service.url) as rest:
        with pytest.raises(Busy, match="wait a little"):
            await rest.begin("subscription", "h1", "stocks", {})
    async with hasty("http://127.0.0.1:1") as nowhere:
        with pytest.raises(Unreachable):
            await nowhere.spaces()


def test_a_request_that_takes_longer_is_awaited(service: FakeService) -> None:
    service.control.late = 1
    with Rest(service.url) as rest:
        record = rest.begin("subscription", "h1", "stocks", {})
        assert record["state"] == "active"
        assert service.count("GET", f"/requests/{record['id']}") == 1


async def test_a_request_that_takes_too_long_is_withdrawn(service: FakeService) -> None:
    service.control.late = 1
    service.faults.append(
        lambda _, path: (
            service.control.records[path.rpartition("/")[2]].update(
                state="pending", reason="s2 is down"
            )
            if path.startswith("/requests/")
            else None
        )
    )
    async with hasty(service.url) as rest:
        with pytest.raises(NotAcknowledged, match="s2 is down"):
            await rest.begin("subscription", "h1", "stocks", {})
    assert service.records == {}


def test_a_refusal_of_the_switches_is_an_error(service: FakeService) -> None:
    service.control.refuse_records = "s1: table full"
    with at(service, "h1") as application:
        with pytest.raises(RequestFailed, match="table full"):
            application.subscribe("stocks", {})
        service.control.refuse_records = ""
        assert application.subscribe("stocks", {}).id


def test_errors_keep_the_problem_that_the_control_plane_named(service: FakeService) -> None:
    with Rest(service.url) as rest:
        with pytest.raises(InvalidRequest) as caught:
            rest.begin("subscription", "h1", "stocks", "prize > 1")
        assert caught.value.status == 422
        assert "prize" in caught.value.problem["detail"]
        with pytest.raises(NotFound):
            rest.space("nothing")
        with pytest.raises(Refused):
            rest.get("/no/such/path")


def test_spaces_and_records_are_read_and_written(service: FakeService) -> None:
    with Rest(service.url) as rest:
        assert rest.put_space("more", STOCKS)["number"] == 2
        assert [space["name"] for space in rest.spaces()] == ["stocks", "more"]
        assert rest.space("more")["trees"] == [0]
        assert [host["id"] for host in rest.hosts()] == ["h1", "h2", "h3"]
        record = rest.begin("advertisement", "h2", "more", "price > 3", label="x", ttl=100.0)
        assert rest.records("advertisement", host="h2") == [record]
        assert rest.records("advertisement", host="h1") == []
        assert rest.update("advertisement", record["id"], {})["filter"] == {}
        assert rest.renew("advertisement", record["id"])["renewed"] == 1
        assert rest.explain("more", "price > 3")["flows"] == []
        assert rest.end("advertisement", record["id"])["state"] == "removed"


def test_a_token_is_not_shown() -> None:
    shown = repr(ApiAccess("http://localhost:8080", "secret"))
    assert shown == "ApiAccess('http://localhost:8080')"


def test_a_url_is_checked() -> None:
    with pytest.raises(BadInput, match="http://"):
        Rest("localhost:8080")
    with pytest.raises(BadInput, match="cannot read certificates"):
        Rest("https://localhost", ca="/no/such/file")
    for token in ("geheim\n", "gehéim"):
        with pytest.raises(BadInput, match="the token has") as refused:
            Rest("http://localhost", token)
        assert "geh" not in str(refused.value)
