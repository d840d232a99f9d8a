"""A whole service that grows and shrinks while requests and events go on."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from api.start.up import Service
from dzflow.sdk import Rest
from tests.callers import EventFlow, RequestLoop
from tests.rest import SCHEMA
from tests.sdn.lab.support import needs_lab
from tests.service import COMMAND, LIMIT, eventually, flows, is_ready, running

FIRST = {"configurator-1"}
THREE = {f"configurator-{number}" for number in range(1, 4)}


class Grown:
    """A service that is scaled by the command and looked at by REST."""

    def __init__(self, service: Service, rest: Rest) -> None:
        self.service = service
        self.rest = rest

    def command(self, *words: str) -> str:
        """What a command prints."""
        done = subprocess.run(
            [COMMAND, *words, "--url", self.service.url],
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def scale(self, kind: str, count: int) -> None:
        """Have so many workers, and wait until it is so."""
        found = json.loads(self.command(kind, "scale", str(count), "--wait", "--json"))
        assert found == {"present": count, "wanted": count, "leaving": []}

    def workers(self, kind: str = "configurators") -> dict[str, dict[str, Any]]:
        return {each["id"]: each for each in self.rest.get(f"/{kind}")["items"]}

    def switches(self) -> list[int]:
        """How many switches each southbound process has."""
        return [each["switches"] for each in self.workers("southbound").values()]

    def owners(self, space: str | None = None) -> set[str]:
        """The configurators that own partitions, of one space or of all."""
        found = self.rest.get("/partitions")["items"]
        return {each["configurator"] for each in found if space in (None, each["space"])}

    def check(self, requests: RequestLoop) -> None:
        """All records are there, and the switches hold what they should."""
        states = {r["id"]: r["state"] for r in self.rest.records("subscription")}
        assert {states.get(id) for id in requests.kept} == {"active"}
        eventually(
            lambda: flows(self.service.url, "dp") == flows(self.service.url, "cp"),
            "the switches hold what they should",
        )


def test_a_service_grows_and_shrinks_under_traffic(tmp_path: Path) -> None:
    with running(tmp_path, configurators=2) as service, Rest(service.url) as rest:
        it = Grown(service, rest)
        rest.put_space("stocks", SCHEMA)
        with RequestLoop(service.url) as requests, EventFlow(service.url):
            requests.wait_for_more(10)
            it.scale("configurators", 3)
            eventually(lambda: it.owners() == THREE, "the new one has been given its share")
            requests.wait_for_more(20)
            answer = rest.post("/configurators", {"count": 1})
            assert (answer["wanted"], set(answer["leaving"])) == (1, THREE - FIRST)
            eventually(lambda: is_ready(service.url), "that some leave is no failure")
            rest.put_space("more", SCHEMA)
            eventually(lambda: it.owners("more"), "the owners in the new space are known")
            assert it.owners("more") == FIRST
            requests.wait_for_more(20)
            eventually(lambda: set(it.workers()) == FIRST, "the others have ended")
            requests.wait_for_more(10)

            it.scale("southbound", 2)
            eventually(
                lambda: it.switches() in ([1, 2], [2, 1]),
                "both have switches, and together all of them",
            )
            requests.wait_for_more(20)
            it.scale("southbound", 1)
            requests.wait_for_more(10)
            eventually(lambda: is_ready(service.url), "the service is ready")
        it.check(requests)
    # The same settings do not undo what was scaled.
    with running(tmp_path, configurators=2) as service, Rest(service.url) as rest:
        it = Grown(service, rest)
        assert set(it.workers()) == FIRST
        assert any("`dzflow configurators scale 2`" in hint for hint in service.hints)
        it.check(requests)


def test_in_mode_sea_configurators_come_and_go_under_traffic(tmp_path: Path) -> None:
    with running(tmp_path, mode="sea") as service, Rest(service.url) as rest:
        it = Grown(service, rest)
        rest.put_space("stocks", SCHEMA)
        with RequestLoop(service.url) as requests, EventFlow(service.url):
            requests.wait_for_more(10)
            it.scale("configurators", 3)
            assert set(it.workers()) == THREE
            requests.wait_for_more(30)
            it.scale("configurators", 1)
            assert set(it.workers()) == FIRST
            requests.wait_for_more(20)
            eventually(lambda: is_ready(service.url) and it.owners() == FIRST, "one has it all")
        it.check(requests)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grown]:
    """A service that runs the Open vSwitch lab."""
    folder = tmp_path_factory.mktemp("lab")
    with running(folder, data_plane="ovs") as service, Rest(service.url) as rest:
        yield Grown(service, rest)


@needs_lab
def test_the_switches_of_a_lab_connect_to_a_new_southbound_process(lab: Grown) -> None:
    lab.scale("southbound", 2)
    eventually(lambda: all(lab.switches()), "both have switches")
    lab.scale("southbound", 1)
    eventually(lambda: is_ready(lab.service.url), "the service is ready")
    eventually(lambda: lab.switches() == [3], "one has them all")


@needs_lab
def test_an_event_is_published_in_the_name_of_a_host_of_the_lab(lab: Grown) -> None:
    assert lab.rest.get("/about")["lab"]
    assert lab.service.lab
    lab.rest.put_space("stocks", SCHEMA)
    asked = {"host": "h1", "space": "stocks", "event": {"price": 450.0, "volume": 10}}
    lab.rest.post("/advertise", {"host": "h1", "space": "stocks", "filter": {}})
    inside = [COMMAND, "lab", "exec", "--lab", lab.service.lab]
    with ExitStack() as opened:
        listeners = []
        for host in ("h1", "h3"):
            listen = f"{COMMAND} listen --host {host} --space stocks --count 1 --json --filter"
            command = [*inside, host, "--", *listen.split(), "price > 400"]
            child = subprocess.Popen([*command, "--url", lab.service.url], stdout=subprocess.PIPE)
            opened.callback(child.wait, LIMIT)
            opened.callback(child.terminate)
            listeners.append(child)
        eventually(
            lambda: [each["state"] for each in lab.rest.records("subscription")] == ["active"] * 2,
            "both listen",
        )

        def arrived() -> bool:
            # Again if need be: the datapath follows its tables a moment later.
            found = lab.rest.post("/publish", asked)
            assert found["address"].startswith("ff1e:")
            return all(child.poll() == 0 for child in listeners)

        eventually(arrived, "the host itself and another one have got the event")
        for child in listeners:
            assert json.loads(child.communicate()[0]) == asked["event"]
