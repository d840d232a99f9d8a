"""Bad requests get the documented answer, and change nothing."""

import json
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest

from tests.rest import problem_of, subscription
from tests.stack import Stack

JSON = {"Content-Type": "application/json"}


def nothing_was_made(client: httpx.Client, space: str) -> bool:
    lists = [client.get(f"/{kind}s?space={space}") for kind in ("subscription", "advertisement")]
    return all(page.json()["items"] == [] for page in lists)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"host": None}, "host"),
        ({"host": "h\u0000"}, "host"),
        ({"host": "h\u202e2"}, "host"),
        ({"space": "../etc"}, "space"),
        ({"filter": {"price": {"gte": "cheap"}}}, "price"),
        ({"filter": {"price": {"gt": {}}}}, "price"),
        ({"filter": {"price": {"near": 1}}}, "price"),
        ({"filter": {"price": {"between": [2, 1]}}}, "price"),
        ({"filter": {"\u0000": 1}}, "\u0000"),
        ({"filter": "price >"}, "filter"),
        ({"filter": "price > 1 and price < 0"}, "filter"),
        ({"filter": "(" * 5_000}, "filter"),
        ({"filter": "price > " + "9" * 5_000}, "filter"),
        ({"filter": [{}] * 2_000}, "filter"),
        ({"filter": {"volume": {"in": list(range(5_000))}}}, "volume"),
        ({"filter": [[{}]]}, "filter[0]"),
        ({"wait": "soon"}, "wait"),
        ({"wait": 3_600}, "wait"),
        ({"ttl": -1}, "ttl"),
        ({"label": ["x"]}, "label"),
        ({"extra": 1}, "extra"),
    ],
)
def test_bad_input_is_refused_and_named(
    client: httpx.Client, quiet: str, changes: dict[str, object], field: str
) -> None:
    body = json.dumps(subscription(quiet, **changes))
    for verb in ("/subscribe", "/advertise"):
        problem = problem_of(client.post(verb, content=body, headers=JSON), 422)
        assert problem["field"] == field
        assert problem["errors"][0]["field"] == field
    assert nothing_was_made(client, quiet)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nope",
        b"\x00",
        b'{"host": "\\ud800"}',
        b'{"host": "\xff"}',
        b'{"filter": NaN}',
        b'{"wait": -Infinity}',
        b'{"wait": 1e400}',
        b"[" * 100_000,
        b'[{"filter":' * 1_000,
    ],
)
def test_broken_json_is_refused(client: httpx.Client, quiet: str, body: bytes) -> None:
    for method, path in (
        ("POST", "/subscribe"),
        ("POST", "/unsubscribe"),
        ("POST", "/explain"),
        ("POST", "/reports"),
        ("PUT", f"/spaces/{quiet}"),
        ("PUT", "/hosts/h9"),
        ("PUT", "/subscriptions/s1-0000000000000000"),
    ):
        problem_of(client.request(method, path, content=body, headers=JSON), 400)


def test_huge_numbers_do_no_harm(client: httpx.Client, quiet: str) -> None:
    for number in ("9" * 400, "-" + "9" * 400, "1e308", "0." + "0" * 400 + "1", "-0"):
        text = json.dumps(subscription(quiet)).replace("420", number)
        answer = client.post("/subscribe", content=text, headers=JSON)
        assert answer.status_code in (201, 422), number
        if answer.status_code == 201:
            client.delete(f"/subscriptions/{answer.json()['id']}").raise_for_status()
    assert nothing_was_made(client, quiet)


def test_other_types_of_body_are_refused(client: httpx.Client, quiet: str) -> None:
    body = json.dumps(subscription(quiet))
    for kind in ("text/plain", "application/xml", "multipart/form-data; boundary=x", ""):
        problem_of(client.post("/subscribe", content=body, headers={"Content-Type": kind}), 415)
    problem_of(client.post("/restore", content=body, headers=JSON), 415)
    assert nothing_was_made(client, quiet)


def test_oversized_bodies_are_refused(client: httpx.Client, quiet: str) -> None:
    body = json.dumps(subscription(quiet, label="x" * (9 * 1024 * 1024))).encode()
    problem_of(client.post("/subscribe", content=body, headers=JSON), 413)

    def pieces() -> Iterator[bytes]:
        for at in range(0, len(body), 65_536):
            yield body[at : at + 65_536]

    # The same without a length.
    problem_of(client.post("/subscribe", content=pieces(), headers=JSON), 413)
    assert nothing_was_made(client, quiet)


