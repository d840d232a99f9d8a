"""Calls are repeated until they are answered, and carried out once."""

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
from dzflow.sdk.rest import Access
from dzflow.sdk.talk import Talk
from tests.dzflow.sdk.service import STOCKS, Service
from tests.dzflow.sdk.support import at


def failing(kind: str, times: int, path: str) -> object:
    """A fault that strikes so many calls of a path."""
    left = iter(range(times))
    return lambda _, called: kind if called == path and next(left, None) is not None else None


def hasty(url: str) -> Rest:
    """A client that gives up after five looks at the clock, however long they take."""
    rest = Rest(url)
    rest._talk = Talk(count().__next__, timeout=5.0)
    return rest


@pytest.mark.parametrize("kind", ["busy", "lost"])
def test_a_call_that_is_not_answered_is_repeated_and_carried_out_once(
    service: Service, kind: str
) -> None:
    service.faults.append(failing(kind, 3, "/subscribe"))  # type: ignore[arg-type]
    with at(service, "h1") as application:
        subscription = application.subscribe("stocks", {})
        assert set(service.records) == {subscription.id}
        keys = [key for method, path, key in service.calls if path == "/subscribe"]
        assert len(keys) == 4
        assert len(set(keys)) == 1
        assert keys[0] is not None
        service.faults.append(failing(kind, 2, "/unsubscribe"))  # type: ignore[arg-type]
        subscription.close()
        assert service.records == {}


def test_each_call_has_a_key_of_its_own(service: Service) -> None:
    with Rest(service.url) as rest:
        ids = {rest.begin("subscription", "h1", "stocks", {})["id"] for _ in range(3)}
        assert len(ids) == 3
        for name in ids:
            rest.end("subscription", name)
    keys = [key for method, _, key in service.calls if method == "POST"]
    assert len(set(keys)) == 6


def test_it_ends_when_the_time_is_up(service: Service) -> None:
    service.faults.append(failing("busy", 10**6, "/subscribe"))  # type: ignore[arg-type]
    with hasty(service.url) as rest, pytest.raises(Busy, match="wait a little"):
        rest.begin("subscription", "h1", "stocks", {})
    with hasty("http://127.0.0.1:1") as nowhere, pytest.raises(Unreachable):
        nowhere.spaces()


def test_a_request_that_takes_longer_is_waited_for(service: Service) -> None:
    service.slow = 1
    with Rest(service.url) as rest:
        record = rest.begin("subscription", "h1", "stocks", {})
        assert record["state"] == "active"
        assert service.count("GET", f"/requests/{record['id']}") == 1


def test_a_request_that_takes_too_long_is_withdrawn(service: Service) -> None:
    service.slow = 1
    service.faults.append(
        lambda _, path: (
            service.records[path.rpartition("/")[2]].update(state="pending", reason="s2 is down")
            if path.startswith("/requests/")
            else None
        )
    )
    with hasty(service.url) as rest, pytest.raises(NotAcknowledged, match="s2 is down"):
        rest.begin("subscription", "h1", "stocks", {})
    assert service.records == {}


def test_what_switches_refuse_is_told(service: Service) -> None:
    service.refuse_records = "s1: table full"
    with at(service, "h1") as application:
        with pytest.raises(RequestFailed, match="table full"):
            application.subscribe("stocks", {})
        service.refuse_records = ""
        assert application.subscribe("stocks", {}).id


def test_problems_keep_what_the_control_plane_said(service: Service) -> None:
    with Rest(service.url) as rest:
        with pytest.raises(InvalidRequest) as caught:
            rest.begin("subscription", "h1", "stocks", "prize > 1")
        assert caught.value.status == 422
        assert "prize" in caught.value.problem["detail"]
        with pytest.raises(NotFound):
            rest.space("nothing")
        with pytest.raises(Refused):
            rest.get("/no/such/path")


def test_spaces_and_records_are_read_and_written(service: Service) -> None:
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
    assert repr(Access("http://localhost:8080", "secret")) == "Access('http://localhost:8080')"


def test_a_url_is_checked() -> None:
    with pytest.raises(BadInput, match="http://"):
        Rest("localhost:8080")
    with pytest.raises(BadInput, match="no certificates"):
        Rest("https://localhost", ca="/no/such/file")
