"""`POST /publish`: an event in the name of an emulated host, through the emulated network.

That of a host of the lab is in tests/api/start/test_scaling.py, with a service that runs one.
"""

import httpx
import pytest

from dzflow import ControlPlane
from tests.rest import SCHEMA, advertisement, problem_of, subscription
from tests.stack import Stack

EVENT = {"price": 450.0, "volume": 10}


def asked(space: str, host: str = "h1", **event: object) -> dict[str, object]:
    return {"host": host, "space": space, "event": EVENT | event}


def test_an_event_reaches_the_applications_that_want_it(
    client: httpx.Client, space: str, stack: Stack
) -> None:
    client.post("/advertise", json=advertisement(space)).raise_for_status()
    with (
        ControlPlane(stack.url, host="h3") as far,
        ControlPlane(stack.url, host="h1") as same,
        far.subscribe(space, "price > 400") as events,
        same.subscribe(space, "price > 400") as copies,
    ):
        sent = client.post("/publish", json=asked(space))
        assert sent.status_code == 202
        found = sent.json()
        for received in (events.get(timeout=60), copies.get(timeout=60)):
            assert (received, str(received.id)) == (EVENT, found["id"])
        assert found["address"].startswith("ff1e:")
        assert found["tree"] == 0
    sums = client.get("/reports?host=h1").json()["items"]
    assert next(one for one in sums if one["space"] == space)["counters"]["published"] == 1


def test_a_repeated_call_sends_the_event_once(
    client: httpx.Client, space: str, stack: Stack
) -> None:
    client.post("/advertise", json=advertisement(space)).raise_for_status()
    with (
        ControlPlane(stack.url, host="h3") as control_plane,
        control_plane.subscribe(space, "price > 400") as events,
    ):
        key = {"Idempotency-Key": f"publish-in-{space}"}
        first, again = (client.post("/publish", json=asked(space), headers=key) for _ in range(2))
        assert (first.status_code, first.json()) == (202, again.json())
        client.post("/publish", json=asked(space, price=999.0)).raise_for_status()
        assert [events.get(timeout=60)["price"] for _ in range(2)] == [450.0, 999.0]


def test_an_event_that_the_host_does_not_advertise_is_refused(
    client: httpx.Client, space: str
) -> None:
    found = problem_of(client.post("/publish", json=asked(space)), 409)
    assert "h1 has no active advertisement" in found["detail"]
    client.post("/advertise", json=advertisement(space, filter="price < 100")).raise_for_status()
    found = problem_of(client.post("/publish", json=asked(space)), 409)
    assert "none of the 1 active advertisements" in found["detail"]


def test_an_event_must_fit_the_space(client: httpx.Client, space: str) -> None:
    client.post("/advertise", json=advertisement(space)).raise_for_status()
    assert problem_of(client.post("/publish", json=asked(space, price=-1)), 422)["field"] == "price"
    problem_of(client.post("/publish", json=asked(space, colour="red")), 422)
    problem_of(client.post("/publish", json={"host": "h1", "space": space}), 422)
    problem_of(client.post("/publish", json=asked("nowhere")), 404)
    problem_of(client.post("/publish", json=asked(space, host="h99")), 404)


def test_real_hosts_publish_by_themselves(
    client: httpx.Client, space: str, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.post("/advertise", json=advertisement(space)).raise_for_status()
    monkeypatch.delitem(stack.dispatcher.catalogue.wires, "h1")
    found = problem_of(client.post("/publish", json=asked(space)), 409)
    assert "neither emulated nor in a lab" in found["detail"]
    # The service has a lab, but none that this process can see.
    with stack.serving(lab="a service that is elsewhere") as url:
        found = problem_of(httpx.post(f"{url}/publish", json=asked(space), timeout=60), 409)
        assert "dzflow lab exec h1 -- dzflow publish" in found["detail"]
    sums = client.get("/reports?host=h1").json()["items"]
    assert [one for one in sums if one["space"] == space] == []


def test_an_emulated_network_that_is_elsewhere_does_not_get_the_event(
    client: httpx.Client, space: str, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Kubernetes, where it is in a pod of its own: its address leads nowhere here."""
    client.post("/advertise", json=advertisement(space)).raise_for_status()
    nowhere = ("127.0.0.1", 9)
    monkeypatch.setitem(stack.dispatcher.catalogue.wires, "h1", nowhere)
    found = problem_of(client.post("/publish", json=asked(space)), 409)
    assert "nothing answers at its endpoint" in found["detail"]
    sums = client.get("/reports?host=h1").json()["items"]
    assert [one for one in sums if one["space"] == space] == []


def test_events_with_tags_are_for_hosts_with_keys(client: httpx.Client) -> None:
    client.put("/spaces/tagged-events", json={**SCHEMA, "authentication": "tagged"})
    client.post("/advertise", json=advertisement("tagged-events")).raise_for_status()
    found = problem_of(client.post("/publish", json=asked("tagged-events")), 409)
    assert "carry tags" in found["detail"]


def test_a_host_publishes_for_itself_only(
    guarded: httpx.Client, client: httpx.Client, space: str, stack: Stack
) -> None:
    client.post("/advertise", json=[advertisement(space), advertisement(space, host="h2")])
    guarded.headers["Authorization"] = f"Bearer {stack.tokens['h1']}"
    problem_of(guarded.post("/publish", json=asked(space, host="h2")), 403)
    assert guarded.post("/publish", json=asked(space)).status_code == 202


def test_a_call_counts_as_a_request_of_the_host(
    client: httpx.Client, space: str, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.post("/advertise", json=advertisement(space)).raise_for_status()
    charged: list[str] = []
    intake = stack.dispatcher._parts.intake
    check = intake.check_call

    def note(payer: str) -> None:
        charged.append(payer)
        check(payer)

    monkeypatch.setattr(intake, "check_call", note)
    client.post("/publish", json=asked(space)).raise_for_status()
    assert charged == ["h1"]


def test_subscribing_is_not_enough_to_publish(client: httpx.Client, space: str) -> None:
    client.post("/subscribe", json=subscription(space, host="h1")).raise_for_status()
    problem_of(client.post("/publish", json=asked(space)), 409)
