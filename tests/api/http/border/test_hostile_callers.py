"""What one caller can do to others: attacks over HTTP, each of which took the service down once."""

import copy
import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest

from dispatcher.requests.intake.permissions import Permission
from dzflow import ControlPlane
from dzflow.sdk.errors import Refused
from tests.etcd import TestEtcd
from tests.rest import SCHEMA, advertisement, problem_of, subscription
from tests.stack import Stack, StackOptions
from tests.support import until_sync

WIDE = {
    "attributes": [
        {"name": f"x{i}", "type": "int", "min": 0, "max": 99, "bits": 2} for i in range(40)
    ],
    "index": {"kind": "fields", "budget": 4, "shapes": 2},
}
BYTES = {"Content-Type": "application/octet-stream"}


@pytest.fixture(scope="module")
def attacked(etcd_server: TestEtcd) -> Iterator[Stack]:
    """A control plane for attacks, so that other tests do not wait for the limits of theirs."""
    # So little time that no wait between two requests makes up for a filter that takes long.
    options = StackOptions(more={"work_per_host": 2.0})
    with Stack(etcd_server.access(), options) as running:
        yield running


@pytest.fixture(scope="module")
def restricted(etcd_server: TestEtcd) -> Iterator[Stack]:
    """A control plane with permissions, in which no host can use up its processor time."""
    permissions = (
        Permission("h1", "stocks", subscribe="price < 500", advertise=True),
        Permission("h2", "*", subscribe=True),
    )
    options = StackOptions(more={"permissions": permissions, "work_per_host": None})
    with Stack(etcd_server.access(), options) as running:
        with httpx.Client(base_url=running.url, timeout=60) as client:
            client.put("/spaces/stocks", json=SCHEMA).raise_for_status()
        yield running


@pytest.fixture
def attacker(attacked: Stack) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=attacked.url, timeout=60) as made:
        made.put("/spaces/stocks", json=SCHEMA).raise_for_status()
        made.put("/spaces/wide", json=WIDE).raise_for_status()
        yield made


def wide_filter(seed: int) -> str:
    """An `and` of 59 `or`s."""
    parts = (f"(x{i % 40} < {(i + seed) % 50 + 2} or x{(i + 1) % 40} < 5)" for i in range(59))
    return " and ".join(parts)


@pytest.mark.parametrize("key", [None, "a-key"])
def test_filters_that_multiply_do_not_block_the_service(
    attacked: Stack, attacker: httpx.Client, key: str | None
) -> None:
    batch = [
        subscription("wide", host="h3", filter=wide_filter(seed), wait=False) for seed in range(200)
    ]
    answered = 0
    over = threading.Event()

    def look() -> None:
        nonlocal answered
        with httpx.Client(base_url=attacked.url, timeout=60) as looking:
            while True:
                looking.get("/healthz").raise_for_status()
                answered += 1
                if over.is_set():
                    return

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        headers = {"Idempotency-Key": key} if key else {}
        answer = attacker.post("/subscribe", json=batch, headers=headers)
    finally:
        over.set()
        watcher.join()
    assert answered
    if key:
        problem_of(answer, 429)  # the whole call, before its key is used
        assert int(answer.headers["retry-after"]) >= 1
    else:
        statuses = [item["status"] for item in answer.json()]
        # Some are looked at, and refused; then the host has used up its time.
        assert set(statuses) == {422, 429}
        assert statuses.count(429) > 150
    other = subscription("stocks", host="h2" if key else "h1")  # one that has used nothing yet
    assert attacker.post("/subscribe", json=other).status_code == 201


def test_explaining_is_limited_too(attacker: httpx.Client) -> None:
    statuses = {
        attacker.post(
            "/explain", json={"space": "wide", "filter": wide_filter(seed), "host": "h3"}
        ).status_code
        for seed in range(30)
    }
    assert 429 in statuses
    assert statuses <= {422, 429}


def test_a_large_filter_is_refused(restricted: Stack) -> None:
    schema = {"attributes": [{"name": "name", "type": "string"}]}
    large = {"name": {"in": [f"{i:0256d}" for i in range(4_000)]}}
    with httpx.Client(base_url=restricted.url, timeout=60) as client:
        client.put("/spaces/names", json=schema).raise_for_status()
        found = problem_of(client.post("/subscribe", json=subscription("names", filter=large)), 413)
        assert "limits.filter" in found["detail"]
        assert client.get("/subscriptions", params={"space": "names"}).json()["items"] == []


