"""Requests through REST to emulated switches and back: one at a time."""

from urllib.parse import quote

import httpx
import pytest

from tests.rest import SCHEMA, advertisement, problem_of, subscription
from tests.support import until_sync


def test_a_subscription_is_active_when_it_is_answered(client: httpx.Client, space: str) -> None:
    answer = client.post("/subscribe", json=subscription(space, label="mine"))
    record = answer.json()
    assert answer.status_code == 201
    assert answer.headers["location"] == f"/requests/{record['id']}"
    assert record["state"] == "active"
    assert record["host"] == "h2"
    assert record["space"] == space
    assert record["filter"] == {"price": {"gte": 420}}
    assert record["label"] == "mine"
    assert record["acknowledged"] >= record["created"]
    assert record["regions"]
    assert record["partitions"]
    assert all(set(region) <= set("01*") for region in record["regions"])
    timing = dict(record["timing"])
    assert timing.pop("total_ms") == pytest.approx(sum(timing.values()))
    assert client.get(f"/subscriptions/{record['id']}").json() == record
    assert client.get(answer.headers["location"]).json() == record


def test_switches_have_the_entries_when_both_sides_are_active(
    client: httpx.Client, space: str
) -> None:
    client.post("/advertise", json=advertisement(space)).raise_for_status()
    record = client.post("/subscribe", json=subscription(space, filter="price < 100")).json()
    assert record["flow_ops"] > 0
    switches = [item["id"] for item in client.get("/switches").json()["items"]]
    for source in ("cp", "dp"):
        flows = [
            flow
            for switch in switches
            for flow in client.get(f"/switches/{switch}/flows?source={source}").json()["items"]
            if flow["space"] == space
        ]
        assert flows, source
        assert any(flow["words"] == "price < 125" and "h2" in flow["legs"] for flow in flows)
        assert all((flow["packets"] is None) == (source == "cp") for flow in flows)


def test_switches_tell_how_full_they_are(client: httpx.Client, space: str) -> None:
    def entries() -> int:
        return sum(item["entries"] for item in client.get("/switches").json()["items"])

    before = entries()
    client.post("/advertise", json=advertisement(space)).raise_for_status()
    client.post("/subscribe", json=subscription(space)).raise_for_status()
    until_sync(lambda: entries() > before)
    one = client.get("/switches").json()["items"][0]
    assert 0 < one["fullest_table"] <= one["entries"]
    assert one["table_capacity"] == 1_000_000


def test_a_partition_tells_which_part_of_the_network_it_uses(
    client: httpx.Client, space: str
) -> None:
    client.post("/advertise", json=advertisement(space)).raise_for_status()
    record = client.post("/subscribe", json=subscription(space)).json()
    found = [
        client.get(f"/partitions/{quote(one['id'], safe='')}/reach").json()
        for one in client.get("/partitions").json()["items"]
        if one["space"] == space
    ]
    used = [one for one in found if one["entries"]]
    assert {"h2"} == {host for one in used for host in one["subscribers"]}
    assert {"h1"} == {host for one in used for host in one["publishers"]}
    assert {0} == {tree for one in used for tree in one["trees"]}
    assert [(link["a"], link["b"], link["up"]) for link in used[0]["links"]] == [("s1", "s2", True)]
    assert sum(one["entries"] for one in used) >= record["flow_ops"]
    assert client.get("/partitions/ff.0%2Fx/reach").status_code == 404
    assert client.get("/partitions/none/reach").status_code == 404


def test_without_waiting_the_answer_says_where_to_look(client: httpx.Client, space: str) -> None:
    answer = client.post("/subscribe", json=subscription(space, wait=False))
    assert answer.status_code == 202
    where = answer.headers["location"]
    assert where == f"/requests/{answer.json()['id']}"
    assert client.get(where).status_code == 200


def test_a_removed_subscription_is_gone_from_the_list_but_not_from_requests(
    client: httpx.Client, space: str
) -> None:
    record = client.post("/subscribe", json=subscription(space)).json()
    answer = client.post("/unsubscribe", json={"id": record["id"]})
    assert answer.status_code == 200
    assert answer.json()["state"] == "removed"
    assert client.get(f"/subscriptions?space={space}").json()["items"] == []
    assert client.get(f"/requests/{record['id']}").json()["state"] == "removed"
    again = client.delete(f"/subscriptions/{record['id']}")
    assert again.status_code in (200, 404)


@pytest.mark.parametrize("kind", ["subscription", "advertisement"])
def test_deleting_is_removing(client: httpx.Client, space: str, kind: str) -> None:
    verb = {"subscription": "/subscribe", "advertisement": "/advertise"}[kind]
    record = client.post(verb, json=subscription(space)).json()
    assert record["kind"] == kind
    answer = client.delete(f"/{kind}s/{record['id']}")
    assert answer.status_code == 200
    assert answer.json()["state"] == "removed"


