"""Hosts that were heard, over REST and by the command: list, accept, reject."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from sdn.openflow.protocol.messages import Port
from tests.command import run_dzflow
from tests.etcd import TestEtcd
from tests.rest import SCHEMA, advertisement, problem_of, subscription
from tests.sdn.openflow.cables import advertisement as announcement
from tests.stack import Stack, StackOptions
from tests.support import until_sync

PATH = "/host-proposals"


@pytest.fixture(scope="module")
def stack(etcd_server: TestEtcd) -> Iterator[Stack]:
    """A control plane that learns hosts; those of the emulated network are declared."""
    with Stack(etcd_server.access(), StackOptions(hosts="propose")) as running:
        yield running


def mac(number: int) -> str:
    return f"02:00:00:00:0d:{number:02x}"


def id_of(number: int) -> str:
    return f"host-02000000 0d{number:02x}".replace(" ", "")


def speak(stack: Stack, number: int, port: int, switch: str = "s1", address: str = "") -> str:
    """Have a host announce itself at a port where there was none; its id when it is proposed."""

    async def plug_in() -> None:
        there = stack.network.switches[switch]
        if all(one.number != port for one in there.ports):
            there.add_port(Port(port, f"p{port}", f"02:aa:00:00:00:{port:02x}", up=True))
        said = address or f"fd00::d:{number:x}"
        there.receive(announcement(mac(number), said), port)

    def heard() -> bool:
        stack.run(plug_in())  # the first ones may come before the switch sends them on
        return any(one["id"] == id_of(number) for one in proposals(stack))

    until_sync(heard)
    return id_of(number)


def proposals(stack: Stack) -> list[dict[str, Any]]:
    found = httpx.get(f"{stack.url}{PATH}", timeout=60).json()
    assert found["mode"] == "propose"
    items: list[dict[str, Any]] = found["items"]
    return items


def test_a_host_is_proposed_accepted_and_used(stack: Stack, client: httpx.Client) -> None:
    id = speak(stack, 1, 40)
    [found] = [one for one in proposals(stack) if one["id"] == id]
    assert found["since"] > 1e9
    del found["since"]
    assert found == {
        "id": id,
        "switch": "s1",
        "port": 40,
        "mac": mac(1),
        "ipv6": "fd00::d:1",
        "state": "proposed",
        "problem": None,
        "doubt": None,
    }
    elsewhere = {"id": "guest", "switch": "s2", "port": 40}
    problem_of(client.post(f"{PATH}/{id}/accept", json=elsewhere), 409)
    where = {"id": "guest", "switch": "s1", "port": 40}
    made = client.post(f"{PATH}/{id}/accept", json=where)
    assert made.status_code == 201
    assert made.json()["id"] == "guest"
    assert client.post(f"{PATH}/{id}/accept", json=where).status_code == 200
    assert all(one["id"] != id for one in proposals(stack))
    client.put("/spaces/learned", json=SCHEMA).raise_for_status()
    client.post("/advertise", json=advertisement("learned")).raise_for_status()
    body = subscription("learned", host="guest")
    assert client.post("/subscribe", json=body).status_code == 201


def test_bad_decisions_are_refused(stack: Stack, client: httpx.Client) -> None:
    id = speak(stack, 2, 41)
    for what in ("accept", "reject"):
        problem_of(client.post(f"{PATH}/nobody/{what}", json={}), 404)
    problem_of(client.post(f"{PATH}/{id}/accept", json={"id": "h1"}), 409)
    for bad in ({"id": "no spaces"}, {"port": 0}, {"more": 1}, {"id": 7}):
        problem_of(client.post(f"{PATH}/{id}/accept", json=bad), 400, 422)
    forged = speak(stack, 3, 42, address="fd00::d:2")
    assert all(one["doubt"] for one in proposals(stack) if one["id"] in (id, forged))
    client.put("/hosts/real", json={"switch": "s2", "port": 50, "mac": mac(3)}).raise_for_status()
    until_sync(lambda: any(one["id"] == forged and one["problem"] for one in proposals(stack)))
    problem = problem_of(client.post(f"{PATH}/{forged}/accept", json={"id": "x"}), 409)
    assert "MAC of host real" in problem["detail"]


def test_the_metric_and_the_stream_tell_of_proposals(stack: Stack, client: httpx.Client) -> None:
    with client.stream("GET", "/stream", params={"types": "proposals"}) as answer:
        lines = answer.iter_lines()

        def told(version: int = 0, rejected: int = 0) -> dict[str, Any]:
            """The first summary after this version with at least so many that were rejected."""
            for line in lines:
                if line.startswith("data: "):
                    found: dict[str, Any] = json.loads(line[6:])
                    if found["version"] > version and found["rejected"] >= rejected:
                        return found
            raise AssertionError("the stream has ended")

        first = told()
        id = speak(stack, 4, 43)
        second = told(first["version"])
        assert second["rejected"] == first["rejected"]
        client.post(f"{PATH}/{id}/reject").raise_for_status()
        third = told(second["version"], first["rejected"] + 1)
        assert third["mode"] == "propose"
    shown = client.get("/metrics").text
    assert f'dzflow_host_proposals{{state="rejected"}} {third["rejected"]}.0' in shown


def test_hosts_tokens_see_no_proposals(stack: Stack) -> None:
    headers = {"Authorization": f"Bearer {stack.tokens['h1']}"}
    with httpx.Client(base_url=stack.guarded_url, headers=headers, timeout=60) as guest:
        problem_of(guest.get(PATH), 403)
        problem_of(guest.post(f"{PATH}/host-02/accept", json={}), 403)
        problem_of(guest.get("/stream", params={"types": "proposals"}), 403)


def test_the_command_lists_accepts_and_rejects(stack: Stack) -> None:
    one, two, three = (speak(stack, number, 50 + number) for number in (5, 6, 7))

    def dzflow(*words: str) -> tuple[int, str]:
        done = run_dzflow("hosts", *words, "--url", stack.url, env={"COLUMNS": "300"})
        return done.returncode, done.stdout + done.stderr

    code, shown = dzflow("proposals")
    assert code == 0
    assert {one, two, three} <= set(shown.split())
    assert dzflow("reject", one, two)[0] == 0
    code, shown = dzflow("accept", one, "--name", "porter")
    assert (code, shown) == (0, "porter has joined at port 55 of s1\n")
    code, shown = dzflow("accept", "--all")
    assert code == 0
    assert three in shown
    assert two not in shown  # it was rejected
    code, shown = dzflow()
    assert {"porter", three, "h1"} <= set(shown.split())
    for words in ((), (three, "--all"), (one, two, "--name", "x"), ("--all", "--name", "x")):
        code, shown = dzflow("accept", *words)
        assert code == 1
        assert "--all" in shown
    assert dzflow("accept", "nobody")[0] == 1
