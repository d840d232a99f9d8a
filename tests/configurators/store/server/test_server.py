import os
import select
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from configurators.store.etcd.client import Etcd
from configurators.store.server.server import EtcdFailed, EtcdServer, free_ports
from tests.etcd import running

PARENT = """
import pathlib, sys, threading
from configurators.store.server.server import EtcdServer

server = EtcdServer(pathlib.Path(sys.argv[1]), fsync=False)
starter = threading.Thread(target=server.start)  # ends long before the server should
starter.start()
starter.join()
server.wait()
print(server.pid, server.endpoint, flush=True)
sys.stdin.read()
"""


async def write(server: EtcdServer, key: str) -> None:
    async with Etcd(server.access()) as etcd:
        await etcd.put(key, b"")


async def keys(server: EtcdServer) -> list[str]:
    async with Etcd(server.access()) as etcd:
        return [item.key for item in (await etcd.range("")).items]


async def test_data_and_endpoint_stay_over_kill_and_stop(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        endpoint = server.endpoint
        await write(server, "a")
        server.kill()
        assert server.pid is None
        server.start()
        assert server.endpoint == endpoint
        await write(server, "b")
        server.stop()
        server.start()
        server.start()  # runs already
        assert await keys(server) == ["a", "b"]


def test_free_ports_are_none_that_connections_get() -> None:
    span = Path("/proc/sys/net/ipv4/ip_local_port_range")
    if not span.exists() or (low := int(span.read_text().split()[0])) <= 20_000:
        pytest.skip("the kernel gives nearly all ports to connections")
    found = free_ports(50)
    assert len(set(found)) == 50
    assert max(found) < low


async def test_another_server_on_the_same_folder_goes_on_with_its_data(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        await write(server, "a")
    with running(tmp_path) as server:
        assert await keys(server) == ["a"]


def test_a_folder_in_use_is_left_alone(tmp_path: Path) -> None:
    with running(tmp_path), pytest.raises(EtcdFailed, match="use by another"):
        EtcdServer(tmp_path, fsync=False).start()
    with running(tmp_path):
        pass


def test_nobody_else_can_read_the_data(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with running(folder):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_an_etcd_that_does_not_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(EtcdFailed, match="no-such-option"):
        EtcdServer(tmp_path, options=["--no-such-option"]).start()
    with running(tmp_path) as server:  # and the folder can be used
        assert server.pid is not None


async def test_options_of_another_etcd_in_the_environment_are_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ETCD_INITIAL_CLUSTER_STATE", "existing")
    monkeypatch.setenv("ETCD_DISCOVERY", "http://127.0.0.1:1")
    with running(tmp_path) as server:
        await write(server, "a")


def test_it_outlives_the_thread_that_started_it_but_not_the_process(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert parent.stdout is not None
        pid, _ = parent.stdout.readline().split()
        process = os.pidfd_open(int(pid))
        parent.send_signal(signal.SIGKILL)
        parent.wait(30)
        ended, _, _ = select.select([process], [], [], 30)
        assert ended
        os.close(process)
    finally:
        parent.kill()
        parent.communicate()
    with running(tmp_path):  # the folder is free again
        pass
