"""What the service says of itself: settings, versions, and what applications have reported."""

import time

import httpx

from tests.rest import subscription
from tests.stack import HIDDEN, Stack


def test_settings_are_given_without_secrets(client: httpx.Client) -> None:
    answer = client.get("/settings")
    assert HIDDEN not in answer.text
    groups = {group["name"]: group for group in answer.json()["groups"]}
    settings = {item["name"]: item for group in groups.values() for item in group["items"]}
    port = settings["port"]
    assert (port["value"], port["default"], port["set"]) == (0, 8080, True)
    assert (port["variable"], settings["mode"]["set"]) == ("DZFLOW_PORT", False)
    for name in ("tokens.operator", "tokens.hosts"):
        one = settings[name]
        assert (one["secret"], one["set"], one["value"], one["default"]) == (True, True, None, None)
    for name in ("stream_token", "etcd.password", "onos.password", "telemetry.headers"):
        one = settings[name]
        assert (one["secret"], one["set"], one["value"]) == (True, False, None)
    assert groups["tokens"]["meaning"]


def test_versions_are_given(client: httpx.Client) -> None:
    found = client.get("/about").json()
    assert found["dzflow"] == client.get("/openapi.json").json()["info"]["version"]
    assert found["python"].startswith("3.")
    assert found["etcd"]
    assert found["packages"]["fastapi"]


def test_the_dashboard_for_grafana_can_be_downloaded(client: httpx.Client) -> None:
    found = client.get("/dashboard/grafana.json")
    assert found.json()["panels"]
    assert "attachment" in found.headers["content-disposition"]


def test_reports_are_summed_up_by_space(client: httpx.Client, space: str) -> None:
    for unwanted in (1, 2):
        counters = {space: {"received": 10, "unwanted": unwanted}}
        body = {"host": "h1", "counters": counters}
        client.post("/reports", json=body).raise_for_status()
    items = {item["space"]: item["counters"] for item in client.get("/reports").json()["items"]}
    assert items[space] == {"received": 20, "unwanted": 3}


def test_reports_are_summed_up_by_host(client: httpx.Client, space: str) -> None:
    began = time.time()
    for host, received in (("h1", 10), ("h2", 5), ("h2", 2)):
        body = {"host": host, "counters": {space: {"received": received}}}
        client.post("/reports", json=body).raise_for_status()
    found = client.get("/reports?host=h2").json()
    assert {item["space"]: item["counters"] for item in found["items"]}[space] == {"received": 7}
    assert found["host"] == "h2"
    assert began <= found["last"] <= time.time()
    nothing = client.get("/reports?host=h8").json()  # of no other test
    assert (nothing["items"], nothing["last"]) == ([], None)


def test_the_caller_is_told_who_it_is(
    client: httpx.Client, guarded: httpx.Client, stack: Stack
) -> None:
    def caller(of: httpx.Client) -> tuple[str, str | None]:
        found = of.get("/about").json()
        return found["role"], found["host"]

    assert caller(client) == ("operator", None)
    guarded.headers["Authorization"] = f"Bearer {stack.tokens['operator']}"
    assert caller(guarded) == ("operator", None)
    guarded.headers["Authorization"] = f"Bearer {stack.tokens['h2']}"
    assert caller(guarded) == ("host", "h2")


def test_records_are_counted(client: httpx.Client, space: str) -> None:
    def count() -> int:
        return int(client.get("/readyz").json()["store"]["records"])

    before = count()
    record = client.post("/subscribe", json=subscription(space)).json()
    assert count() == before + 1
    client.delete(f"/subscriptions/{record['id']}").raise_for_status()
    assert count() == before


def test_active_subscriptions_are_counted(client: httpx.Client, space: str) -> None:
    def count() -> int:
        return int(client.get("/readyz").json()["store"]["active_subscriptions"])

    before = count()
    client.post("/advertise", json=subscription(space)).raise_for_status()
    batch = client.post("/subscribe", json=[subscription(space)] * 3).json()
    assert count() == before + 3
    changed = {"filter": "price > 7"}
    client.put(f"/subscriptions/{batch[0]['id']}", json=changed).raise_for_status()
    assert count() == before + 3
    for record in batch:
        client.delete(f"/subscriptions/{record['id']}").raise_for_status()
    assert count() == before
