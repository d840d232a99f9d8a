"""A whole service that grows and shrinks while requests and events go on."""

import json
import subprocess
from pathlib import Path
from typing import Any

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
    with running(tmp_path) as service, Rest(service.url) as rest:
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
    # The stored numbers count from now on.
    with running(tmp_path, configurators=3) as service, Rest(service.url) as rest:
        it = Grown(service, rest)
        assert set(it.workers()) == FIRST
        assert any("`dzflow configurators scale 3`" in hint for hint in service.hints)
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


@needs_lab
def test_the_switches_of_a_lab_connect_to_a_new_southbound_process(tmp_path: Path) -> None:
    with running(tmp_path, data_plane="ovs") as service, Rest(service.url) as rest:
        it = Grown(service, rest)
        it.scale("southbound", 2)
        eventually(lambda: all(it.switches()), "both have switches")
        it.scale("southbound", 1)
        eventually(lambda: is_ready(service.url), "the service is ready")
        eventually(lambda: it.switches() == [3], "one has them all")