def test_a_filter_is_replaced_in_one_call(client: httpx.Client, space: str) -> None:
    record = client.post("/subscribe", json=subscription(space)).json()
    answer = client.put(f"/subscriptions/{record['id']}", json={"filter": "price < 10"})
    assert answer.status_code == 200
    changed = answer.json()
    assert changed["id"] == record["id"]
    assert changed["filter"] == "price < 10"
    assert changed["state"] == "active"
    assert changed["regions"] != record["regions"]


def test_a_record_with_a_ttl_is_renewed(client: httpx.Client, space: str) -> None:
    record = client.post("/subscribe", json=subscription(space, ttl=600)).json()
    assert record["ttl"] == 600
    renewed = client.post(f"/subscriptions/{record['id']}/renew")
    assert renewed.status_code == 200
    assert renewed.json()["expires"] >= record["expires"]
    empty = client.post(f"/subscriptions/{record['id']}/renew", json={})
    assert empty.status_code == 200


def test_pages_list_every_record_once(client: httpx.Client, space: str) -> None:
    batch = [subscription(space, label=str(i)) for i in range(7)]
    made = {item["id"] for item in client.post("/subscribe", json=batch).json()}
    seen: list[str] = []
    after: str | None = None
    while True:
        query: dict[str, str | int] = {"space": space, "limit": 3}
        if after:
            query["after"] = after
        page = client.get("/subscriptions", params=query).json()
        assert len(page["items"]) <= 3
        seen += [item["id"] for item in page["items"]]
        after = page["next"]
        if after is None:
            break
    assert sorted(seen) == sorted(made)


def test_lists_are_of_one_host_one_state(client: httpx.Client, space: str) -> None:
    client.post("/subscribe", json=[subscription(space), subscription(space, host="h1")])
    items = client.get("/subscriptions", params={"space": space, "host": "h1"}).json()["items"]
    assert [item["host"] for item in items] == ["h1"]
    none = client.get("/subscriptions", params={"space": space, "state": "failed"}).json()
    assert none == {"items": [], "next": None}
    assert client.get("/advertisements", params={"space": space}).json()["items"] == []


def test_a_space_is_made_once_and_described(client: httpx.Client, space: str) -> None:
    found = client.get(f"/spaces/{space}").json()
    assert [attribute["name"] for attribute in found["attributes"]] == ["price", "volume"]
    assert found["trees"]
    assert found["version"] in found["versions"]
    assert client.put(f"/spaces/{space}", json=SCHEMA).status_code == 200
    assert space in [item["name"] for item in client.get("/spaces").json()["items"]]


def test_the_shapes_of_a_space_are_shown_and_replaced(client: httpx.Client, space: str) -> None:
    wanted = {"price": {"gte": 990}}
    record = client.post("/subscribe", json=subscription(space, filter=wanted)).json()
    path = f"/spaces/{space}/shapes"
    before = client.get(path).json()
    assert (before["space"], before["version"], before["changing"]) == (space, 0, False)
    axes = before["axes"]
    assert [axis["attribute"] for axis in axes] == [one["name"] for one in SCHEMA["attributes"]]
    assert before["shapes"][0] == [0] * len(axes)
    coarse = [1] + [0] * (len(axes) - 1)
    given = {"version": 0, "shapes": [coarse]}
    answer = client.put(path, json=given)
    assert answer.status_code == 202
    assert answer.json()["shapes"] == [[0] * len(axes), coarse]
    until_sync(lambda: not client.get(path).json()["changing"])
    now = client.get(f"/subscriptions/{record['id']}").json()
    assert now.pop("regions") != record.pop("regions")
    assert now == {**record, "partitions": now["partitions"]}
    wrong: list[dict[str, object]] = [
        {"version": 0, "shapes": []},
        {"version": 0, "shapes": [[1]]},
        {"version": 0, "shapes": [[97] * len(axes)]},
        {"version": 0, "shapes": [[-1] * len(axes)]},
        {"shapes": [coarse]},
        {**given, "reasons": []},
    ]
    for body in wrong:
        assert client.put(path, json=body).status_code == 422, body
    problem_of(client.put(path, json={**given, "version": 1}), 409)
    problem_of(client.put("/spaces/nowhere/shapes", json=given), 404)
    problem_of(client.get("/spaces/nowhere/shapes"), 404)


def test_a_space_in_use_is_not_deleted(client: httpx.Client, space: str) -> None:
    record = client.post("/subscribe", json=subscription(space)).json()
    problem_of(client.delete(f"/spaces/{space}"), 409)
    client.delete(f"/subscriptions/{record['id']}").raise_for_status()
    assert client.delete(f"/spaces/{space}").status_code == 200
    problem_of(client.get(f"/spaces/{space}"), 404)
    problem_of(client.delete(f"/spaces/{space}"), 404)


