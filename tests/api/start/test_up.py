"""The whole service: started, damaged, stopped, killed, and restarted on the same folder."""

import asyncio
import os
import re
import signal
import socket
import ssl
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.start.data_folder import FolderInUse
from api.start.listening import PortTaken
from api.start.settings.settings import BadSettings
from api.start.settings.sources import load
from api.start.up import Service
from api.start.workers.ray_environment import folder_of
from configurators.store.etcd.client import Etcd
from configurators.store.keys import DISPATCHERS
from dzflow.sdk import Rest
from dzflow.sdk.errors import NotAuthorised
from tests.certificates import make_keys
from tests.service import (
    LIMIT,
    SCHEMA,
    Up,
    eventually,
    flows,
    is_ready,
    processes_with,
    running,
)

OPERATOR, HOST = "the token of the operator", "the token of h1 alone"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def hurt(folder: Path) -> Iterator[tuple[Service, list[str]]]:
    """A service whose processes are killed, and what it says about that."""
    said: list[str] = []
    # Within the time of the tests, no lease of an API process ends by itself.
    leases = {"dispatcher_lease": 600}
    with running(folder, said=said, times=leases) as service, Rest(service.url) as rest:
        rest.put_space("stocks", SCHEMA)
        for price in (100, 200, 300):
            rest.begin("subscription", "h1", "stocks", f"price > {price}")
        rest.begin("advertisement", "h3", "stocks", "price >= 0")
        yield service, said


def workers(url: str) -> dict[str, int]:
    """The processes of the configurators that are up."""
    with Rest(url) as rest:
        found = rest.get("/configurators")["items"]
    return {each["id"]: each["pid"] for each in found if each["state"] == "up"}


def await_whole(url: str) -> None:
    """Wait until the service is ready, with both configurators, and does what it should."""
    eventually(lambda: is_ready(url), "the service is ready")
    eventually(lambda: len(workers(url)) == 2, "both configurators are up")
    with Rest(url) as rest:
        records = rest.records("subscription")
        assert [record["state"] for record in records] == ["active"] * 3
        made = rest.begin("subscription", "h2", "stocks", "price < 50")
        assert made["state"] == "active"
        rest.end("subscription", made["id"])
    assert len(flows(url, "cp")) > 0
    eventually(lambda: flows(url, "dp") == flows(url, "cp"), "the switches hold what they should")


@pytest.mark.parametrize("name", ["api-1", "network", "etcd"])
def test_a_process_that_is_killed_comes_back(hurt: tuple[Service, list[str]], name: str) -> None:
    service, said = hurt
    before = service.pids[name]
    os.kill(before, signal.SIGKILL)
    eventually(lambda: service.pids.get(name) not in (None, before), f"{name} is restarted")
    await_whole(service.url)
    assert any(text.startswith(f"{name} has died") for text in said)


def test_an_api_process_that_is_killed_is_not_registered_until_its_lease_is_over(
    hurt: tuple[Service, list[str]],
) -> None:
    service, _ = hurt

    async def registered() -> set[str]:
        async with Etcd(service.access) as etcd:
            return {item.key for item in (await etcd.range(DISPATCHERS)).items}

    pid, before = service.pids["api-1"], asyncio.run(registered())
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: service.pids.get("api-1") not in (None, pid), "it is restarted")
    eventually(lambda: len(before - asyncio.run(registered())) == 1, "its key is deleted")
    await_whole(service.url)


def test_a_worker_that_is_killed_comes_back(hurt: tuple[Service, list[str]]) -> None:
    service, _ = hurt
    before = workers(service.url)
    os.kill(before["configurator-1"], signal.SIGKILL)
    eventually(
        lambda: workers(service.url).get("configurator-1") not in (None, before["configurator-1"]),
        "the configurator is restarted",
    )
    await_whole(service.url)
    assert workers(service.url)["configurator-2"] == before["configurator-2"]


