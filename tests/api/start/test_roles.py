"""Roles of a service that are started apart: `dzflow up --only ROLE`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.start.roles import Only
from api.start.up import Service
from configurators.store.server.server import free_ports
from dzflow.sdk import Rest
from tests.callers import EventFlow, RequestLoop
from tests.etcd import TestEtcd
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
        with pytest.raises(Exception, match="scale what does so, such as a StatefulSet"):
            rest.post("/southbound", {"count": 2})
