"""`POST /configurators` and `POST /southbound`: how many workers there should be."""

import secrets
from collections.abc import Callable, Iterator

import httpx
import pytest

from configurators.store.documents import Delays, decode_wanted, encode
from configurators.store.etcd.client import Etcd
from configurators.store.keys import DELAYS, RAY, WANTED, wanted_key
from configurators.store.model import Process, WorkerKind
from tests.rest import problem_of
from tests.stack import Stack
from tests.support import until_sync


@pytest.fixture
def managed(stack: Stack) -> Iterator[Stack]:
    """As if a process followed the wanted numbers; it does nothing."""

    async def begin() -> None:
        async with Etcd(stack.access) as etcd:
            await etcd.put(RAY, encode(Process("ray", "here", 1, "here")))

    async def end() -> None:
        async with Etcd(stack.access) as etcd:
            for key in (RAY, DELAYS):
                await etcd.delete(key)
            for item in (await etcd.range(WANTED)).items:
                await etcd.delete(item.key)

    stack.run(begin())
    try:
        yield stack
    finally:
        stack.run(end())
        until_sync(lambda: stack.dispatcher.scaling.view("configurators").done)


def wanted(stack: Stack, kind: WorkerKind) -> int | None:
    async def read() -> int | None:
        async with Etcd(stack.access) as etcd:
            stored = await etcd.get(wanted_key(kind))
            return decode_wanted(stored.value).count if stored else None

    return stack.run(read())


def delay(stack: Stack, delays: Delays) -> None:
    async def put() -> None:
        async with Etcd(stack.access) as etcd:
            await etcd.put(DELAYS, encode(delays))

    stack.run(put())


def listed(client: httpx.Client, path: str, condition: Callable[[dict[str, object]], bool]) -> None:
    """Wait until the list of workers fulfils a condition."""
    until_sync(lambda: condition(client.get(path).json()))


@pytest.mark.parametrize("path", ["/configurators", "/southbound"])
def test_without_a_process_that_places_workers_nothing_can_be_changed(
    client: httpx.Client, stack: Stack, path: str
) -> None:
    problem = problem_of(client.post(path, json={"count": 2}), 409)
    assert "dzflow up --only workers" in problem["detail"]
    assert wanted(stack, "configurators") is None
    assert client.get(path).json()["wanted"] == 1, "as many as there are"


@pytest.mark.parametrize("kind", ["configurators", "southbound"])
def test_the_wanted_number_is_stored_and_shown(
    client: httpx.Client, managed: Stack, kind: WorkerKind
) -> None:
    answer = client.post(f"/{kind}", json={"count": 3})
    assert answer.status_code == 202
    assert answer.json() == {"present": 1, "wanted": 3, "leaving": []}
    assert wanted(managed, kind) == 3
    listed(client, f"/{kind}", lambda found: found["wanted"] == 3)
    # The same again: it is still being done. One worker is what there is.
    assert client.post(f"/{kind}", json={"count": 3}).status_code == 202
    answer = client.post(f"/{kind}", json={"count": 1})
    assert (answer.status_code, answer.json()["wanted"]) == (200, 1)


@pytest.mark.parametrize("count", [0, 65, -1, 1.5, "2", None, True])
def test_a_bad_number_is_refused(client: httpx.Client, managed: Stack, count: object) -> None:
    problem = problem_of(client.post("/configurators", json={"count": count}), 422)
    assert problem["field"] == "count"
    assert wanted(managed, "configurators") is None


def test_a_body_without_a_number_is_refused(client: httpx.Client, managed: Stack) -> None:
    assert problem_of(client.post("/southbound", json={}), 422)["field"] == "count"
    assert problem_of(client.post("/southbound", json={"count": 1, "x": 1}), 422)["field"] == "x"
    assert wanted(managed, "southbound") is None


def test_a_repeated_key_changes_nothing_again(client: httpx.Client, managed: Stack) -> None:
    headers = {"Idempotency-Key": secrets.token_hex(8)}
    first = client.post("/configurators", json={"count": 4}, headers=headers)
    client.post("/configurators", json={"count": 2})
    again = client.post("/configurators", json={"count": 4}, headers=headers)
    assert (again.status_code, again.json()) == (first.status_code, first.json())
    assert wanted(managed, "configurators") == 2
    other = client.post("/configurators", json={"count": 5}, headers=headers)
    assert problem_of(other, 409)["type"] == "/problems/key-reused"


def test_workers_that_wait_for_resources_are_listed_and_impair_the_service(
    client: httpx.Client, managed: Stack
) -> None:
    client.post("/configurators", json={"count": 2})
    reason = "waiting for resources: CPUs needed: 1, free in the Ray cluster: 0"
    delay(managed, {"configurators": {"configurator-2": reason}})
    listed(client, "/configurators", lambda found: len(found["items"]) == 2)  # type: ignore[arg-type]
    (item,) = [
        each
        for each in client.get("/configurators").json()["items"]
        if each["id"] == "configurator-2"
    ]
    assert (item["state"], item["leaving"], item["reason"]) == ("starting", False, reason)
    ready = client.get("/readyz").json()
    assert ready["status"] == "degraded"
    assert [(e["id"], e["reason"]) for e in ready["impaired"]] == [("configurator-2", reason)]
    # It is no longer wanted before it has started.
    client.post("/configurators", json={"count": 1})
    listed(client, "/readyz", lambda found: found["status"] == "ready")
