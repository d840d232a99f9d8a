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

import pytest

from configurators.store.server.server import free_ports
from tests.service import eventually, processes_with

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

        def said() -> str | None:
            found = re.search(r"--address='([0-9.:]+)'", Path(self.output.name).read_text())
            return found[1] if found else None

        return str(eventually(said, "the head of Ray is up"))

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


@contextmanager
def ray_with_clients(folder: Path) -> Iterator[tuple[str, Path]]:
    """A cluster of one node on loopback: its address for clients, and the file with its token."""
    gcs, port = free_ports(2)
    loopback = (
        *("--node-ip-address=127.0.0.1", f"--port={gcs}"),
        f"--ray-client-server-port={port}",
    )
    with head_node(folder, *loopback, RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0") as (_, variables):
        eventually(lambda: _accepts(port), "the head of Ray takes clients")
        yield f"ray://127.0.0.1:{port}", Path(variables["RAY_AUTH_TOKEN_PATH"])


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
