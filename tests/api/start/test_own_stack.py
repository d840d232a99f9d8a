"""Tests that need a control plane of their own: readiness without etcd, restoring a backup."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from configurators.store.server.server import EtcdServer
from tests.etcd import running
from tests.rest import SCHEMA, advertisement, problem_of, subscription
from tests.service import eventually
from tests.stack import Stack

BYTES = {"Content-Type": "application/octet-stream"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    with running(tmp_path_factory.mktemp("etcd-of-stack")) as started:
        yield started


@pytest.fixture(scope="module")
def api(server: EtcdServer) -> Iterator[httpx.Client]:
    with (
        Stack(server.access("own/")) as stack,
        httpx.Client(base_url=stack.url, timeout=60) as client,
    ):
        yield client


def becomes(client: httpx.Client, status: int) -> httpx.Response:
    """The answer of /readyz once it has this status."""

    def found() -> httpx.Response | None:
        answer = client.get("/readyz")
        return answer if answer.status_code == status else None

    answer = eventually(found, f"/readyz answers {status}")
    assert isinstance(answer, httpx.Response)
    return answer


def test_a_backup_is_restored_under_the_same_ids(api: httpx.Client, tmp_path: Path) -> None:
    api.put("/spaces/stocks", json=SCHEMA).raise_for_status()
    made = [
        api.post("/advertise", json=advertisement("stocks")).json(),
        api.post("/subscribe", json=subscription("stocks", label="kept")).json(),
    ]
    answer = api.get("/backup")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/octet-stream"
    file = tmp_path / "backup"
    file.write_bytes(answer.content)
    problem_of(api.post("/restore", content=answer.content, headers=BYTES), 409)
    for record in made:
        api.delete(f"/{record['kind']}s/{record['id']}").raise_for_status()
    api.delete("/spaces/stocks").raise_for_status()
    restored = api.post("/restore", content=file.read_bytes(), headers=BYTES)
    assert restored.status_code == 200, restored.text
    assert (restored.json()["spaces"], restored.json()["records"]) == (1, 2)
    for record in made:
        found = api.get(f"/{record['kind']}s/{record['id']}").json()
        assert found["state"] == "active"
        assert found["filter"] == record["filter"]
        assert found["label"] == record["label"]


def test_a_body_that_is_not_a_backup_is_refused(api: httpx.Client) -> None:
    for odd in (b"", b"nonsense", b"\x93\x01\x02\x03", b"\x00" * 1_000):
        problem_of(api.post("/restore", content=odd, headers=BYTES), 409, 422)


def test_without_etcd_the_service_is_not_ready(api: httpx.Client, server: EtcdServer) -> None:
    becomes(api, 200)
    server.pause()
    try:
        answer = becomes(api, 503)
        assert answer.headers["retry-after"]
        assert answer.json()["ready"] is False
        assert answer.json()["status"] == "not ready"
        assert answer.json()["reasons"]
        assert {part["name"]: part["ok"] for part in answer.json()["parts"]}["etcd"] is False
        assert api.get("/healthz").status_code == 200
    finally:
        server.resume()
    becomes(api, 200)
