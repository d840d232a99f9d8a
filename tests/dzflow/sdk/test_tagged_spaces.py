"""A space that asks for tags, with the whole control plane: real etcd, REST, tokens, sockets."""

import subprocess
import sys
import threading
from base64 import b64decode
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from dzflow import ControlPlane
from dzflow.sdk import Advertisement, Counters
from dzflow.sdk.events import datagrams
from dzflow.sdk.events.tags import Signer
from tests.dzflow.sdk.fake_service import STOCKS as SCHEMA
from tests.dzflow.sdk.support import EVENT, prices
from tests.etcd import TestEtcd
from tests.service import COMMAND
from tests.stack import Stack, StackOptions
from tests.support import WAIT, until_sync

# Few shapes are found quickly.
STOCKS = {**SCHEMA, "index": {"kind": "fields", "budget": 4, "shapes": 4}}
TAGGED = {**STOCKS, "authentication": "tagged"}
IDS = datagrams.EventIds()


@pytest.fixture(scope="module")
def stack(etcd_server: TestEtcd) -> Iterator[Stack]:
    with Stack(etcd_server.access(), StackOptions(topology="ring:4", trees=2)) as running:
        yield running


@pytest.fixture(autouse=True)
def operator(stack: Stack) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {stack.tokens['operator']}"}
    with httpx.Client(base_url=stack.guarded_url, headers=headers, timeout=60) as client:
        client.put("/spaces/quotes", json=TAGGED).raise_for_status()
        yield client
        client.delete("/spaces/quotes").raise_for_status()


@pytest.fixture
def hosts(stack: Stack) -> Iterator["Hosts"]:
    with ExitStack() as opened:
        yield Hosts(stack, opened)


class Hosts:
    """Applications on hosts, which end with the test."""

    def __init__(self, stack: Stack, opened: ExitStack) -> None:
        self._stack = stack
        self._opened = opened

    def at(self, host: str) -> ControlPlane:
        token = self._stack.tokens.get(host, self._stack.tokens["operator"])
        url = self._stack.guarded_url
        return self._opened.enter_context(ControlPlane(url, host, token, timeout=60.0))

    def rest(self, host: str) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self._stack.tokens[host]}"}
        url = self._stack.guarded_url
        return self._opened.enter_context(httpx.Client(base_url=url, headers=headers, timeout=60))

    def forge(self, host: str, address: int, *payloads: bytes) -> None:
        """Have a program on a host send payloads to an address."""
        endpoint = self._stack.network.endpoints()[host]
        wire = f"{endpoint[0]}:{endpoint[1]}"
        lines = "".join(f"{address:x} {payload.hex()}\n" for payload in payloads)
        command = [sys.executable, "-m", "tests.forger", wire]
        done = subprocess.run(command, input=lines, text=True, capture_output=True, timeout=WAIT)
        assert done.stdout.split() == [str(len(payloads))], done.stderr

    def signer(self, host: str, advertisement: Advertisement) -> Signer:
        """What a hostile host can make of its own key."""
        return self.signer_as(host, host, advertisement)

    def signer_as(self, host: str, claimed: str, advertisement: Advertisement) -> Signer:
        """The same under the name of another host."""
        found = self.rest(host).get(f"/advertisements/{advertisement.id}/key").json()
        assert found["host"] == host
        return Signer(claimed, found["key"], b64decode(found["secret"]), found["stream"])


def address_of(advertisement: Advertisement, event: dict[str, Any]) -> int:
    view = advertisement.view
    return view.address(view.space.keys(event), 0)


def refused(counters: Counters) -> dict[str, int]:
    names = ("untagged", "forged", "replayed", "outside", "malformed")
    return {name: n for name in names if (n := getattr(counters, name))}


