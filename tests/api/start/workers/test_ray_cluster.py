"""Workers on Ray: the nodes that they are placed on, and what happens if a node dies."""

import asyncio
import os
import secrets
import subprocess
import sys
from functools import partial
from pathlib import Path

import msgspec
import pytest
from pydantic import SecretStr

from api.start.first_network import load_or_store_network
from api.start.parts.southbound import openflow_address
from api.start.settings.cluster_token import find_cluster_token
from api.start.settings.sections.processes import EtcdSettings, RaySettings
from api.start.settings.sections.switches import OpenFlowSettings
from api.start.settings.settings import Settings
from api.start.up import Service
from api.start.workers.ray_cluster import Cluster, choose, choose_with_room
from api.start.workers.ray_connection import Node, RayConnection
from api.start.workers.ray_environment import (
    NoRay,
    RayLost,
    environment,
    temporary_folder,
)
from configurators.store import keys
from configurators.store.documents import decode_process
from configurators.store.etcd.client import Access, Etcd
from configurators.store.model import Process
from dzflow.sdk import Rest
from tests.etcd import TestEtcd
from tests.ray_nodes import RayNode, cluster
from tests.service import SCHEMA, eventually, is_ready

__all__ = ["cluster"]


def test_workers_are_assigned_round_robin_in_a_fixed_order() -> None:
    nodes = [Node("b", "10.0.0.1"), Node("c", "10.0.0.2"), Node("a", "10.0.0.1")]
    assert [choose(nodes, number).id for number in range(1, 5)] == ["a", "b", "c", "a"]
    assert choose(nodes[::-1], 2) == choose(nodes, 2)


def test_a_worker_goes_to_another_node_if_the_one_by_turn_has_no_room() -> None:
    nodes = [Node("a", "10.0.0.1", 2), Node("b", "10.0.0.2", 2), Node("c", "10.0.0.3", 4)]

    def chosen(number: int, cpus: float, **used: float) -> str | None:
        found = choose_with_room(nodes, number, cpus, used)
        return found.id if found else None

    assert [chosen(number, 1) for number in range(1, 5)] == ["a", "b", "c", "a"]
    assert chosen(1, 1, a=1) == "a"
    assert chosen(1, 1, a=2) == "b"
    assert chosen(1, 3) == "c"
    assert chosen(2, 1, a=1.5, b=2, c=4) is None, "no node has room"


def test_a_ray_of_the_service_whose_only_node_is_gone_is_lost() -> None:
    class Empty(RayConnection):
        def nodes(self) -> list[Node]:
            return []

    def check(settings: Settings) -> list[str]:
        return Cluster(settings, connection=Empty(settings)).check()

    with pytest.raises(RayLost):
        check(Settings())
    joined = Settings(ray=RaySettings(address="here:1"))
    assert check(joined) == [], "another node may come"


def test_each_southbound_process_has_its_own_address_for_switches() -> None:
    given = Settings(southbound=1, openflow=OpenFlowSettings(ports=(7001, 7002)))
    assert [openflow_address(given, number) for number in (1, 2)] == [
        "127.0.0.1:7001",
        "127.0.0.1:7002",
    ]
    external = Settings(data_plane="external")
    assert [openflow_address(external, number) for number in (1, 3)] == [
        "127.0.0.1:6653",
        "127.0.0.1:6655",
    ]
    assert openflow_address(Settings(), 1) == "", "any port"
    lab = Settings(data_plane="ovs")
    assert openflow_address(lab, 1) != openflow_address(lab, 2)


def test_the_services_own_ray_ignores_rays_variables(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "elsewhere:6379")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "geheim")
    monkeypatch.setenv("DZFLOW_TOKENS__OPERATOR", "geheim")
    found = environment(Settings(), tmp_path / "token")
    assert "RAY_ADDRESS" not in found
    assert found["RAY_AUTH_TOKEN_PATH"] == str(tmp_path / "token")
    assert "geheim" not in found.values()