def test_ray_that_is_killed_comes_back(hurt: tuple[Service, list[str]]) -> None:
    service, said = hurt
    before = set(workers(service.url).values())
    os.kill(service.pids["workers"], signal.SIGKILL)

    def restarted() -> bool:
        now = set(workers(service.url).values())
        return len(now) == 2 and not now & before

    eventually(restarted, "all workers are restarted")
    assert not any(Path(f"/proc/{pid}").exists() for pid in before)
    await_whole(service.url)
    assert any(text.startswith("workers has died") for text in said)


def test_workers_that_die_at_the_start_get_a_second_chance(tmp_path: Path) -> None:
    told: list[str] = []

    def tell(text: str) -> None:
        told.append(text)
        if text == "starting the workers":
            os.kill(service.pids["workers"], signal.SIGKILL)

    options = {"port": 0, "data_dir": tmp_path, "topology": "line:3"}
    service = Service(load(options=options, environment={}), tell=tell)
    with service:
        eventually(lambda: is_ready(service.url), "the service is ready")
    assert "starting workers once more" in told


def test_two_services_do_not_share_a_folder(hurt: tuple[Service, list[str]], folder: Path) -> None:
    service, _ = hurt
    with (
        pytest.raises(FolderInUse, match=rf"another `dzflow up` \(process {os.getpid()}\)"),
        running(folder),
    ):
        pass
    eventually(lambda: is_ready(service.url), "the first service is ready")


def test_a_port_in_use_is_reported_and_no_process_is_left(
    hurt: tuple[Service, list[str]], tmp_path: Path
) -> None:
    service, _ = hurt
    port = service.settings.port
    for count in (1, 2):
        with (
            pytest.raises(PortTaken, match=f"port {port} of 127.0.0.1 is in use"),
            running(tmp_path, port=port, dispatchers=count),
        ):
            pass
    assert processes_with(str(tmp_path)) == {}


def test_ray_runs_at_full_priority_on_loopback(hurt: tuple[Service, list[str]]) -> None:
    service, _ = hurt
    found = processes_with(str(service.settings.data_dir / "ray-token"))
    titles = {pid: text.split()[0] for pid, text in found.items()}
    workers = [pid for pid, title in titles.items() if re.match("ray::(Conf|South)", title)]
    assert len(workers) == 3
    assert {os.getpriority(os.PRIO_PROCESS, pid) for pid in workers} == {0}
    assert _listening(set(found)) <= {"127.0.0.1"}


def test_its_own_etcd_has_no_port(hurt: tuple[Service, list[str]]) -> None:
    service, _ = hurt
    assert _listening({service.pids["etcd"]}) == set()


def test_secrets_are_on_no_command_line_and_readable_by_nobody_else(
    hurt: tuple[Service, list[str]], folder: Path
) -> None:
    service, _ = hurt
    token = service.settings.stream_token
    assert token is not None
    assert processes_with(token.get_secret_value()) == {}
    for path in (folder, folder / "stream-token", folder / "ray-token", folder / "etcd"):
        assert path.stat().st_mode & 0o077 == 0, path
    for log in (folder / "logs").iterdir():
        assert token.get_secret_value() not in log.read_text(), log


def test_with_tokens_and_tls_other_machines_may_call(tmp_path: Path) -> None:
    pair = make_keys(tmp_path)
    folder = tmp_path / "data"
    options: dict[str, Any] = {
        "listen": "0.0.0.0",  # noqa: S104
        "tokens": {"operator": [OPERATOR], "hosts": {"h1": HOST}},
        "tls": {"cert": pair.certificate, "key": pair.key},
        "configurators": 1,
        "dispatchers": 2,
    }
    with running(folder, **options) as service:
        pids = service.pids
        assert service.url.startswith("https://127.0.0.1:")
        trust = partial(Rest, service.url, ca=pair.authority)
        with trust(OPERATOR) as rest:
            rest.put_space("stocks", SCHEMA)
        with trust(HOST) as rest:
            eventually(rest.spaces, "the API process that is asked knows the space")
            assert rest.begin("subscription", "h1", "stocks", "price > 5")["state"] == "active"
        with trust() as rest, pytest.raises(NotAuthorised):
            rest.spaces()
        told = httpx.get(
            f"{service.url}/settings",
            headers={"Authorization": f"Bearer {OPERATOR}"},
            verify=ssl.create_default_context(cafile=pair.authority),
            timeout=60,
        ).text
        assert OPERATOR not in told
        assert HOST not in told
        assert '"tokens.operator"' in told
    for log in (folder / "logs").iterdir():
        assert OPERATOR not in log.read_text(), log
    assert processes_with(str(folder)) == {}
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids.values())


