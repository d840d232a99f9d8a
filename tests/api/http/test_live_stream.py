"""Server-sent events: which changes each caller gets, limits, and the end of a stream."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from api.http.app_settings import Token
from tests.rest import SCHEMA, problem_of, subscription
from tests.stack import Stack


class Reader:
    """Reads the events of a stream."""

    def __init__(self, response: httpx.Response) -> None:
        self._lines = response.iter_lines()
        # From this line on everything is heard.
        assert next(self._lines) == ": dzflow"

    def next(self) -> tuple[str, Any]:
        """The next event: its type and data."""
        kind = ""
        for line in self._lines:
            name, _, value = line.partition(": ")
            if name == "event":
                kind = value
            elif name == "data":
                return kind, json.loads(value)
        raise AssertionError("the stream has ended")

    def until(self, kind: str, **members: object) -> Any:
        """The data of the next event of a type with these members."""
        while True:
            found, data = self.next()
            if found == kind and members.items() <= data.items():
                return data

    def ended(self) -> bool:
        """Read on to the end."""
        return all(True for _ in self._lines)


@contextmanager
def reading(client: httpx.Client, query: str = "") -> Iterator[Reader]:
    with client.stream("GET", f"/stream{query}", timeout=60) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["x-request-id"]
        reader = Reader(response)  # kept: the connection is closed when nobody reads any more
        yield reader


def test_changes_of_records_are_sent(client: httpx.Client, space: str) -> None:
    with reading(client, "?types=record") as reader:
        record = client.post("/subscribe", json=subscription(space)).json()
        told = reader.until("record", id=record["id"], state="active")
        assert told["filter"] == record["filter"]
        client.delete(f"/subscriptions/{record['id']}")
        reader.until("record", id=record["id"], state="removed")


def test_changes_of_spaces_are_sent_in_the_form_of_get(client: httpx.Client, space: str) -> None:
    name = f"{space}-2"
    with reading(client, "?types=space") as reader:
        client.put(f"/spaces/{name}", json=SCHEMA).raise_for_status()
        told = reader.until("space", name=name)
        assert told["attributes"] == client.get(f"/spaces/{name}").json()["attributes"]
        client.delete(f"/spaces/{name}").raise_for_status()
        assert reader.until("space", name=name, deleted=True)


def test_only_the_wanted_types_are_sent(client: httpx.Client, space: str) -> None:
    with reading(client, "?types=space,network") as reader:
        client.post("/subscribe", json=subscription(space)).raise_for_status()
        client.put(f"/spaces/{space}-3", json=SCHEMA).raise_for_status()
        assert reader.next()[0] in ("space", "network")


def test_unknown_types_are_refused(client: httpx.Client) -> None:
    for odd in ("", "records", "record,", "record,nope"):
        assert problem_of(client.get(f"/stream?types={odd}"), 422)["field"] == "types"


def test_a_host_gets_changes_of_its_own_records_only(
    guarded: httpx.Client, client: httpx.Client, space: str, stack: Stack
) -> None:
    guarded.headers["Authorization"] = f"Bearer {stack.tokens['h1']}"
    problem_of(guarded.get("/stream?types=switch"), 403)
    with reading(guarded) as reader:
        client.post("/subscribe", json=subscription(space)).raise_for_status()
        mine = client.post("/subscribe", json=subscription(space, host="h1")).json()
        while True:
            kind, data = reader.next()
            if kind == "record":
                assert data["host"] == "h1"
                assert data["id"] == mine["id"]
                break


def test_keep_alives_are_sent_without_changes(client: httpx.Client) -> None:
    with client.stream("GET", "/stream?types=network", timeout=60) as response:
        for line in response.iter_lines():
            if line == ": still here":
                break


def test_streams_are_bounded(stack: Stack) -> None:
    with (
        stack.serving(max_streams=1) as url,
        httpx.Client(base_url=url, timeout=60) as client,
        reading(client, "?types=network"),
    ):
        answer = client.get("/stream")
        assert problem_of(answer, 503)["type"] == "/problems/overloaded"
        assert answer.headers["retry-after"]


def test_streams_end_when_the_server_stops(stack: Stack) -> None:
    with httpx.Client(timeout=60) as client:
        with stack.serving() as url:
            client.base_url = httpx.URL(url)
            stream = client.stream("GET", "/stream?types=network", timeout=60)
            reader = Reader(stream.__enter__())
        assert reader.ended()
        stream.__exit__(None, None, None)


def test_streams_of_one_host_are_bounded_too(stack: Stack) -> None:
    tokens = (Token("one", "host", "h1"), Token("two", "host", "h2"))
    with (
        stack.serving(max_host_streams=1, tokens=tokens) as url,
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        client.headers["Authorization"] = "Bearer one"
        with reading(client, "?types=network"):
            found = problem_of(client.get("/stream"), 503)
            assert found["type"] == "/problems/overloaded"
            client.headers["Authorization"] = "Bearer two"
            with reading(client, "?types=network"):
                pass


def test_streams_leave_room_for_requests(stack: Stack) -> None:
    with (
        stack.serving(max_requests=1) as url,
        httpx.Client(base_url=url, timeout=60) as client,
        reading(client, "?types=network"),
    ):
        assert client.get("/spaces").status_code == 200


def test_records_are_sampled_if_the_reader_asks_for_it(client: httpx.Client, space: str) -> None:
    with reading(client, "?types=record&most=1") as reader:
        batch = [subscription(space, filter=f"price > {n}") for n in range(20)]
        client.post("/subscribe", json=batch).raise_for_status()
        kind, data = reader.next()
        assert (kind, data["space"]) == ("record", space)
        while kind != "skipped":
            kind, data = reader.next()
        assert data["records"] > 0


def test_a_sample_of_a_host_counts_its_own_records_only(
    guarded: httpx.Client, client: httpx.Client, space: str, stack: Stack
) -> None:
    guarded.headers["Authorization"] = f"Bearer {stack.tokens['h1']}"
    with reading(guarded, "?types=record&most=1000") as reader:
        client.post("/subscribe", json=[subscription(space)] * 10).raise_for_status()
        mine = client.post("/subscribe", json=subscription(space, host="h1")).json()
        kind, data = reader.next()
        assert (kind, data["id"]) == ("record", mine["id"])


def test_a_sample_of_nothing_is_refused(client: httpx.Client) -> None:
    for odd in ("0", "-1", "many", "10001"):
        assert problem_of(client.get(f"/stream?most={odd}"), 422)["field"] == "most"