def test_tagged_events_reach_every_matching_subscription_once(hosts: Hosts) -> None:
    publisher, neighbour, far = hosts.at("h1"), hosts.at("h1"), hosts.at("h3")
    subscriptions = [
        each.subscribe("quotes", "price > 100") for each in (publisher, neighbour, far, far)
    ]
    advertisement = publisher.advertise("quotes", "price < 500")
    advertisement.publish_many({"price": p, "volume": 1} for p in range(50, 150))
    for subscription in subscriptions:
        assert sorted(prices(subscription, 49)) == [*range(101, 150)]
    # An advertisement that receivers have not heard of, and a publisher.
    second = publisher.advertise("quotes", "price > 800")
    third = hosts.at("h2").advertise("quotes", {})
    second.publish({"price": 900, "volume": 1})
    third.publish({"price": 901, "volume": 1})
    advertisement.update("price between 600 and 700")
    advertisement.publish({"price": 650, "volume": 1})
    for subscription in subscriptions:
        assert sorted(prices(subscription, 3)) == [650, 900, 901]
    for each in (publisher, neighbour, far):
        assert refused(each.counters()["quotes"]) == {}


def test_a_host_cannot_publish_what_it_does_not_advertise_behind_an_allowed_address(
    hosts: Hosts,
) -> None:
    victim, hostile = hosts.at("h3"), hosts.at("h2")
    subscription = victim.subscribe("quotes", {})
    own = hostile.advertise("quotes", "price < 500")
    signer = hosts.signer("h2", own)
    lie = signer.encode(IDS.next(own.view.number, 0), {"price": 900.0, "volume": 10})
    hosts.forge("h2", address_of(own, {"price": 400.0, "volume": 10}), lie)
    until_sync(lambda: victim.counters()["quotes"].outside == 1)
    own.publish({"price": 400, "volume": 10})
    assert prices(subscription, 1) == [400]


def test_a_host_cannot_publish_into_another_space_or_as_another_host(
    hosts: Hosts, operator: httpx.Client
) -> None:
    operator.put("/spaces/other", json=TAGGED).raise_for_status()
    victim, hostile, honest = hosts.at("h3"), hosts.at("h2"), hosts.at("h1")
    subscription = victim.subscribe("quotes", {})
    also = victim.subscribe("other", {})
    advertisement = honest.advertise("quotes", {})
    elsewhere = hostile.advertise("other", {})
    behind = address_of(elsewhere, EVENT)
    number = advertisement.view.number
    cases = [
        datagrams.encode(IDS.next(number, 0), EVENT),
        hosts.signer("h2", elsewhere).encode(IDS.next(number, 0), EVENT),
        hosts.signer_as("h2", "h1", elsewhere).encode(IDS.next(number, 0), EVENT),
    ]
    hosts.forge("h2", behind, *cases)
    until_sync(lambda: victim.counters()["quotes"].received == 3)
    until_sync(lambda: refused(victim.counters()["quotes"]) == {"untagged": 1, "forged": 2})
    advertisement.publish(EVENT)
    elsewhere.publish(EVENT)
    assert prices(subscription, 1) == [500]
    assert prices(also, 1) == [500]
    for each in (victim, hostile, honest):
        each.close()
    operator.delete("/spaces/other").raise_for_status()


def test_a_recorded_event_is_delivered_once_however_often_it_is_sent(hosts: Hosts) -> None:
    victim, hostile = hosts.at("h3"), hosts.at("h2")
    subscription = victim.subscribe("quotes", {})
    own = hostile.advertise("quotes", {})
    recorded = hosts.signer("h2", own).encode(IDS.next(own.view.number, 0), EVENT)
    hosts.forge("h2", address_of(own, EVENT), recorded, recorded, recorded)
    assert prices(subscription, 1) == [500]
    until_sync(lambda: victim.counters()["quotes"].doubles == 2)
    # A receiver that starts later has not seen it, but it does not get it by itself either.
    assert victim.counters()["quotes"].delivered == 1