@pytest.mark.parametrize(
    "path",
    [
        "/nope",
        "/subscriptions/",
        "/subscriptions/nonsense",
        "/subscriptions/%00",
        "/subscriptions/%ff%fe",
        "/subscriptions/s1-0000000000000000",
        "/subscriptions/a1-0000000000000000",
        "/requests/" + "x" * 5_000,
        "/spaces/nope",
        "/spaces/%2e%2e",
        "/switches/%00/flows",
        "/..%2f..%2fetc/passwd",
        "/docs/assets/%2e%2e/%2e%2e/__init__.py",
    ],
)
def test_unknown_paths_and_names_are_not_found(client: httpx.Client, path: str) -> None:
    problem_of(client.get(path), 404)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=many", "limit"),
        ("limit=", "limit"),
        ("limit=1.5", "limit"),
        ("limit=" + "9" * 40, "limit"),
        ("state=null", "state"),
        ("host=a%20b", "host"),
        ("host=h1&host=h2", "host"),
        ("hots=h1", "hots"),
        ("after=" + "x" * 65, "after"),
    ],
)
def test_bad_parameters_are_named(client: httpx.Client, query: str, field: str) -> None:
    assert problem_of(client.get(f"/subscriptions?{query}"), 422)["field"] == field


def test_other_methods_are_refused_and_the_right_ones_named(client: httpx.Client) -> None:
    for path, allowed in (
        ("/subscribe", "POST"),
        ("/subscriptions/x", "DELETE, GET, PUT"),
        ("/hosts/x", "DELETE, PUT"),
        ("/spaces/x", "DELETE, GET, PUT"),
        ("/healthz", "GET"),
    ):
        answer = client.request("PATCH", path)
        problem_of(answer, 405)
        assert answer.headers["allow"] == allowed


@pytest.mark.parametrize(
    ("schema", "field"),
    [
        ({}, "attributes"),
        ({"attributes": []}, "attributes"),
        ({"attributes": [{"name": "x", "type": "odd"}]}, "attributes[0].type"),
        ({"attributes": [{"name": "x", "type": "int", "min": 5, "max": 1}]}, "attributes[0].min"),
        ({"attributes": [{"name": "x", "type": "bool"}] * 2}, "attributes[1].name"),
        ({"attributes": [{"name": "x", "type": "bool"}], "index": {"budget": 0}}, "index.budget"),
        ({"attributes": [{"name": "x", "type": "bool"}], "more": 1}, "more"),
    ],
)
def test_a_bad_schema_is_refused_and_named(
    client: httpx.Client, schema: dict[str, object], field: str
) -> None:
    problem = problem_of(client.put("/spaces/unmade", json=schema), 422)
    assert problem["field"] == field
    problem_of(client.get("/spaces/unmade"), 404)


def test_a_space_needs_a_good_name(client: httpx.Client) -> None:
    schema = {"attributes": [{"name": "x", "type": "bool"}]}
    for name in ("%20", "a%00", "-a", "x" * 65, "%F0%9F%90%B4"):
        assert problem_of(client.put(f"/spaces/{name}", json=schema), 422)["field"] == "name"


def exchange(url: str, sent: bytes, timeout: float = 20.0) -> bytes:
    """What the server says to these bytes until it hangs up."""
    parts = urlsplit(url)
    assert parts.hostname
    assert parts.port
    with socket.create_connection((parts.hostname, parts.port), timeout) as connection:
        connection.sendall(sent)
        answer = b""
        while piece := connection.recv(65_536):
            answer += piece
    return answer


def test_what_is_not_http_is_refused(client: httpx.Client) -> None:
    answer = exchange(str(client.base_url), b"\x16\x03\x01 hello\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400")
    assert b"application/problem+json" in answer


def test_endless_headers_are_refused(client: httpx.Client) -> None:
    endless = b"GET /healthz HTTP/1.1\r\n" + b"X-A: b\r\n" * 10_000
    answer = exchange(str(client.base_url), endless)
    assert answer.startswith(b"HTTP/1.1 431")


def test_a_body_that_never_arrives_is_a_timeout(stack: Stack) -> None:
    head = b"POST /subscribe HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with stack.serving(body_timeout=0.2) as url:
        answer = exchange(url, head + b"Content-Length: 100\r\n\r\n{")
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"/problems/timeout" in answer