def test_a_filter_is_explained_without_leaving_a_trace(client: httpx.Client, space: str) -> None:
    before = client.get("/subscriptions", params={"space": space}).json()
    asked = {"space": space, "filter": "price > 420", "host": "h1"}
    found = client.post("/explain", json=asked).json()
    assert found["regions"]
    assert found["cells"]
    assert 0 <= found["false_share"] <= 1
    assert isinstance(found["flows"], list)
    assert client.get("/subscriptions", params={"space": space}).json() == before


def test_hosts_are_added_moved_and_removed(client: httpx.Client) -> None:
    taken = {(h["switch"], h["port"]) for h in client.get("/hosts").json()["items"]}
    free = [port for port in range(20, 30) if ("s1", port) not in taken]
    made = client.put("/hosts/guest", json={"switch": "s1", "port": free[0]})
    assert made.status_code == 201
    moved = client.put("/hosts/guest", json={"switch": "s1", "port": free[1]})
    assert moved.status_code == 200
    assert moved.json()["port"] == free[1]
    problem_of(client.put("/hosts/guest", json={"switch": "nope", "port": 3}), 404, 422)
    used = next(host for host in client.get("/hosts").json()["items"] if host["id"] == "h1")
    clash = {"switch": used["switch"], "port": used["port"]}
    problem_of(client.put("/hosts/guest", json=clash), 409, 422)
    assert client.delete("/hosts/guest").status_code == 200
    problem_of(client.delete("/hosts/guest"), 404)


def test_the_network_is_described(client: httpx.Client) -> None:
    topology = client.get("/topology").json()
    assert {switch["id"] for switch in topology["switches"]} == {"s1", "s2", "s3"}
    assert len(topology["links"]) == 2
    assert topology["trees"][0]["whole"] is True
    switches = client.get("/switches").json()["items"]
    assert {switch["state"] for switch in switches} == {"up"}
    hosts = client.get("/hosts").json()["items"]
    assert all(host["wire"] for host in hosts if host["id"] in ("h1", "h2"))
    problem_of(client.get("/switches/nope/flows"), 404)


def test_partitions_and_configurators_are_listed(client: httpx.Client, space: str) -> None:
    def owners() -> set[str]:
        found = client.get("/partitions").json()["items"]
        return {each["configurator"] for each in found if each["space"] == space}

    until_sync(owners)  # a new space may be known before the owners of its partitions
    configurators = {c["id"] for c in client.get("/configurators").json()["items"]}
    assert owners() <= configurators


def test_health_and_readiness(client: httpx.Client) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}
    ready = client.get("/readyz")
    assert ready.status_code == 200
    assert ready.json()["ready"] is True
    assert len(ready.json()["parts"]) >= 4  # etcd, dispatcher, southbound, configurator


def test_metrics_count_requests_and_reports(client: httpx.Client, space: str) -> None:
    client.post("/subscribe", json=[subscription(space), {}])
    report = {
        "host": "h2",
        "counters": {space: {"received": 5}},
        "events": [{"space": space, "time_us": 1, "values": {"price": 1.0, "volume": 2}}],
    }
    assert client.post("/reports", json=report).status_code == 202
    text = client.get("/metrics").text
    assert 'dzflow_http_requests_total{route="POST /subscribe",status="207"}' in text
    assert 'dzflow_batch_elements_total{route="POST /subscribe",status="422"}' in text
    assert f'dzflow_reported_events_total{{counter="received",space="{space}"}} 5.0' in text
    assert "dzflow_ready 1.0" in text


def test_a_report_with_a_key_counts_once(client: httpx.Client, space: str) -> None:
    report = {"host": "h2", "counters": {space: {"received": 3}}}
    key = {"Idempotency-Key": f"report-{space}"}
    for _ in range(3):
        assert client.post("/reports", json=report, headers=key).status_code == 202
    other = {"host": "h2", "counters": {space: {"received": 4}}}
    problem_of(client.post("/reports", json=other, headers=key), 409)
    assert f'counter="received",space="{space}"}} 3.0' in client.get("/metrics").text


def test_the_documentation_works_without_the_internet(client: httpx.Client) -> None:
    page = client.get("/docs")
    assert page.status_code == 200
    assert "http://" not in page.text
    assert "https://" not in page.text
    for asset in ("swagger-ui-bundle.js", "swagger-ui.css"):
        assert asset in page.text
        assert client.get(f"/docs/assets/{asset}").status_code == 200
    assert client.get("/openapi.json").json()["openapi"].startswith("3.1")


def test_request_ids_are_kept_or_made(client: httpx.Client) -> None:
    assert client.get("/healthz", headers={"X-Request-ID": "my.id-1"}).headers["x-request-id"] == (
        "my.id-1"
    )
    made = client.get("/healthz", headers={"X-Request-ID": "no good"}).headers["x-request-id"]
    assert made != "no good"
    assert made
