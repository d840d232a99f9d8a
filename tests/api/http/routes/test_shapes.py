"""How subscriptions use the shapes of a space."""

from typing import Any

import httpx
import pytest

from tests.rest import advertisement, problem_of, subscription


def usage(client: httpx.Client, space: str) -> Any:
    answer = client.get(f"/spaces/{space}/shapes/usage")
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_space_without_subscriptions_uses_no_shape(client: httpx.Client, space: str) -> None:
    client.post("/advertise", json=advertisement(space)).raise_for_status()
    found = usage(client, space)
    assert (found["subscriptions"], found["regions"], found["unwanted"]) == (0, 0, None)
    dictionary = client.get(f"/spaces/{space}/shapes").json()["shapes"]
    assert all(shape in [item["shape"] for item in found["items"]] for shape in dictionary)


def test_regions_and_unwanted_events_are_counted_by_shape(client: httpx.Client, space: str) -> None:
    filters = [{}, "price >= 500", "price >= 501 and volume < 3"]
    for wanted in filters:
        body = subscription(space, filter=wanted)
        client.post("/subscribe", json=body).raise_for_status()
    found = usage(client, space)
    assert found["subscriptions"] == 3
    assert found["regions"] == sum(item["regions"] for item in found["items"])
    everything = next(item for item in found["items"] if item["text"] == "everything")
    assert (everything["subscriptions"], everything["unwanted"]) == (1, 0)
    used = [item for item in found["items"] if item["regions"]]
    assert sum(item["of_unwanted"] for item in used) == pytest.approx(1, abs=0.01)
    assert found["note"] is None


def test_the_shapes_of_an_unknown_space_are_not_found(client: httpx.Client) -> None:
    problem_of(client.get("/spaces/nowhere/shapes/usage"), 404)
