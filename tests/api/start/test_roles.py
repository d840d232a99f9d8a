"""Roles of a service that are started apart: `dzflow up --only ROLE`."""

import json
import os
import signal
import subprocess
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
from sdn.network.topologies import topology
from tests.balancer import Balancer
from tests.callers import EventFlow, RequestLoop
from tests.etcd import TestEtcd
from tests.outside import outside_network
from tests.ray_nodes import ClientCluster, ray_with_clients
from tests.rest import SCHEMA
from tests.service import COMMAND, LIMIT, Up, eventually, flows, is_ready, running

# Below the ports that other tests choose.
STREAMS = range(19_600, 19_641)
STREAM_PORTS = f"{STREAMS[0]}-{STREAMS[-1]}"

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


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientCluster]:
    """A Ray cluster that no service has started."""
    with ray_with_clients(tmp_path_factory.mktemp("ray")) as found:
        yield found


@pytest.fixture
def ray_cluster(cluster: ClientCluster) -> dict[str, Any]:
    """The settings for it."""
    return {"address": cluster.address, "token_path": cluster.token, "configurator_cpus": 0}


def pids(rest: Rest) -> dict[str, int]:
    """The processes of the configurators that are up."""
    found = rest.get("/configurators")["items"]
    return {each["id"]: each["pid"] for each in found if each["state"] == "up"}


def check_southbound(parts: Parts, rest: Rest) -> None:
    """A southbound process has what the settings say, and another one comes and goes."""
    (process,) = rest.get("/southbound")["items"]
    host, _, port = process["address"].partition(":")
    assert host == "localhost", "what is advertised"
    assert int(port) in STREAMS
    with pytest.raises(Conflict, match="scale what does so, such as a StatefulSet"):
        rest.post("/southbound", {"count": 2})
    (probes,) = free_ports(1)
    with parts.part("southbound", "sb-b", southbound_id="sb-b", probes={"port": probes}):
        ready = httpx.get(f"http://127.0.0.1:{probes}/readyz")
        assert (ready.status_code, ready.text) == (200, "ready\n")
        eventually(lambda: all(held(rest).get(id) for id in ("sb-a", "sb-b")), "both have some")
    eventually(lambda: held(rest) == {"sb-a": 3}, "the other one has handed its switches over")
    assert rest.get("/southbound")["wanted"] == 1, "as many as there are"


def test_configurators_outlive_their_supervisors_of_which_one_acts_at_a_time(
    parts: Parts, cluster: ClientCluster, ray_cluster: dict[str, Any]
) -> None:
    (probes,) = free_ports(1)
    given: dict[str, Any] = {"streams": {"ports": STREAM_PORTS}, "ray": ray_cluster}
    with ExitStack() as first, ExitStack() as second, ExitStack() as others:
        first.enter_context(parts.part("configurators", "first", **given))
        here = {"ports": STREAM_PORTS, "advertise": "localhost"}
        others.enter_context(parts.part("southbound", southbound_id="sb-a", streams=here))
        others.enter_context(parts.part("network"))
        api = others.enter_context(parts.part("api"))
        rest = others.enter_context(Rest(api.url))
        eventually(lambda: len(pids(rest)) == 2, "both run")
        before = pids(rest)
        listening = cluster.listening()
        assert len(listening.intersection(STREAMS)) == 2, "one for each configurator"
        assert listening - {*STREAMS} <= cluster.ports, "Ray takes no other port"
        check_southbound(parts, rest)
        waiting = parts.part("configurators", "second", probes={"port": probes}, **given)
        second.enter_context(waiting)
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
        with parts.part("configurators", "third", slices={"limit": 77}, **given):
            eventually(
                lambda: len(pids(rest)) == 3 and not last.items() & pids(rest).items(),
                "those that were made with other settings have been replaced",
            )
            assert rest.begin("subscription", "h1", "stocks", "price > 6")["state"] == "active"
        with parts.part("down", ray={**ray_cluster, "namespace": "another"}):
            assert len(pids(rest)) == 3, "there is none in this namespace"
        with parts.part("down", ray=ray_cluster):
            eventually(lambda: pids(rest) == {}, "all have ended")


def test_parts_find_a_network_that_nobody_described(
    parts: Parts, ray_cluster: dict[str, Any]
) -> None:
    """Two southbound processes, and switches that have both as controllers."""
    shape = topology("ring:4")
    ports = free_ports(2)
    given: dict[str, Any] = {"data_plane": "external", "topology": None, "ray": ray_cluster}
    with ExitStack() as stack:
        for name, port in zip(("sb-a", "sb-b"), ports, strict=True):
            openflow = {"ports": [port]}
            each = parts.part("southbound", name, southbound_id=name, openflow=openflow, **given)
            stack.enter_context(each)
        stack.enter_context(parts.part("configurators", **given))
        api = stack.enter_context(parts.part("api", **given))
        rest = stack.enter_context(Rest(api.url))
        assert rest.get("/topology")["switches"] == []
        stack.enter_context(outside_network(shape, *ports))
        eventually(lambda: found(rest) == (4, 4), "all switches and links are found")
        eventually(lambda: all(held(rest).values()), "both processes have some of the switches")
        for host in shape.hosts[:2]:
            rest.put(f"/hosts/{host.id}", {"switch": host.switch, "port": host.port})
        rest.put_space("stocks", SCHEMA)
        rest.begin("advertisement", shape.hosts[0].id, "stocks", {})
        made = rest.begin("subscription", shape.hosts[1].id, "stocks", "price > 5")
        assert made["state"] == "active"
        assert flows(api.url, "dp") == flows(api.url, "cp") != []
    with parts.part("down", **given):
        pass  # its start ends the configurators


