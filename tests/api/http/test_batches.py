"""Batches: answered in order, one bad element does not spoil the others."""

import httpx

from tests.rest import problem_of, subscription


def test_elements_are_answered_in_order_as_single_requests_would_be(
    client: httpx.Client, space: str
) -> None:
    batch = [
        subscription(space, label="0"),
        {"host": "h2", "space": space},
        subscription(space, filter={"nope": 1}),
        subscription("no-such-space"),
        subscription(space, host="no-such-host"),
        5,
        subscription(space, label="6"),
        subscription(space, lable="7"),
    ]
    answer = client.post("/subscribe", json=batch)
    assert answer.status_code == 207
    items = answer.json()
    assert [item["status"] for item in items] == [201, 422, 422, 404, 404, 422, 201, 422]
    assert [item.get("label") for item in (items[0], items[6])] == ["0", "6"]
    assert items[1]["field"] == "filter"
    assert items[2]["field"] == "nope"
    assert items[7]["field"] == "lable"
    for item in items:
        if item["status"] == 201:
            assert item["state"] == "active"
        else:
            assert item["type"].startswith("/problems/")
            assert item["detail"]
    listed = client.get("/subscriptions", params={"space": space}).json()["items"]
    assert {item["id"] for item in listed} == {items[0]["id"], items[6]["id"]}


def test_a_thousand_are_made_and_removed_in_two_batches(client: httpx.Client, space: str) -> None:
    batch = [subscription(space, filter={"volume": {"eq": i}}) for i in range(1_000)]
    made = client.post("/subscribe", json=batch).json()
    assert {item["status"] for item in made} == {201}
    assert [item["filter"] for item in made] == [element["filter"] for element in batch]
    gone = client.post("/unsubscribe", json=[{"id": item["id"]} for item in made])
    assert gone.status_code == 207
    assert {(item["status"], item["state"]) for item in gone.json()} == {(200, "removed")}


def test_more_than_a_thousand_are_refused_as_a_whole(client: httpx.Client, space: str) -> None:
    problem_of(client.post("/subscribe", json=[subscription(space)] * 1_001), 422)
    problem_of(client.post("/subscribe", json=[]), 422)
    assert client.get("/subscriptions", params={"space": space}).json()["items"] == []


def test_unknown_ids_in_a_batch_of_removals_are_named(client: httpx.Client, space: str) -> None:
    record = client.post("/subscribe", json=subscription(space)).json()
    advertised = client.post("/advertise", json=subscription(space)).json()
    batch = [
        {"id": "nonsense"},
        {"id": record["id"]},
        {"id": "s1-0000000000000000"},
        {"id": advertised["id"]},
        {},
    ]
    items = client.post("/unsubscribe", json=batch).json()
    assert [item["status"] for item in items] == [404, 200, 404, 404, 422]
    still = client.get(f"/advertisements/{advertised['id']}").json()
    assert still["state"] == "active"


def test_a_batch_that_does_not_wait_is_durable(client: httpx.Client, space: str) -> None:
    batch = [subscription(space, wait=False) for _ in range(3)]
    items = client.post("/subscribe", json=batch).json()
    assert {item["status"] for item in items} <= {201, 202}
    for item in items:
        assert client.get(f"/requests/{item['id']}").status_code == 200