def test_after_a_kill_or_a_stop_all_records_are_there_again(tmp_path: Path) -> None:
    first = Up(tmp_path, "--topology", "line:3")
    with Rest(first.url()) as rest:
        rest.put_space("stocks", SCHEMA)
        ids = {
            rest.begin("subscription", "h1", "stocks", f"price > {price}")["id"]
            for price in (100, 200, 300)
        }
        ids.add(rest.begin("advertisement", "h3", "stocks", "price >= 0")["id"])
        host = rest.put("/hosts/h9", {"switch": "s2", "port": 40})
    assert host["switch"] == "s2"
    there = " ".join(first.left().values())
    assert all(name in there for name in ("etcd", "raylet", "gcs_server", "ray::Configurator"))
    first.end(signal.SIGKILL)
    eventually(lambda: not first.left(), f"nothing is left, as of: {first.left()}")

    refused = Up(tmp_path, "--topology", "ring:4")
    said = refused.process.communicate(timeout=LIMIT)[1]
    assert refused.process.returncode == 1
    assert "ring:4 is another one" in " ".join(said.split())
    assert refused.left() == {}

    second = Up(tmp_path)
    url = second.url()
    with Rest(url) as rest:
        records = [*rest.records("subscription"), *rest.records("advertisement")]
        assert {record["id"] for record in records} == ids
        assert {record["state"] for record in records} == {"active"}
        assert "h9" in {host["id"] for host in rest.hosts()}
        assert len(rest.get("/switches")["items"]) == 3
    assert len(flows(url, "cp")) > 0
    eventually(lambda: flows(url, "dp") == flows(url, "cp"), "the switches hold what they should")
    assert second.end(signal.SIGTERM) == 0
    assert second.left() == {}


def test_ctrl_c_during_the_start_leaves_no_process(tmp_path: Path) -> None:
    up = Up(tmp_path)
    eventually(lambda: "raylet" in " ".join(up.left().values()), "Ray is being started")
    assert up.end(signal.SIGINT) == 128 + signal.SIGINT
    assert up.left() == {}
    assert not folder_of(tmp_path).exists()


def test_parts_that_are_started_apart_must_be_able_to_meet(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match=r"etcd\.endpoints"), running(tmp_path, "api"):
        pass
    etcd = {"endpoints": ["127.0.0.1:1"]}
    with (
        pytest.raises(BadSettings, match="stream_token"),
        running(tmp_path, "workers", etcd=etcd),
    ):
        pass


def _listening(pids: set[int]) -> set[str]:
    """The addresses at which processes listen for TCP."""
    nodes = set()
    for pid in pids:
        try:
            files = list(Path(f"/proc/{pid}/fd").iterdir())
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
        for file in files:
            try:
                target = os.readlink(file)
            except FileNotFoundError:
                continue
            if target.startswith("socket:["):
                nodes.add(target[8:-1])
    found = set()
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in nodes:
                raw = bytes.fromhex(words[1].partition(":")[0])
                swapped = b"".join(raw[at : at + 4][::-1] for at in range(0, len(raw), 4))
                found.add(socket.inet_ntop(family, swapped).removeprefix("::ffff:"))
    return found