def test_a_cluster_is_joined_with_its_token_which_is_not_in_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RAY_OPTION", "x")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "geheim")
    monkeypatch.setenv("DZFLOW_TOKENS__OPERATOR", "geheim")
    named = Settings(ray=RaySettings(address="here:1", token_path=tmp_path / "other"))
    joined = Settings(ray=RaySettings(address="here:1"))
    assert find_cluster_token(named, os.environ) == tmp_path / "other"
    assert find_cluster_token(joined, os.environ) == "geheim"
    assert find_cluster_token(joined, {"RAY_AUTH_TOKEN_PATH": "/p"}) == Path("/p")
    assert find_cluster_token(joined, {}) is None
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").touch()
    assert find_cluster_token(joined, {}) == tmp_path / ".ray" / "auth_token"
    found = environment(joined, tmp_path / "kept")
    assert (found["RAY_AUTH_MODE"], found["RAY_AUTH_TOKEN_PATH"]) == (
        "token",
        str(tmp_path / "kept"),
    )
    assert found["RAY_OPTION"] == "x"
    assert "geheim" not in found.values()
    assert "RAY_AUTH_MODE" not in environment(joined, None)


def test_the_folder_for_sockets_is_short_private_and_cleared(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 100)
    folder = temporary_folder(deep)
    try:
        assert len(str(folder)) <= 40
        assert folder.stat().st_mode & 0o077 == 0
        (folder / "left").touch()
        assert temporary_folder(deep) == folder
        assert not list(folder.iterdir())
    finally:
        folder.rmdir()
    folder.symlink_to(tmp_path)
    try:
        with pytest.raises(NoRay, match="belongs to another user"):
            temporary_folder(deep)
    finally:
        folder.unlink()


def alive(access: Access, prefix: str) -> dict[str, Process]:
    """The processes that are registered in etcd."""

    async def read() -> dict[str, Process]:
        async with Etcd(access) as etcd:
            found = [decode_process(each.value) for each in (await etcd.range(prefix)).items]
        return {process.id: process for process in found}

    return asyncio.run(read())


def test_workers_are_spread_over_two_nodes_and_leave_one_that_dies(
    cluster: tuple[str, RayNode, dict[str, str]], etcd_server: TestEtcd, tmp_path: Path
) -> None:
    address, second, variables = cluster
    access = etcd_server.access()
    said: list[str] = []
    settings = Settings(
        topology="line:2",
        southbound=2,
        data_dir=tmp_path / "data",
        stream_token=SecretStr("shared by all processes"),
        etcd=EtcdSettings(endpoints=access.endpoints, prefix=access.prefix),
        ray=RaySettings(
            address=address,
            token_path=Path(variables["RAY_AUTH_TOKEN_PATH"]),
            configurator_cpus=0,  # all have to find room on the node that is left
            southbound_cpus=0,
        ),
        openflow=OpenFlowSettings(allow_plain=True),
    )
    _await_nodes(address, variables, 2)

    def nodes(prefix: str) -> dict[str, str]:
        return {id: process.node for id, process in alive(access, prefix).items()}

    def two(prefix: str) -> bool:
        return len(nodes(prefix)) == 2

    apart = settings.model_copy(update={"data_dir": tmp_path / "api", "port": 0})
    with Service(settings, "workers", said.append), Service(apart, "api") as api:
        for prefix in (keys.CONFIGURATORS, keys.SOUTHBOUND):
            eventually(partial(two, prefix), f"two {prefix} are there")
            assert len(set(nodes(prefix).values())) == 2, "each has its own node"
        before = nodes(keys.CONFIGURATORS)
        with Rest(api.url) as rest:
            rest.put_space("stocks", SCHEMA)
            rest.begin("advertisement", "h2", "stocks", {})
            rest.begin("subscription", "h1", "stocks", "price > 5")
        second.kill()

        def moved() -> bool:
            now = nodes(keys.CONFIGURATORS)
            return len(now) == 2 and len(set(now.values())) == 1

        eventually(moved, f"all are on the node that is left, as of {before}: {said}")
        assert set(nodes(keys.CONFIGURATORS).values()) < set(before.values())
        assert any("is started at" in text for text in said)
        eventually(lambda: is_ready(api.url), "the service is ready again")
        with Rest(api.url) as rest:
            assert rest.begin("subscription", "h1", "stocks", "price < 5")["state"] == "active"
    eventually(lambda: alive(access, keys.CONFIGURATORS) == {}, "no configurator is registered")


