"""The role of every route, with tokens configured."""

import secrets
import subprocess

import httpx
import pytest

from api.http.border.auth import ACCESS
from api.http.border.bodies import BYTES, JSON
from tests.rest import advertisement, problem_of, subscription
from tests.service import COMMAND
from tests.stack import Stack

FOR_ANYONE = {"GET /healthz", "GET /readyz"}
FOR_OPERATORS = {
    "PUT /spaces/{name}",
    "DELETE /spaces/{name}",
    "GET /spaces/{name}/shapes",
    "PUT /spaces/{name}/shapes",
    "GET /spaces/{name}/shapes/usage",
    "POST /spaces/{name}/key",
    "PUT /hosts/{id}",
    "DELETE /hosts/{id}",
    "GET /host-proposals",
    "POST /host-proposals/{id}/accept",
    "POST /host-proposals/{id}/reject",
    "GET /switches",
    "PUT /switches/{id}",
    "DELETE /switches/{id}",
    "GET /switches/{id}/flows",
    "PUT /links/{id}",
    "DELETE /links/{id}",
    "GET /partitions",
    "GET /configurators",
    "POST /configurators",
    "GET /southbound",
    "POST /southbound",
    "GET /load",
    "GET /history",
    "GET /balancing",
    "GET /jobs",
    "GET /partitions/{id}/reach",
    "POST /partitions/{id}/migrate",
    "POST /partitions/plan",
    "GET /partitions/plan",
    "DELETE /partitions/plan",
    "GET /metrics",
    "GET /settings",
    "GET /backup",
    "POST /restore",
    "POST /etcd/compact",
}
ROUTES = sorted({*ACCESS, *FOR_ANYONE, *FOR_OPERATORS})


def call(client: httpx.Client, route: str, token: str | None) -> httpx.Response:
    """Call a route with an empty body; tests look at the status only."""
    method, path = route.split()
    path = path.replace("{id}", "s1-0000000000000000").replace("{name}", "nope")
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    headers["Content-Type"] = BYTES if path == "/restore" else JSON
    with client.stream(method, path, headers=headers, content=b"") as response:
        if response.headers["content-type"].startswith("application"):
            response.read()
        return response


@pytest.mark.parametrize("route", ROUTES)
def test_every_route_asks_for_its_role(guarded: httpx.Client, stack: Stack, route: str) -> None:
    for token in (None, "wrong"):
        if route in FOR_ANYONE:
            assert call(guarded, route, token).status_code == 200
        else:
            answer = call(guarded, route, token)
            problem_of(answer, 401)
            assert answer.headers["www-authenticate"].startswith("Bearer")
    by_host = call(guarded, route, stack.tokens["h1"])
    if route in FOR_OPERATORS:
        problem_of(by_host, 403)
    else:
        assert by_host.status_code not in (401, 403)
    assert call(guarded, route, stack.tokens["operator"]).status_code not in (401, 403)


def test_only_operators_learn_what_is_impaired(
    guarded: httpx.Client, client: httpx.Client, stack: Stack
) -> None:
    details = {"reasons", "impaired", "parts"}
    for token in (None, "wrong", stack.tokens["h1"]):
        found = call(guarded, "GET /readyz", token).json()
        assert found["ready"] is True
        assert not details & set(found)
    assert details <= set(call(guarded, "GET /readyz", stack.tokens["operator"]).json())
    assert details <= set(client.get("/readyz").json())


def test_the_command_shows_the_status_to_every_caller(stack: Stack) -> None:
    for token, has_parts in ((None, False), ("h1", False), ("operator", True)):
        options = [] if token is None else ["--token", stack.tokens[token]]
        done = subprocess.run(
            [COMMAND, "status", "--url", stack.guarded_url, *options],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        assert "switches are up" in done.stdout
        assert ("etcd" in done.stdout) is has_parts
        assert ("operator's token" in done.stdout) is not has_parts


@pytest.fixture
def h1(guarded: httpx.Client, stack: Stack) -> httpx.Client:
    guarded.headers["Authorization"] = f"Bearer {stack.tokens['h1']}"
    return guarded


def test_a_host_acts_for_itself_only(h1: httpx.Client, space: str, client: httpx.Client) -> None:
    assert h1.post("/advertise", json=advertisement(space)).status_code == 201
    problem_of(h1.post("/subscribe", json=subscription(space)), 403)
    batch = h1.post("/subscribe", json=[subscription(space), subscription(space, host="h1")])
    assert [item["status"] for item in batch.json()] == [403, 201]
    asked = {"space": space, "filter": {}, "host": "h2"}
    problem_of(h1.post("/explain", json=asked), 403)
    problem_of(h1.post("/reports", json={"host": "h2"}), 403)
    assert h1.post("/reports", json={"host": "h1"}).status_code == 202
    problem_of(h1.get("/reports?host=h2"), 403)
    assert h1.get("/reports").json()["host"] == "h1"
    hosts = {item["host"] for item in client.get(f"/subscriptions?space={space}").json()["items"]}
    assert hosts == {"h1"}


def test_a_host_neither_sees_nor_touches_what_others_have(
    h1: httpx.Client, space: str, client: httpx.Client
) -> None:
    theirs = client.post("/subscribe", json=subscription(space, ttl=600)).json()
    path = f"/subscriptions/{theirs['id']}"
    problem_of(h1.get(path), 403)
    problem_of(h1.get(f"/requests/{theirs['id']}"), 403)
    problem_of(h1.put(path, json={"filter": {}}), 403)
    problem_of(h1.post(f"{path}/renew"), 403)
    problem_of(h1.delete(path), 403)
    problem_of(h1.post("/unsubscribe", json={"id": theirs["id"]}), 403)
    batch = h1.post("/unsubscribe", json=[{"id": theirs["id"]}]).json()
    assert [item["status"] for item in batch] == [403]
    assert h1.get("/subscriptions", params={"space": space}).json()["items"] == []
    problem_of(h1.get("/subscriptions", params={"host": "h2"}), 403)
    assert client.get(path).json() == theirs


def test_callers_may_use_the_same_idempotency_key(
    h1: httpx.Client, space: str, client: httpx.Client
) -> None:
    key = {"Idempotency-Key": secrets.token_hex(8)}
    mine = h1.post("/subscribe", json=subscription(space, host="h1"), headers=key)
    other = client.post("/subscribe", json=subscription(space), headers=key)
    assert mine.status_code == other.status_code == 201


def test_the_document_asks_for_tokens_only_if_they_are_needed(
    guarded: httpx.Client, client: httpx.Client
) -> None:
    with_tokens = guarded.get("/openapi.json").json()
    assert with_tokens["paths"]["/subscribe"]["post"]["security"] == [{"bearer": []}]
    assert with_tokens["paths"]["/healthz"]["get"]["security"] == []
    assert with_tokens["paths"]["/readyz"]["get"]["security"] == [{}, {"bearer": []}]
    assert "security" not in client.get("/openapi.json").json()["paths"]["/subscribe"]["post"]
