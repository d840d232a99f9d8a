"""`POST /explain` with an event: how it would travel, by the tables of the control plane."""

import random
from typing import Any

import httpx
import pytest

from dzflow.filters import parse_filter
from dzflow.space import Space
from tests.rest import SCHEMA, advertisement, problem_of, subscription
from tests.stack import Stack

EVENT = {"price": 450, "volume": 10}


def path_of(client: httpx.Client, space: str, event: dict[str, Any], host: str = "h1") -> Any:
    answer = client.post("/explain", json={"space": space, "event": event, "host": host})
    assert answer.status_code == 200, answer.text
    return answer.json()["event"]


def test_an_event_is_followed_hop_by_hop(client: httpx.Client, space: str) -> None:
    client.post("/advertise", json=advertisement(space)).raise_for_status()
    client.post("/subscribe", json=subscription(space, host="h3")).raise_for_status()
    found = client.post("/explain", json={"space": space, "event": EVENT, "host": "h1"}).json()
    assert (found["regions"], found["false_share"], found["flows"]) == ([], None, [])
    path = found["event"]
    assert path["address"].startswith("ff1e:")
    assert (path["admitted"], path["reason"], path["tree"]) == (True, None, 0)
    ways = [
        (h["from"], h["switch"], [t.get("switch", t.get("host")) for t in h["to"]])
        for h in path["hops"]
    ]
    assert ways == [("h1", "s1", ["s2"]), ("s1", "s2", ["s3"]), ("s2", "s3", ["h3"])]
    assert (path["delivered"], path["unwanted"], path["missed"]) == (["h3"], [], [])


def test_hosts_that_get_an_event_are_those_whose_filters_match(
    client: httpx.Client, space: str
) -> None:
    chance = random.Random(14)
    client.post("/advertise", json=advertisement(space, host="h2")).raise_for_status()
    filters = [
        (f"h{chance.randint(1, 3)}", f"price between {low} and {low + 90} and volume < {most}")
        for low, most in ((chance.randint(0, 900), chance.randint(1, 1000)) for _ in range(12))
    ]
    wanted = [subscription(space, host=host, filter=text) for host, text in filters]
    client.post("/subscribe", json=wanted).raise_for_status()
    schema = Space.from_json(space, SCHEMA)
    parsed = [(host, parse_filter(schema, text)) for host, text in filters]
    unwanted = 0
    for _ in range(40):
        event = {"price": chance.uniform(0, 1000), "volume": chance.randint(0, 1000)}
        keys = schema.keys(event)
        expected = {host for host, one in parsed if host != "h2" and one.matches(keys)}
        path = path_of(client, space, event, "h2")
        assert path["missed"] == []
        assert set(path["delivered"]) - set(path["unwanted"]) == expected
        unwanted += len(path["unwanted"])
    assert unwanted > 0, "regions are coarser than filters: some hosts get more than they want"


def test_an_event_outside_the_advertisements_is_not_admitted(
    client: httpx.Client, space: str
) -> None:
    client.post("/subscribe", json=subscription(space, host="h3")).raise_for_status()
    path = path_of(client, space, EVENT)
    assert not path["admitted"]
    assert "no active advertisement" in path["reason"]
    body = advertisement(space, filter="price < 100")
    client.post("/advertise", json=body).raise_for_status()
    path = path_of(client, space, EVENT)
    assert not path["admitted"]
    assert "none of the 1 active advertisements of host h1" in path["reason"]
    assert [(hop["switch"], hop["to"]) for hop in path["hops"]] == [("s1", [])]
    assert (path["delivered"], path["unwanted"], path["missed"]) == ([], [], [])
    assert path_of(client, space, {"price": 50, "volume": 1})["admitted"]


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"event": {"price": 1, "volume": 1, "colour": 1}, "host": "h1"}, "colour"),
        ({"event": {"price": 1}, "host": "h1"}, "volume"),
        ({"event": {"price": 1_001, "volume": 1}, "host": "h1"}, "price"),
        ({"event": {"price": "x", "volume": 1}, "host": "h1"}, "price"),
        ({"event": [1], "host": "h1"}, "event"),
        ({"event": EVENT}, "host"),
        ({"host": "h1"}, "filter"),
    ],
)
def test_a_wrong_question_names_the_field(
    client: httpx.Client, quiet: str, more: dict[str, Any], field: str
) -> None:
    assert problem_of(client.post("/explain", json={"space": quiet, **more}), 422)["field"] == field


@pytest.mark.parametrize(
    ("filter", "field", "position"),
    [
        ("price > ", "filter", 8),
        ("price > 3 and & volume", "filter", 14),
        ("price > 3 and 4 < colour", "colour", 18),
        ("price > 3 or volume prefix 'x'", "volume", 13),
        ("price > 3 and not volume in [7, 'x']", "volume", 18),
    ],
)
def test_an_error_in_a_filter_says_where_it_is(
    client: httpx.Client, quiet: str, filter: str, field: str, position: int
) -> None:
    problem = problem_of(client.post("/explain", json={"space": quiet, "filter": filter}), 422)
    assert (problem["field"], problem["position"]) == (field, position)
    problem = problem_of(client.post("/subscribe", json=subscription(quiet, filter=filter)), 422)
    assert problem["position"] == position


def test_a_host_learns_nothing_of_what_other_hosts_want(
    client: httpx.Client, guarded: httpx.Client, stack: Stack, space: str
) -> None:
    client.post("/advertise", json=advertisement(space)).raise_for_status()
    guarded.headers["Authorization"] = f"Bearer {stack.tokens['h1']}"
    before = path_of(guarded, space, EVENT)
    assert before["admitted"]
    assert {before[name] for name in ("hops", "delivered", "unwanted", "missed")} == {None}
    client.post("/subscribe", json=subscription(space)).raise_for_status()
    assert path_of(guarded, space, EVENT) == before
    asked = {"space": space, "event": EVENT, "host": "h2"}
    problem_of(guarded.post("/explain", json=asked), 403)
    guarded.headers["Authorization"] = f"Bearer {stack.tokens['operator']}"
    assert path_of(guarded, space, EVENT)["delivered"] == ["h2"]
