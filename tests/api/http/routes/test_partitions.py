"""Moves of partitions, and balancing, over REST."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.etcd import TestEtcd
from tests.rest import problem_of, shown_flows, subscription
from tests.stack import Stack, StackOptions
from tests.support import until_sync

C0, C1 = "configurator-0", "configurator-1"
SPACE = "moved"
SCHEMA = {"attributes": [{"name": "price", "type": "int", "min": 0, "max": 1023}]}


@pytest.fixture(scope="module")
def two(etcd_server: TestEtcd) -> Iterator[Stack]:
    with Stack(etcd_server.access(), StackOptions(configurators=2, partitions=3)) as stack:
        yield stack


@pytest.fixture
def client(two: Stack) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=two.url, timeout=60) as client:
        if client.get(f"/spaces/{SPACE}").status_code == 404:
            client.put(f"/spaces/{SPACE}", json=SCHEMA).raise_for_status()
            body = {"host": "h1", "space": SPACE, "filter": {}}
            client.post("/advertise", json=body).raise_for_status()
            for low in range(0, 1000, 50):
                made = {**subscription(SPACE), "filter": {"price": {"gte": low}}}
                client.post("/subscribe", json=made).raise_for_status()
        yield client


def partitions(client: httpx.Client) -> dict[str, dict[str, Any]]:
    items = client.get("/partitions").json()["items"]
    return {item["id"]: item for item in items if item["space"] == SPACE}


def tables(client: httpx.Client, source: str) -> dict[str, list[Any]]:
    found = {}
    for switch in client.get("/switches").json()["items"]:
        flows = client.get(f"/switches/{switch['id']}/flows?source={source}").json()["items"]
        found[switch["id"]] = shown_flows(flows)
    return found


def other(owner: str) -> str:
    return C1 if owner == C0 else C0


def test_a_partition_moves_and_no_flow_is_touched(client: httpx.Client) -> None:
    name, before = next(iter(partitions(client).items()))
    had = tables(client, "dp")
    target = other(before["configurator"])
    moved = client.post(f"/partitions/{quote(name, safe='')}/migrate", json={"to": target})
    assert moved.status_code == 200, moved.text
    assert moved.json()["target"] == target
    until_sync(lambda: partitions(client)[name]["state"] == "ready")
    after = partitions(client)[name]
    assert after["configurator"] == target
    assert after["epoch"] > before["epoch"]
    assert tables(client, "dp") == had == tables(client, "cp")
    # It works there: a new subscription is acknowledged.
    made = client.post("/subscribe", json=subscription(SPACE)).json()
    client.post("/unsubscribe", json={"id": made["id"]}).raise_for_status()


def test_the_path_may_have_the_slash_as_it_is(client: httpx.Client) -> None:
    name, before = next(iter(partitions(client).items()))
    target = other(before["configurator"])
    moved = client.post(f"/partitions/{name}/migrate", json={"to": target})
    assert moved.status_code == 200, moved.text


def test_a_move_need_not_be_waited_for(client: httpx.Client) -> None:
    name, before = next(iter(partitions(client).items()))
    body = {"to": other(before["configurator"]), "wait": False}
    assert client.post(f"/partitions/{name}/migrate", json=body).status_code == 202
    until_sync(lambda: partitions(client)[name]["configurator"] == body["to"])
    until_sync(lambda: not client.get("/partitions").json()["moves"])


@pytest.mark.parametrize(
    ("to", "status", "text"),
    [("the owner", 409, "belongs to"), ("configurator-9", 409, "no live configurator")],
)
def test_a_partition_moves_to_another_live_configurator_only(
    client: httpx.Client, to: str, status: int, text: str
) -> None:
    name, before = next(iter(partitions(client).items()))
    target = before["configurator"] if to == "the owner" else to
    answer = client.post(f"/partitions/{name}/migrate", json={"to": target})
    assert text in problem_of(answer, status)["detail"]
    assert partitions(client)[name]["epoch"] == before["epoch"]


def test_an_unknown_partition_is_not_found(client: httpx.Client) -> None:
    answer = client.post("/partitions/3ff.0/all/migrate", json={"to": C0})
    problem_of(answer, 404)


def test_the_balancer_tells_what_it_would_do(client: httpx.Client) -> None:
    found = client.get("/balancing").json()
    assert found["status"]["mode"] == "propose"
    assert found["status"]["leads"] is True
    assert found["dry_run"]["resting"] is None
