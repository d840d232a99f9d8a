"""A service whose switches are not connected says so, and serves requests."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from api.start.up import Service
from configurators.store.server.server import free_ports
from dzflow.sdk import Rest
from sdn.network.topologies import topology
from tests.outside import outside_network
from tests.service import COMMAND, SCHEMA, eventually, is_ready, running

SWITCHES = {"s1", "s2", "s3"}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that waits for switches of others."""
    folder, ports = tmp_path_factory.mktemp("degraded"), free_ports(1)
    with running(folder, data_plane="external", openflow={"ports": ports}) as started:
        yield started


def status(url: str, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [COMMAND, "status", "--url", url, *words]
    variables = {"COLUMNS": "200", "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, capture_output=True, text=True, env=variables, timeout=60)


def impaired(url: str) -> dict[str, Any]:
    """What /readyz says is impaired, by id."""
    return {each["id"]: each for each in httpx.get(f"{url}/readyz", timeout=60).json()["impaired"]}


def test_without_switches_the_service_is_degraded_and_names_them(service: Service) -> None:
    answer = httpx.get(f"{service.url}/readyz", timeout=60)
    found = answer.json()
    assert (answer.status_code, found["status"], found["ready"]) == (200, "degraded", True)
    assert (found["switches_up"], found["switches"], found["reasons"]) == (0, 3, [])
    assert {each["id"] for each in found["impaired"] if each["kind"] == "switch"} == SWITCHES
    first = impaired(service.url)["s1"]
    assert first["reason"]
    with Rest(service.url) as rest:
        rest.put_space("stocks", SCHEMA)
    assert impaired(service.url)["s1"]["since"] == first["since"]
    metrics = httpx.get(f"{service.url}/metrics", timeout=60).text
    assert 'dzflow_impaired{kind="switch"} 3.0' in metrics


def test_the_command_shows_what_is_degraded(service: Service) -> None:
    done = status(service.url)
    assert done.returncode == 0
    assert "degraded" in done.stdout
    for switch in SWITCHES:
        assert switch in done.stdout
    found = json.loads(status(service.url, "--json").stdout)
    assert found["status"] == "degraded"
    assert {each["id"] for each in found["impaired"]} >= SWITCHES


def test_with_its_switches_the_service_is_ready_and_without_them_degraded_again(
    service: Service,
) -> None:
    (port,) = service.settings.openflow.ports
    with outside_network(topology("line:3"), port):
        eventually(lambda: is_ready(service.url), "all switches are connected")
        assert status(service.url).stdout.strip().endswith("ready")
    eventually(lambda: set(impaired(service.url)) >= SWITCHES, "the switches are missed")
