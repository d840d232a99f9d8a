"""Switches and links of a discovered network over REST, and by the command."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import httpx
import pytest

from dispatcher.changes.damping import Patience
from sdn.network.switch_limits import SwitchLimits
from sdn.network.topologies import topology
from sdn.network.topology import Link, Switch
from sdn.network.topology_file import load_topology
from tests.command import run_dzflow
from tests.etcd import TestEtcd
from tests.rest import problem_of
from tests.stack import Stack, StackOptions
from tests.stack_switches import switches_of
from tests.support import until_sync

LINE = topology("line:3")
FOUND, HIDDEN = LINE.links
SOON = Patience(down_after=0.3, back_after=0.3, silent_after=0.3)


@contextmanager
def discovered(server: TestEtcd) -> Iterator[Stack]:
    """A stack that has found the switches of a line, and all its links but one."""
    options = StackOptions(openflow="127.0.0.1:0", patience=SOON, more={"settled_after": 0.3})
    with (
        Stack(server.access(), options) as stack,
        switches_of(stack, LINE, lambda network: network.hide(HIDDEN)),
    ):
        until_sync(lambda: (len(links(stack)), ups(stack)) == (1, 3))
        yield stack


def seen(stack: Stack) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"{stack.url}/topology", timeout=60).json()
    return found


def links(stack: Stack) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = seen(stack)["links"]
    return found


def ups(stack: Stack) -> int:
    return sum(switch["state"] == "up" for switch in seen(stack)["switches"])


@pytest.fixture(scope="module")
def stack(etcd_server: TestEtcd) -> Iterator[Stack]:
    with discovered(etcd_server) as running:
        yield running


@pytest.fixture
def client(stack: Stack) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=stack.url, timeout=60) as made:
        yield made


def run(stack: Stack, *words: str) -> "CompletedProcess[str]":
    return run_dzflow("topology", *words, "--url", stack.url)


HERE = "s2:9-s3:9"


@pytest.mark.parametrize(
    ("path", "body", "status", "field"),
    [
        ("/switches/s9", {}, 422, "dpid"),
        ("/switches/s9", {"dpid": 1}, 422, "dpid"),
        ("/switches/s9", {"dpid": 0}, 422, "dpid"),
        ("/switches/s9", {"dpid": 1 << 64}, 422, "dpid"),
        ("/switches/s9", {"dpid": 9, "rate": -1}, 422, "rate"),
        ("/switches/s9", {"dpid": 9, "tables": [9, 8]}, 422, "tables"),
        ("/switches/s9", {"dpid": 9, "tables": [9, 300]}, 422, "tables[1]"),
        ("/switches/s9", {"dpid": 9, "ports": 4}, 422, "ports"),
        ("/switches/s9", {"dpid": 9, "label": "x" * 201}, 422, "label"),
        ("/switches/%20", {"dpid": 9}, 422, "id"),
        ("/switches/s1", {"dpid": 9}, 409, None),
        ("/switches/s1", {"tables": [60, 90]}, 409, None),
        ("/links/s1-s2", {}, 422, "id"),
        ("/links/s1:9-s1:8", {}, 422, "id"),
        ("/links/s1:9-s4:9", {}, 422, "id"),
        ("/links/s1:1-s3:9", {}, 422, "id"),
        ("/links/s1:9-s3:70000", {}, 422, "id"),
        (f"/links/{HERE}", {"lldp": "no"}, 422, "lldp"),
        (f"/links/{HERE}", {"cost": 1}, 422, "cost"),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(
    client: httpx.Client, stack: Stack, path: str, body: object, status: int, field: str | None
) -> None:
    before = seen(stack)
    problem = problem_of(client.put(path, json=body), status)
    assert problem.get("field") == field, problem
    after = seen(stack)
    assert [(s["id"], s["dpid"], s["limits"]) for s in after["switches"]] == [
        (s["id"], s["dpid"], s["limits"]) for s in before["switches"]
    ]
    assert after["links"] == before["links"]


def test_a_port_of_a_host_is_no_port_of_a_link(client: httpx.Client) -> None:
    place = {"switch": "s1", "port": 7}
    assert client.put("/hosts/h7", json=place).status_code == 201
    problem = problem_of(client.put("/links/s1:7-s3:7", json={}), 422)
    assert "port 7 of s1 is taken by host h7" in problem["detail"]
    assert client.delete("/hosts/h7").status_code == 200


def test_a_switch_and_a_link_are_added_changed_exported_and_removed(
    stack: Stack, client: httpx.Client, tmp_path: Path
) -> None:
    made = client.put("/switches/s9", json={"dpid": 9, "rate": 45, "label": "rack 3"})
    assert (made.status_code, made.json()["limits"]) == (201, {"rate": 45})
    words = ("--dpid", "0x9", "--rate", "50", "--tables", "10-90", "--label", "rack 4")
    done = run(stack, "declare", "s9", *words)
    assert (done.returncode, done.stderr) == (0, "s9 is changed\n")
    [switch] = [one for one in client.get("/switches").json()["items"] if one["id"] == "s9"]
    assert (switch["limits"], switch["label"]) == ({"rate": 50, "tables": [10, 90]}, "rack 4")

    hidden = f"{HIDDEN.a}:{HIDDEN.a_port}-{HIDDEN.b}:{HIDDEN.b_port}"
    done = run(stack, "declare", hidden)
    assert (done.returncode, done.stderr) == (0, f"{hidden} is added\n")
    assert client.put(f"/links/{hidden}", json={}).status_code == 200
    assert run(stack, "declare", "s1:8-s9:1").returncode == 0
    states = [(True, True), (False, False), (True, False)]  # s1 has no port 8
    until_sync(lambda: [(one["up"], one["lldp"]) for one in links(stack)] == states)
    assert "not probed" in run(stack).stdout

    file = tmp_path / "network.yaml"
    assert run(stack, "export", str(file)).returncode == 0
    written = load_topology(file)
    assert written.switch("s9") == Switch("s9", 9, SwitchLimits(rate=50, tables=(10, 90)), "rack 4")
    assert written.unprobed == {HIDDEN, Link("s1", 8, "s9", 1)}

    assert run(stack, "forget", "s9").stderr == "s9 is removed\n"
    gone = client.delete(f"/links/{hidden}")
    assert (gone.status_code, gone.json()["lldp"]) == (202, False)
    until_sync(lambda: len(links(stack)) == 1)
    problem_of(client.delete(f"/links/{hidden}"), 404)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("s1:1-s2:1", "--dpid", "7"), "is a link, which has no dpid"),
        (("s9", "--dpid", "7", "--lldp"), "is a switch, which has no lldp"),
        (("s9", "--dpid", "seven"), "seven is no number"),
        (("s9", "--dpid", "7", "--tables", "9"), "9 is no range"),
        (("s9",), "s9' is new"),
        (("s9", "--dpid", "0000000000000001"), "s1 has datapath id 0x1 already"),
    ],
)
def test_the_command_says_what_is_wrong(stack: Stack, words: tuple[str, ...], text: str) -> None:
    done = run(stack, "declare", *words)
    assert done.returncode == 1
    assert text in " ".join(done.stderr.split())


def test_a_described_network_does_not_change(etcd_server: TestEtcd) -> None:
    with (
        Stack(etcd_server.access(), StackOptions(topology="line:2")) as described,
        httpx.Client(base_url=described.url, timeout=60) as client,
    ):
        for path, body in (("/switches/s9", {"dpid": 9}), ("/links/s1:7-s2:7", {})):
            problem = problem_of(client.put(path, json=body), 409)
            assert "described at the first start" in problem["detail"]
        assert [switch["id"] for switch in seen(described)["switches"]] == ["s1", "s2"]