@pytest.mark.parametrize("grace", [120, 0])
def test_a_new_key_is_used_at_once(hosts: Hosts, operator: httpx.Client, grace: float) -> None:
    receiver, publisher = hosts.at("h3"), hosts.at("h1")
    subscription = receiver.subscribe("quotes", {})
    advertisement = publisher.advertise("quotes", {})
    old = hosts.signer("h1", advertisement)
    before = operator.get("/spaces/quotes").json()["key"]
    answer = operator.post("/spaces/quotes/key", json={"grace": grace})
    assert answer.json()["key"] == before + 1
    until_sync(lambda: advertisement.view.key == before + 1)

    def arrives() -> bool:
        advertisement.publish({"price": 1, "volume": 1})
        try:
            return subscription.get(0.5) == {"price": 1, "volume": 1}
        except TimeoutError:
            return False

    until_sync(arrives)
    found = hosts.rest("h1").get(f"/advertisements/{advertisement.id}/key").json()
    assert found["key"] == before + 1
    late = old.encode(IDS.next(advertisement.view.number, 0), EVENT)
    hosts.forge("h1", address_of(advertisement, EVENT), late)
    if grace:
        until_sync(lambda: subscription.get(WAIT)["price"] == 500)
    else:
        until_sync(lambda: receiver.counters()["quotes"].forged > 0)


def test_an_application_publishes_under_the_other_advertisements_of_its_host_when_one_ends(
    hosts: Hosts, operator: httpx.Client
) -> None:
    receiver, owner, publisher = hosts.at("h3"), hosts.at("h1"), hosts.at("h1")
    subscription = receiver.subscribe("quotes", {})
    offers = {each.id: each for each in (owner.advertise("quotes", {}) for _ in range(2))}
    advertised = publisher.advertised("quotes")
    advertised.publish(EVENT)
    assert prices(subscription, 1) == [500]
    of_host = {"host": "h1", "space": "quotes", "state": "active"}
    first = operator.get("/advertisements", params=of_host).json()["items"][0]["id"]
    offers.pop(first).close()
    operator.post("/spaces/quotes/key", json={"grace": 0}).raise_for_status()
    # The receiver refuses the former key once it has got an event under the new one.
    (other,) = offers.values()
    new = hosts.signer("h1", other).encode(IDS.next(other.view.number, 0), EVENT)
    hosts.forge("h1", address_of(other, EVENT), new)
    assert prices(subscription, 1) == [500]

    def arrives() -> bool:
        advertised.publish({"price": 1, "volume": 1})
        try:
            return subscription.get(0.5) == {"price": 1, "volume": 1}
        except TimeoutError:
            return False

    until_sync(arrives)


def test_the_command_makes_a_new_key(operator: httpx.Client, stack: Stack) -> None:
    before = operator.get("/spaces/quotes").json()["key"]
    options = ["--url", stack.guarded_url, "--token", stack.tokens["operator"]]
    done = subprocess.run(
        [COMMAND, "space", "new-key", "quotes", *options],
        capture_output=True,
        text=True,
        timeout=WAIT,
    )
    assert (done.stdout, done.stderr) == (f"{before + 1}\n", "")


def test_a_space_in_use_begins_to_ask_for_tags_and_stops_again_without_losing_events(
    hosts: Hosts, operator: httpx.Client
) -> None:
    operator.put("/spaces/plain", json=STOCKS).raise_for_status()
    receiver, publisher = hosts.at("h3"), hosts.at("h1")
    subscription = receiver.subscribe("plain", {}, queue=100_000)
    advertisement = publisher.advertise("plain", {})
    stop, sent = threading.Event(), [0]

    def publish() -> None:
        while not stop.wait(0.002):
            advertisement.publish({"price": 1, "volume": sent[0]})
            sent[0] += 1

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        for authentication, tagged in (("tagged", True), ("none", False)):
            schema = {**STOCKS, "authentication": authentication}
            operator.put("/spaces/plain", json=schema).raise_for_status()
            until_sync(lambda want=tagged: advertisement.view.tagged is want)  # type: ignore[misc]
            goal = sent[0] + 100
            until_sync(lambda more=goal: sent[0] >= more)  # type: ignore[misc]
    finally:
        stop.set()
        thread.join()
    found = [subscription.get(WAIT)["volume"] for _ in range(sent[0])]
    assert sorted(found) == [*range(sent[0])]
    assert refused(receiver.counters()["plain"]) == {}
    receiver.close()
    publisher.close()
    operator.delete("/spaces/plain").raise_for_status()


