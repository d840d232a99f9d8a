"""The embedded etcd serves the user who started it, and nobody else."""

import asyncio
import base64
import http.client
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from configurators.store.etcd.client import Access, Etcd
from configurators.store.etcd.endpoints import socket_path
from configurators.store.etcd.errors import StoreUnavailable
from configurators.store.server.server import EtcdFailed, EtcdServer, find_etcd, free_ports
from tests.etcd import running
from tests.support import until

NOBODY = 65534
CONNECT = """
import os, socket, sys
os.setgroups([])
os.setgid(int(sys.argv[1]))
os.setuid(int(sys.argv[1]))
try:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(sys.argv[2])
except OSError as error:
    print(type(error).__name__)
else:
    print("connected")
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user of the machine can enter, unlike those of pytest."""
    folder = Path(tempfile.mkdtemp(prefix="dzflow-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def careless_umask() -> Iterator[None]:
    """New files of this process are open to all, unless it says otherwise."""
    before = os.umask(0)
    yield
    os.umask(before)


def sockets_of(server: EtcdServer) -> list[Path]:
    """The unix sockets at which etcd listens."""
    client = socket_path(server.endpoint)
    assert client is not None
    found = [path for path in client.parent.iterdir() if stat.S_ISSOCK(path.stat().st_mode)]
    assert client in found
    return found


def tries_to_connect(user: int, path: Path) -> str:
    """What a process of another user gets: `connected`, or the name of the error."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", CONNECT, str(user), str(path)],
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def open_files(pid: int) -> list[str]:
    """What the file descriptors of a process refer to."""
    found = []
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            found.append(os.readlink(file))
    return found


def network_sockets(pid: int) -> list[str]:
    """The lines of the kernel's tables of TCP and UDP sockets that belong to a process."""
    nodes = {link[8:-1] for link in open_files(pid) if link.startswith("socket:[")}
    assert nodes, "etcd has sockets, and they can be seen"
    lines = []
    for table in ("tcp", "tcp6", "udp", "udp6"):
        path = Path(f"/proc/{pid}/net/{table}")
        lines += path.read_text().splitlines()[1:] if path.exists() else []
    return [line for line in lines if line.split()[9] in nodes]


def test_etcd_listens_at_no_port_of_the_network(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        assert server.pid is not None
        assert network_sockets(server.pid) == []
        assert len(sockets_of(server)) == 2, "for clients and for other members"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
@pytest.mark.usefixtures("careless_umask")
def test_another_user_of_the_machine_cannot_connect(open_folder: Path) -> None:
    with running(open_folder / "etcd") as server:
        for path in sockets_of(server):
            assert tries_to_connect(0, path) == "connected"
            assert tries_to_connect(NOBODY, path) == "PermissionError"
        # Even if the folder is opened to all, the sockets are the owner's.
        server.data_dir.chmod(0o755)
        for path in sockets_of(server):
            assert tries_to_connect(NOBODY, path) == "PermissionError"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_a_folder_of_another_user_is_not_used(open_folder: Path) -> None:
    folder = open_folder / "etcd"
    folder.mkdir()
    os.chown(folder, NOBODY, NOBODY)
    server = EtcdServer(folder, fsync=False)
    with pytest.raises(EtcdFailed, match="belongs to another user"):
        server.start()
    assert not any(folder.iterdir())


@pytest.mark.usefixtures("careless_umask")
def test_files_of_etcd_are_its_owners(tmp_path: Path) -> None:
    with running(tmp_path / "etcd"):
        files = [path for path in (tmp_path / "etcd" / "data").rglob("*") if path.is_file()]
        assert files
        assert [path for path in files if path.stat().st_mode & 0o077] == []


async def test_there_is_no_json_gateway(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        async with Etcd(server.access()) as etcd:
            await etcd.put("a", b"1")
        key = base64.b64encode(b"dzflow/a").decode()
        body = json.dumps({"key": key, "value": key})
        for path in sockets_of(server):
            for call in ("range", "put", "deleterange"):
                assert post(path, f"/v3/kv/{call}", body) == 404
        async with Etcd(server.access()) as etcd:
            found = await etcd.get("a")
        assert found is not None
        assert found.value == b"1"


def post(path: Path, url: str, body: str) -> int:
    """The status of an HTTP request at a unix socket."""
    connection = http.client.HTTPConnection("localhost", timeout=30)
    connection.sock = socket.socket(socket.AF_UNIX)
    try:
        connection.sock.connect(str(path))
        connection.request("POST", url, body, {"Content-Type": "application/json"})
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize(
    "name", ["x" * 200, "with blanks, 100 % #1 ?a=b &c", "ä" * 60, "a%41:1"], ids=range(4)
)
async def test_a_folder_may_have_any_name(tmp_path: Path, name: str) -> None:
    with running(tmp_path / name) as server:
        async with Etcd(server.access()) as etcd:
            await etcd.put("a", b"1")
            server.kill()
            server.start()
            assert await etcd.get("a") is not None, "it connects again"


async def test_folders_of_closed_connections_are_closed(tmp_path: Path) -> None:
    with running(tmp_path / ("x" * 200)) as server:

        def opened() -> int:
            return open_files(os.getpid()).count(str(server.data_dir))

        for _ in range(3):
            async with Etcd(server.access()):
                assert opened() == 1
        assert opened() == 0


async def test_clients_may_come_before_etcd_does(tmp_path: Path) -> None:
    server = EtcdServer(tmp_path / "etcd", fsync=False)

    async def says_why() -> bool:
        """Not if the machine is so slow that the time is over before anything is tried."""
        with pytest.raises(StoreUnavailable) as refused:
            async with Etcd(server.access(timeout=0.5)):
                pass
        return "No such file" in str(refused.value)

    await until(says_why)

    async def write() -> None:
        async with Etcd(server.access(timeout=60)) as etcd:
            await etcd.put("a", b"1")

    async with asyncio.timeout(120), asyncio.TaskGroup() as group:
        writing = group.create_task(write())
        await asyncio.to_thread(server.start)
        await writing
    server.stop()


async def test_data_of_a_version_that_listened_at_ports_is_used(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    client, peer = (f"http://127.0.0.1:{port}" for port in free_ports(2))
    former = subprocess.Popen(
        [
            find_etcd().path,
            "--name=dzflow",
            f"--data-dir={tmp_path / 'data'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=dzflow={peer}",
            "--logger=zap",
            "--log-level=error",
        ],
        stdin=subprocess.DEVNULL,
    )
    try:
        async with Etcd(Access((client.removeprefix("http://"),), timeout=60)) as etcd:
            await etcd.put("a", b"kept")
    finally:
        former.terminate()
        former.wait(60)
    with running(tmp_path) as server:
        async with Etcd(server.access()) as etcd:
            found = await etcd.get("a")
            assert found is not None
            assert found.value == b"kept"
            await etcd.put("b", b"new")
        assert server.pid is not None
        assert network_sockets(server.pid) == []
