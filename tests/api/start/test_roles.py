"""Roles of a service that are started apart: `dzflow up --only ROLE`."""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.start.roles import Only
from api.start.up import Service
from configurators.store.server.server import free_ports
from dzflow.sdk import Rest
from dzflow.sdk.errors import Conflict
from tests.callers import EventFlow, RequestLoop
from tests.etcd import TestEtcd
from tests.ray_nodes import ray_with_clients
from tests.rest import SCHEMA
from tests.service import eventually, flows, is_ready, running

OUTSIDE = {"southbound_placed": "outside", "stream_token": "shared by all parts"}


class Parts:
    """Starts parts of one service, each with a data folder of its own."""

    def __init__(self, etcd: TestEtcd, folder: Path) -> None:
        access = etcd.access()
        self._folder = folder
        self._shared: dict[str, Any] = {
            **OUTSIDE,
            "etcd": {"endpoints": access.endpoints, "prefix": access.prefix},
        }

    @contextmanager
    def part(self, only: Only, name: str = "", **options: Any) -> Iterator[Service]:
        """A part that runs while the context lasts."""
        folder = self._folder / (name or only)
        with running(folder, only, **self._shared, **options) as service:
            yield service


@pytest.fixture
def parts(etcd_server: TestEtcd, tmp_path: Path) -> Parts:
    return Parts(etcd_server, tmp_path)


def held(rest: Rest) -> dict[str, int]:
    """How many switches each southbound process has."""
    found = rest.get("/southbound")["items"]
    return {each["id"]: each["switches"] for each in found if each["state"] == "up"}


def test_southbound_processes_without_ray_come_and_go_under_traffic(parts: Parts) -> None:
    first, last = 20_600, 20_640  # below the kernel's range for outgoing connections
    (probes,) = free_ports(1)
    here = {"streams": {"ports": f"{first}-{last}", "advertise": "localhost"}}
    with (
        parts.part("southbound", "sb-a", southbound_id="sb-a", **here),
        parts.part("workers"),
        parts.part("api") as api,
        Rest(api.url) as rest,
    ):
        eventually(lambda: is_ready(api.url), "the service is ready")
        assert held(rest) == {"sb-a": 3}
        (process,) = rest.get("/southbound")["items"]
        host, _, port = process["address"].partition(":")
        assert host == "localhost"
        assert first <= int(port) <= last
        rest.put_space("stocks", SCHEMA)
        with RequestLoop(api.url) as requests, EventFlow(api.url):
            requests.wait_for_more(10)
            second = {"southbound_id": "sb-b", "probes": {"port": probes}, **here}
            with parts.part("southbound", "sb-b", **second):
                ready = httpx.get(f"http://127.0.0.1:{probes}/readyz")
                assert (ready.status_code, ready.text) == (200, "ready\n")
                eventually(lambda: all(held(rest).get(id) for id in ("sb-a", "sb-b")), "shares")
                requests.wait_for_more(20)
            eventually(lambda: held(rest) == {"sb-a": 3}, "the other one has handed them over")
            requests.wait_for_more(20)
        eventually(lambda: is_ready(api.url), "nothing is impaired")
        eventually(lambda: flows(api.url, "dp") == flows(api.url, "cp"), "the switches are right")
        assert rest.get("/southbound")["wanted"] == 1, "as many as there are"
        with pytest.raises(Conflict, match="scale what does so, such as a StatefulSet"):
            rest.post("/southbound", {"count": 2})


@pytest.fixture(scope="module")
def ray_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The settings for a Ray cluster that no service has started."""
    with ray_with_clients(tmp_path_factory.mktemp("ray")) as (address, token):
        yield {"address": address, "token_path": token, "configurator_cpus": 0}


def pids(rest: Rest) -> dict[str, int]:
    """The processes of the configurators that are up."""
    found = rest.get("/configurators")["items"]
    return {each["id"]: each["pid"] for each in found if each["state"] == "up"}


def test_configurators_outlive_their_supervisors_of_which_one_acts_at_a_time(
    parts: Parts, ray_cluster: dict[str, Any]
) -> None:
    (probes,) = free_ports(1)
    with ExitStack() as first, ExitStack() as second, ExitStack() as others:
        first.enter_context(parts.part("configurators", "first", ray=ray_cluster))
        others.enter_context(parts.part("southbound"))
        others.enter_context(parts.part("network"))
        api = others.enter_context(parts.part("api"))
        rest = others.enter_context(Rest(api.url))
        eventually(lambda: len(pids(rest)) == 2, "both run")
        before = pids(rest)
        waiting = {"probes": {"port": probes}, "ray": ray_cluster}
        second.enter_context(parts.part("configurators", "second", **waiting))
        ready = httpx.get(f"http://127.0.0.1:{probes}/readyz")
        assert ready.status_code == 200, "to wait for its turn is no failure"

        first.close()
        eventually(lambda: rest.get("/readyz")["ready"], "the second one supervises")
        scale(rest, 3)
        eventually(lambda: len(pids(rest)) == 3, "there is another one")
        assert before.items() <= pids(rest).items(), "those that were there have stayed"
        os.kill(before["configurator-1"], signal.SIGKILL)
        eventually(
            lambda: pids(rest).get("configurator-1", 0) not in (0, before["configurator-1"]),
            "one that dies is restarted",
        )
        eventually(lambda: is_ready(api.url), "nothing is impaired")

        second.close()
        rest.put_space("stocks", SCHEMA)
        rest.begin("advertisement", "h2", "stocks", {})
        assert rest.begin("subscription", "h1", "stocks", "price > 5")["state"] == "active"
        with pytest.raises(Conflict, match="no process starts and ends workers now"):
            rest.post("/configurators", {"count": 2})

        last = pids(rest)
        with parts.part("configurators", "third", slices={"limit": 77}, ray=ray_cluster):
            eventually(
                lambda: len(pids(rest)) == 3 and not last.items() & pids(rest).items(),
                "those that were made with other settings have been replaced",
            )
            assert rest.begin("subscription", "h1", "stocks", "price > 6")["state"] == "active"
        with parts.part("down", ray={**ray_cluster, "namespace": "another"}):
            assert len(pids(rest)) == 3, "there is none in this namespace"
        with parts.part("down", ray=ray_cluster):
            eventually(lambda: pids(rest) == {}, "all have ended")


def scale(rest: Rest, count: int) -> None:
    """Have so many configurators, as soon as a process supervises them."""

    def accepted() -> bool:
        try:
            return bool(rest.post("/configurators", {"count": count})["wanted"] == count)
        except Conflict:
            return False

    eventually(accepted, "a process starts and ends configurators")