def test_keys_are_for_the_hosts_of_active_records_only(
    hosts: Hosts, operator: httpx.Client, stack: Stack
) -> None:
    one, other = hosts.rest("h1"), hosts.rest("h2")
    ask = {"host": "h1", "space": "quotes", "filter": {}}
    offer = one.post("/advertise", json=ask).json()["id"]
    want = one.post("/subscribe", json=ask).json()["id"]
    paths = [
        f"/advertisements/{offer}/key",
        f"/subscriptions/{want}/keys",
        f"/subscriptions/{want}/publishers",
    ]
    for path in paths:
        assert one.get(path).status_code == 200
        assert operator.get(path).status_code == 200
        assert other.get(path).status_code == 403
        assert httpx.get(stack.guarded_url + path).status_code == 401
    assert one.get(paths[0]).headers["cache-control"] == "no-store"
    secret = one.get(paths[1]).json()["keys"][0]["secret"]
    assert one.get(paths[0]).json()["secret"] != secret  # publishers do not get that of the space
    assert one.get(paths[2]).json() == {"items": [{"host": "h1", "filter": {}}], "next": None}
    # The wrong kind of record, and one that has ended.
    assert one.get(f"/subscriptions/{offer}/keys").status_code == 404
    assert one.get(f"/advertisements/{want}/key").status_code == 404
    # No other call shows it.
    shown = [operator.get(path).text for path in ("/spaces", "/spaces/quotes", "/backup")]
    assert not any(secret in text for text in shown)
    assert b64decode(secret).hex() not in "".join(shown)
    for verb, id in (("unadvertise", offer), ("unsubscribe", want)):
        assert one.post(f"/{verb}", json={"id": id}).status_code == 200
    for path in paths:
        assert one.get(path).status_code == 404
    assert one.post("/spaces/quotes/key", json={}).status_code == 403


def test_a_space_without_tags_has_no_keys(operator: httpx.Client) -> None:
    operator.put("/spaces/plain", json=STOCKS).raise_for_status()
    ask = {"host": "h1", "space": "plain", "filter": {}}
    offer = operator.post("/advertise", json=ask).json()["id"]
    assert operator.get(f"/advertisements/{offer}/key").status_code == 409
    assert operator.post("/spaces/plain/key", json={}).status_code == 409
    operator.post("/unadvertise", json={"id": offer}).raise_for_status()
    operator.delete("/spaces/plain").raise_for_status()


def test_a_space_keeps_its_authentication_unless_it_is_named(operator: httpx.Client) -> None:
    assert operator.put("/spaces/quotes", json=STOCKS).json()["authentication"] == "tagged"
    none = {**STOCKS, "authentication": "none"}
    assert operator.put("/spaces/quotes", json=none).json()["authentication"] == "none"
    assert operator.put("/spaces/quotes", json=TAGGED).json()["authentication"] == "tagged"
    wrong = operator.put("/spaces/quotes", json={**STOCKS, "authentication": "some"})
    assert wrong.status_code == 422


def test_a_restored_space_asks_for_tags_under_a_new_key(hosts: Hosts, stack: Stack) -> None:
    headers = {"Authorization": f"Bearer {stack.tokens['operator']}"}
    receiver = hosts.at("h3")
    with httpx.Client(base_url=stack.guarded_url, headers=headers, timeout=60) as operator:

        def secret() -> str:
            with receiver.subscribe("quotes", {}) as subscription:
                found = operator.get(f"/subscriptions/{subscription.id}/keys").json()
                return str(found["keys"][0]["secret"])

        before = secret()
        saved = operator.get("/backup").content
        operator.delete("/spaces/quotes").raise_for_status()
        content = {"Content-Type": "application/octet-stream"}
        operator.post("/restore", content=saved, headers=content).raise_for_status()
        assert operator.get("/spaces/quotes").json()["authentication"] == "tagged"
    again = hosts.at("h3")
    with again.subscribe("quotes", {}) as subscription, httpx.Client(headers=headers) as client:
        path = f"{stack.guarded_url}/subscriptions/{subscription.id}/keys"
        assert client.get(path).json()["keys"][0]["secret"] != before