def test_a_worker_waits_for_resources_until_the_cluster_has_another_node(
    cluster: tuple[str, RayNode, dict[str, str]], etcd_server: TestEtcd, tmp_path: Path
) -> None:
    address, _, variables = cluster
    access = etcd_server.access()
    settings = Settings(
        topology="line:2",
        configurators=2,
        data_dir=tmp_path / "data",
        port=0,
        stream_token=SecretStr("shared by all processes"),
        etcd=EtcdSettings(endpoints=access.endpoints, prefix=access.prefix),
        ray=RaySettings(address=address, token_path=Path(variables["RAY_AUTH_TOKEN_PATH"])),
        openflow=OpenFlowSettings(allow_plain=True),
    )
    _await_nodes(address, variables, 2)
    with Service(settings) as service, Rest(service.url) as rest:

        def found(state: str) -> list[str]:
            items = rest.get("/configurators")["items"]
            return [f"{each['id']}: {each['reason']}" for each in items if each["state"] == state]

        # The two nodes have four CPUs; a southbound process has one of them.
        rest.post("/configurators", {"count": 4})
        waiting = (
            "configurator-4: waiting for resources: CPUs needed: 1, free in the Ray cluster: 0"
        )
        eventually(lambda: any(e.startswith(waiting) for e in found("starting")), waiting)
        eventually(lambda: len(found("up")) == 3, "the others run")
        third = RayNode(tmp_path, variables, f"--address={address}")
        try:
            eventually(lambda: len(found("up")) == 4, "it runs on the new node")
            eventually(lambda: is_ready(service.url), "nothing is impaired")
            nodes = {each.node for each in alive(access, keys.CONFIGURATORS).values()}
            assert len(nodes) == 3
        finally:
            third.kill()


STOPPED_AT_ONCE = """
import sys
import msgspec
from api.start.workers import ray_cluster
from api.start.workers.ray_cluster import Cluster
from api.start.settings.sources import restore
from api.start.workers.wanted import Worker
ray_cluster._NOTICE_SECONDS = ray_cluster._STOP_SECONDS = 60.0
cluster = Cluster(restore(msgspec.json.decode(sys.stdin.readline())))
cluster.start()
cluster.start_worker(Worker("configurators", 1))
sys.stdin.readline()
cluster.stop()
"""


def test_a_worker_that_has_just_started_ends_in_order(
    etcd_server: TestEtcd, tmp_path: Path
) -> None:
    access = etcd_server.access()
    settings = Settings(
        topology="line:2",
        data_dir=tmp_path,
        stream_token=SecretStr("shared by all processes"),
        etcd=EtcdSettings(endpoints=access.endpoints, prefix=access.prefix),
    )
    asyncio.run(_store_network(access, settings))
    (tmp_path / "token").write_text(secrets.token_hex(32))
    with subprocess.Popen(
        [sys.executable, "-c", STOPPED_AT_ONCE],
        env=environment(settings, tmp_path / "token"),
        stdin=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(settings.revealed()) + b"\n")
        process.stdin.flush()
        # Nobody has looked at the actor between its start and the end.
        eventually(lambda: alive(access, keys.CONFIGURATORS), "the configurator has registered")
        process.stdin.write(b"stop\n")
    assert process.returncode == 0
    assert alive(access, keys.CONFIGURATORS) == {}


async def _store_network(access: Access, settings: Settings) -> None:
    async with Etcd(access) as etcd:
        await load_or_store_network(etcd, settings)


def _await_nodes(address: str, variables: dict[str, str], count: int) -> None:
    """Wait until so many nodes have joined."""
    script = (
        "import ray, sys; ray.init(sys.argv[1], logging_level=50, log_to_driver=False);"
        "print(sum(node['Alive'] for node in ray.nodes()))"
    )

    def joined() -> bool:
        done = subprocess.run(
            [sys.executable, "-c", script, address],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
        )
        return done.stdout.strip() == str(count)

    eventually(joined, f"{count} nodes have joined")
