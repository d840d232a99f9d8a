"""Idempotency keys: repeated requests have one effect, others with the same key are refused."""

import secrets

import httpx

from tests.rest import problem_of, subscription


def key() -> dict[str, str]:
    return {"Idempotency-Key": secrets.token_hex(8)}


def test_a_repeated_subscribe_gives_the_same_record(client: httpx.Client, space: str) -> None:
    same = key()
    first = client.post("/subscribe", json=subscription(space), headers=same)
    again = client.post("/subscribe", json=subscription(space), headers=same)
    assert again.status_code == first.status_code == 201
    assert again.json()["id"] == first.json()["id"]
    assert len(client.get("/subscriptions", params={"space": space}).json()["items"]) == 1


def test_a_repeated_batch_gives_the_same_records(client: httpx.Client, space: str) -> None:
    same = key()
    batch = [subscription(space), {"bad": 1}, subscription(space, label="b")]
    first = client.post("/subscribe", json=batch, headers=same).json()
    again = client.post("/subscribe", json=batch, headers=same).json()
    assert [item.get("id") for item in first] == [item.get("id") for item in again]
    assert [item["status"] for item in again] == [201, 422, 201]
    assert len(client.get("/subscriptions", params={"space": space}).json()["items"]) == 2


def test_another_payload_under_the_same_key_is_refused(client: httpx.Client, space: str) -> None:
    same = key()
    client.post("/subscribe", json=subscription(space), headers=same).raise_for_status()
    other = subscription(space, filter={})
    problem = problem_of(client.post("/subscribe", json=other, headers=same), 409)
    assert problem["type"] == "/problems/key-reused"
    problem_of(client.post("/advertise", json=subscription(space), headers=same), 409)
    assert len(client.get("/subscriptions", params={"space": space}).json()["items"]) == 1
    assert client.get("/advertisements", params={"space": space}).json()["items"] == []


def test_a_repeated_unsubscribe_gets_the_same_answer(client: httpx.Client, space: str) -> None:
    record = client.post("/subscribe", json=subscription(space)).json()
    same = key()
    first = client.post("/unsubscribe", json={"id": record["id"]}, headers=same)
    again = client.post("/unsubscribe", json={"id": record["id"]}, headers=same)
    assert first.status_code == again.status_code == 200
    assert again.json()["state"] == "removed"


def test_a_refused_request_may_be_tried_again(client: httpx.Client, space: str) -> None:
    same = key()
    bad = subscription(space, filter={"nope": 1})
    problem_of(client.post("/subscribe", json=bad, headers=same), 422)
    good = client.post("/subscribe", json=subscription(space), headers=same)
    assert good.status_code in (201, 409)
    assert len(client.get("/subscriptions", params={"space": space}).json()["items"]) <= 1


def test_odd_keys_are_refused(client: httpx.Client, space: str) -> None:
    for odd in ("", "a b", "x" * 256, "é"):
        headers = {b"Idempotency-Key": odd.encode("latin-1")}
        problem = problem_of(
            client.post("/subscribe", json=subscription(space), headers=headers), 400
        )
        assert problem["field"] == "Idempotency-Key"
    longest = {"Idempotency-Key": "x" * 215 + secrets.token_hex(20)}
    answer = client.post("/subscribe", json=subscription(space), headers=longest)
    assert answer.status_code == 201
