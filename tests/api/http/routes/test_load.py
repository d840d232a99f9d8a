"""The load over REST and in the stream."""

import httpx
import pytest

from tests.api.http.test_live_stream import reading
from tests.rest import SCHEMA, problem_of, subscription
from tests.stack import Stack


def test_the_stream_and_get_show_the_same_load(client: httpx.Client, space: str) -> None:
    with reading(client, "?types=load") as reader:
        client.post("/subscribe", json=subscription(space)).raise_for_status()
        while not (told := reader.until("load"))["total"]["done_per_s"]:
            pass
    found = client.get("/load").json()
    assert (found["resolution"], found["next"]) == (1, None)
    assert told in found["items"]
    assert told["total"]["flow_ops_per_s"] >= 0
    assert told["total"]["slices_per_s"] > 0
    (process,) = told["configurators"]
    assert process["id"] == "configurator-0"
    assert process["memory"] > 1 << 20
    shown = {each["id"] for each in client.get("/partitions").json()["items"]}
    assert {part["id"] for part in told["partitions"]} <= shown
    busy = [part for part in told["partitions"] if part["done_per_s"]]
    assert busy
    assert all(part["service_per_s"] > 0 and part["wait_ms"] > 0 for part in busy)
    assert sum(part["done_per_s"] for part in busy) == pytest.approx(
        told["total"]["done_per_s"], abs=0.01
    )


def test_only_later_intervals_are_given(client: httpx.Client) -> None:
    with reading(client, "?types=load") as reader:
        first, second = reader.until("load"), reader.until("load")
    later = client.get("/load", params={"since": first["at"]}).json()["items"]
    assert later[0] == second
    assert client.get("/load", params={"since": first["at"] + 1e9}).json()["items"] == []


def test_a_coarser_resolution_can_be_asked_for(client: httpx.Client) -> None:
    found = client.get("/load?since=-3600&resolution=60").json()
    assert found["resolution"] == 60


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("since=yesterday", "since"),
        ("since=nan", "since"),
        ("since=-86401", "since"),
        ("resolution=5", "resolution"),
        ("resolution=fine", "resolution"),
        ("until=5", "until"),
    ],
)
def test_wrong_parameters_are_refused(client: httpx.Client, query: str, field: str) -> None:
    assert problem_of(client.get(f"/load?{query}"), 422)["field"] == field


def test_the_stream_has_the_load_only_if_it_is_asked_for(client: httpx.Client, space: str) -> None:
    with reading(client) as all_types, reading(client, "?types=load") as reader:
        reader.until("load")
        client.put(f"/spaces/{space}-later", json=SCHEMA).raise_for_status()
        kinds = set()
        while (event := all_types.next()) and event[1].get("name") != f"{space}-later":
            kinds.add(event[0])
        assert "load" not in kinds


def test_the_load_is_for_operators(guarded: httpx.Client, stack: Stack) -> None:
    guarded.headers["Authorization"] = f"Bearer {stack.tokens['h1']}"
    problem_of(guarded.get("/stream?types=load"), 403)
    problem_of(guarded.get("/load"), 403)
    guarded.headers["Authorization"] = f"Bearer {stack.tokens['operator']}"
    assert guarded.get("/load").status_code == 200