def saved(client: httpx.Client) -> Any:
    document = msgspec.json.decode(client.get("/backup").content)
    return {**document, "made": 0.0}


def _change(document: Any, name: str) -> None:
    spaces, hosts, records = document["spaces"], document["hosts"], document["records"]
    record = {"id": "", "kind": "subscription", "host": "h1", "space": spaces[0][0]}
    record |= {"filter": {}, "created": 1.0, "id": f"s{spaces[0][1]:x}-0123456789abcdef"}
    match name:
        case "number 0" | "number -5" | "number 99999":
            spaces[0][1] = int(name.split()[1])
        case "version 77":
            spaces[0][2] = {"77": next(iter(spaces[0][2].values()))}
            spaces[0][3] = 77
        case "doubled ids":
            records += [record, record]
        case "label of 1 MB":
            records.append({**record, "label": "x" * 1_000_000})
        case "ttl -1":
            records.append({**record, "ttl": -1})
        case "newline in a host's name":
            hosts[0]["id"] = "h1\nh2"
        case "unknown host":
            records.append({**record, "host": "h99"})
        case "bad last record":
            good = [{**record, "id": f"{record['id'][:-4]}{n:04x}"} for n in range(20)]
            records += [*good, {**record, "filter": {"prise": 5}}]


@pytest.mark.parametrize(
    "name",
    [
        "number 0",
        "number -5",
        "number 99999",
        "version 77",
        "doubled ids",
        "label of 1 MB",
        "ttl -1",
        "newline in a host's name",
        "unknown host",
        "bad last record",
    ],
)
def test_a_backup_that_the_api_would_refuse_changes_nothing(
    attacker: httpx.Client, name: str
) -> None:
    for item in attacker.get("/subscriptions").json()["items"]:
        attacker.delete(f"/subscriptions/{item['id']}").raise_for_status()
    before = saved(attacker)
    changed = copy.deepcopy(before)
    _change(changed, name)
    answer = attacker.post("/restore", content=json.dumps(changed), headers=BYTES)
    found = problem_of(answer, 422)
    assert any(place in found["detail"] for place in ("spaces[", "hosts[", "records["))
    assert saved(attacker) == before
    until_sync(lambda: attacker.get("/readyz").json()["status"] == "ready")
    assert attacker.post("/restore", content=json.dumps(before), headers=BYTES).status_code == 200


def test_a_host_may_ask_for_what_it_is_permitted(restricted: Stack) -> None:
    def by(host: str) -> httpx.Client:
        headers = {"Authorization": f"Bearer {restricted.tokens[host]}"}
        return httpx.Client(base_url=restricted.guarded_url, timeout=60, headers=headers)

    with (
        by("h1") as h1,
        by("h2") as h2,
        by("operator") as operator,
        httpx.Client(base_url=restricted.url, timeout=60) as anonymous,
    ):
        cheap = subscription("stocks", host="h1", filter="price < 100")
        answer = h1.post("/subscribe", json=cheap)
        assert answer.status_code == 201
        id = answer.json()["id"]
        found = problem_of(h1.post("/subscribe", json={**cheap, "filter": {}}), 403)
        assert "price < 500" in found["detail"]
        batch = h1.post("/subscribe", json=[cheap, {**cheap, "filter": "price < 501"}])
        assert [item["status"] for item in batch.json()] == [201, 403]
        key = {"Idempotency-Key": "some-key"}
        keyed = h1.post("/subscribe", json={**cheap, "filter": "price < 501"}, headers=key)
        problem_of(keyed, 403)
        problem_of(h1.put(f"/subscriptions/{id}", json={"filter": "price < 501"}), 403)
        assert h1.put(f"/subscriptions/{id}", json={"filter": "price < 50"}).status_code == 200
        assert h1.post("/advertise", json=advertisement("stocks")).status_code == 201
        problem_of(h2.post("/advertise", json=advertisement("stocks", host="h2")), 403)
        assert h2.post("/subscribe", json=subscription("stocks")).status_code == 201
        # Operators, and a service without tokens, are not restricted.
        everything = {**cheap, "filter": {}}
        assert operator.post("/subscribe", json=everything).status_code == 201
        assert anonymous.post("/subscribe", json=everything).status_code == 201


def test_the_sdk_says_why_it_is_refused(restricted: Stack) -> None:
    with (
        ControlPlane(restricted.guarded_url, host="h1", token=restricted.tokens["h1"]) as plane,
        pytest.raises(Refused, match="must lie within"),
    ):
        plane.subscribe("stocks", "price < 501")
