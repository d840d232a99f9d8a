"""Ray clusters for tests, as `ray start` makes them."""

import os
import re
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from configurators.store.server.server import free_ports
from tests.service import eventually, processes_with

_LISTEN = "0A"
_WORKERS = 24  # ports for workers, and for the processes of clients
_TRIES = 3  # to have a cluster at ports that were free
_BIND_FAILED = "Failed to bind"
_OF_CLIENTS = range(23_000, 24_000)  # of Ray, for the process of each client; within the head
PORT_OPTIONS = (
    "port",
    "ray-client-server-port",
    "node-manager-port",
    "object-manager-port",
    "runtime-env-agent-port",
    "dashboard-agent-grpc-port",
    "dashboard-agent-listen-port",
    "metrics-export-port",
)
"""The options of `ray start` that the docs name, beside the range for workers."""
_ALWAYS_OPEN = ("port", "ray-client-server-port", "node-manager-port", "object-manager-port")

RAY = str(Path(sys.executable).parent / "ray")


class RayNode:
    """A node of a Ray cluster, as `ray start` makes it."""

    def __init__(self, folder: Path, variables: dict[str, str], *words: str) -> None:
        command = [RAY, "start", *words, "--block", "--num-cpus=2", "--disable-usage-stats"]
        self.output = (folder / f"node-{secrets.token_hex(2)}").open("w+")
        self.process = subprocess.Popen(
            [*command, "--object-store-memory=80000000", "--include-log-monitor=False"],
            env={**os.environ, **variables, "RAY_worker_niceness": "0"},
            stdout=self.output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def address(self) -> str:
        """Where others join, once the head has said it."""

        def found() -> str | None:
            match = re.search(r"--address='([0-9.:]+)'", self.said())
            return match[1] if match else None

        return str(eventually(found, "the head of Ray is up"))

    def said(self) -> str:
        """What it has printed."""
        return Path(self.output.name).read_text()

    def kill(self) -> None:
        """End all its processes as a power cut would."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.output.close()


@contextmanager
def head_node(
    folder: Path, *words: str, **variables: str
) -> Iterator[tuple[RayNode, dict[str, str]]]:
    """The first node of a cluster, and the variables that lead to its token.

    All processes of the cluster have ended afterwards.
    """
    token = folder / "token"
    token.write_text(secrets.token_hex(32))
    all_variables = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token), **variables}
    # A short path, for the sockets in it.
    files = Path(f"/tmp/dzr{os.getpid()}{secrets.token_hex(1)}")  # noqa: S108
    files.mkdir(mode=0o700)
    node = RayNode(
        *(folder, all_variables, "--head", "--port=0", "--no-monitor"),
        *("--include-dashboard=False", f"--temp-dir={files}/r", *words),
    )
    try:
        yield node, all_variables
    finally:
        if node.process.poll() is None:
            node.kill()
        eventually(lambda: not _end(str(token)), "no process of the cluster is left")
        subprocess.run(["rm", "-rf", str(files)], check=True)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, RayNode, dict[str, str]]]:
    """Two nodes on this machine: the address of the first, the second, and the token's place."""
    with head_node(tmp_path) as (head, variables):
        address = head.address()
        second = RayNode(tmp_path, variables, f"--address={address}")
        try:
            yield address, second, variables
        finally:
            if second.process.poll() is None:
                second.kill()


class ClientCluster(NamedTuple):
    """A cluster that is used through Ray's client, and all ports that it may listen at."""

    address: str
    token: Path
    ports: frozenset[int]

    def listening(self) -> set[int]:
        """The TCP ports that its processes listen at."""
        inodes = {inode for pid in processes_with(str(self.token)) for inode in _sockets(pid)}
        found = set()
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            for line in Path(table).read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == _LISTEN and words[9] in inodes:
                    found.add(int(words[1].rpartition(":")[2], 16))
        return found


@contextmanager
def ray_with_clients(folder: Path) -> Iterator[ClientCluster]:
    """A cluster of one node on loopback, all of whose ports are given.

    Another program may take one of them before Ray does. Then it is tried with others.
    """
    for _ in range(_TRIES):
        with _ray_at_free_ports(folder) as found:
            if found is not None:
                yield found
                return
    raise AssertionError(f"ports that were free were taken {_TRIES} times before Ray had them")


@contextmanager
def _ray_at_free_ports(folder: Path) -> Iterator[ClientCluster | None]:
    """Such a cluster; None if one of its ports was taken."""
    # Together: what is drawn later could be the same port again.
    drawn = free_ports(len(PORT_OPTIONS) + _WORKERS)
    ports = dict(zip(PORT_OPTIONS, drawn, strict=False))
    given = [f"--{name}={port}" for name, port in ports.items()]
    workers = drawn[len(PORT_OPTIONS) :]
    given += [
        "--node-ip-address=127.0.0.1",
        f"--worker-port-list={','.join(map(str, workers))}",
    ]
    with head_node(folder, *given, RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0") as (head, variables):
        made = ClientCluster(
            f"ray://127.0.0.1:{ports['ray-client-server-port']}",
            Path(variables["RAY_AUTH_TOKEN_PATH"]),
            frozenset({*ports.values(), *workers, *_OF_CLIENTS}),
        )
        needed = {ports[name] for name in _ALWAYS_OPEN}

        def state() -> str:
            # Ray waits for ever for some ports, and ends for others.
            ended = head.process.poll() is not None
            open_ports = {port for port in ports.values() if _accepts(port)}
            own = made.listening()  # looked at last: Ray may have begun to listen meanwhile
            if open_ports - own or (ended and _BIND_FAILED in head.said()):
                return "taken"
            if ended:
                raise AssertionError(f"the head of Ray has ended: {head.said()}")
            return "up" if needed <= own else ""

        yield made if eventually(state, "the head of Ray takes clients") == "up" else None


def _sockets(pid: int) -> Iterator[str]:
    """The inodes of the sockets of a process."""
    try:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            target = os.readlink(entry)
            if target.startswith("socket:["):
                yield target[len("socket:[") : -1]
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _end(word: str) -> dict[int, str]:
    found = processes_with(word)
    for pid in found:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return found