def found(rest: Rest) -> tuple[int, int]:
    """How many switches and links are up."""
    said = rest.get("/topology")
    switches = [each for each in said["switches"] if each["state"] == "up"]
    return len(switches), len([each for each in said["links"] if each["up"]])


def scale(rest: Rest, count: int) -> None:
    """Have so many configurators, as soon as a process supervises them."""

    def accepted() -> bool:
        try:
            return bool(rest.post("/configurators", {"count": count})["wanted"] == count)
        except Conflict:
            return False

    eventually(accepted, "a process starts and ends configurators")


class Fleet:
    """The processes of a service as commands, which are restarted one after the other."""

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        self._folder = folder
        self._config = folder / "settings.yaml"
        self._config.write_text(json.dumps(settings, default=str))
        self._config.chmod(0o600)
        self._ports = dict(zip(("api-1", "api-2"), free_ports(2), strict=True))
        self._running: dict[str, Up] = {}

    @property
    def urls(self) -> list[str]:
        """The addresses of the API processes."""
        return [f"http://127.0.0.1:{port}" for port in self._ports.values()]

    def start(self, *names: str, **variables: str) -> None:
        """Start some processes at the same time, and wait until they say that they are ready."""
        for name in names:
            only = name.partition("-")[0]
            words = ("--only", only, "--config", str(self._config))
            port = ("--port", str(self._ports[name])) if only == "api" else ()
            own = {"DZFLOW_SOUTHBOUND_ID": name, **variables}
            self._running[name] = Up(self._folder / name, *words, *port, **own)
        for name in names:
            stdout = self._running[name].process.stdout
            assert stdout
            said = next((line for line in stdout if "dzflow is ready" in line), None)
            assert said, self._running[name].process.communicate()[1]

    def end(self, *names: str) -> None:
        """End some processes with SIGTERM at the same time; they end in order."""
        ending = [self._running.pop(name) for name in names]
        for each in ending:
            each.process.send_signal(signal.SIGTERM)
        for each in ending:
            said = each.process.communicate(timeout=LIMIT)
            assert each.process.returncode == 0, said
            assert each.left() == {}

    def down(self) -> str:
        """End the configurators, and give what the command says."""
        words = ("down", "--config", str(self._config), "--data-dir", str(self._folder / "down"))
        done = subprocess.run([COMMAND, *words], capture_output=True, text=True, timeout=2 * LIMIT)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def end_all(self) -> None:
        """End what still runs."""
        self.end(*self._running)


def test_a_rolling_restart_loses_no_request_and_no_event(
    etcd_server: TestEtcd, ray_cluster: dict[str, Any], tmp_path: Path
) -> None:
    access = etcd_server.access()
    settings: dict[str, Any] = {
        **OUTSIDE,
        "topology": "line:3",
        "etcd": {"endpoints": access.endpoints, "prefix": access.prefix},
        "ray": ray_cluster,
        "times": {"drain_delay": 1.0},
    }
    fleet = Fleet(tmp_path, settings)
    first = ("api-1", "southbound-1", "configurators-1")
    second = ("api-2", "southbound-2", "configurators-2")
    try:
        fleet.start("network", *first, *second)
        with Balancer(fleet.urls) as balancer, Rest(balancer.url, timeout=LIMIT) as rest:
            eventually(lambda: all(map(is_ready, fleet.urls)), "everything is ready")
            rest.put_space("stocks", SCHEMA)
            before = pids(rest)
            with RequestLoop(balancer.url) as requests, EventFlow(balancer.url):
                requests.wait_for_more(10)
                for wave in (first, second):
                    fleet.end(*wave)
                    requests.wait_for_more(10)
                    fleet.start(*wave, DZFLOW_SLICES__LIMIT="77")
                    eventually(lambda: all(map(is_ready, fleet.urls)), "all are ready again")
                    requests.wait_for_more(10)
                eventually(
                    lambda: len(pids(rest)) == 2 and not before.items() & pids(rest).items(),
                    "the configurators have the new settings, too",
                )
                requests.wait_for_more(10)
            states = {record["id"]: record["state"] for record in rest.records("subscription")}
            assert {states.get(id) for id in requests.kept} == {"active"}
            url = fleet.urls[0]
            eventually(lambda: flows(url, "dp") == flows(url, "cp"), "the switches are right")
    finally:
        fleet.end_all()
        assert "no configurator runs any more" in fleet.down()
