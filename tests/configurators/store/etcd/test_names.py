"""A member that gets another address is found under its name again, as in Kubernetes."""

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from configurators.store.etcd.endpoints import socket_path
from configurators.store.server.server import free_ports
from tests.etcd import TestEtcd
from tests.socket_server import SocketServer, connected

_CLIENT = """
import asyncio, sys
from configurators.store.etcd.client import Access, Etcd
async def main():
    async with Etcd(Access((sys.argv[1],), timeout=15)) as etcd:
        await etcd.put("a", b"")
        print("put", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        await etcd.put("a", b"")
        print("put", flush=True)
asyncio.run(main())
"""
_OWN_HOSTS = 'mount --bind "$0" /etc/hosts && exec "$@"'


@asynccontextmanager
async def relayed(path: Path, address: str, port: int) -> AsyncIterator[None]:
    """A relay to a socket; it ends with its connections."""

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with connected(path) as there, asyncio.TaskGroup() as group:
            group.create_task(_copy(reader, there[1]))
            group.create_task(_copy(there[0], writer))

    async with SocketServer(relay, (address, port)):
        yield


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):  # either side may end at any time
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        writer.write_eof()


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None,
    reason="only root may give a process a hosts file of its own",
)
async def test_a_member_is_found_at_its_new_address(etcd_server: TestEtcd, tmp_path: Path) -> None:
    path = socket_path(etcd_server.server.endpoint)
    assert path is not None
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.2 member\n")
    (port,) = free_ports(1)
    command = ["unshare", "--mount", "sh", "-c", _OWN_HOSTS, str(hosts)]
    async with relayed(path, "127.0.0.2", port):
        client = await asyncio.create_subprocess_exec(
            *command, sys.executable, "-c", _CLIENT, f"member:{port}",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert client.stdin is not None
        assert client.stdout is not None
        assert await client.stdout.readline() == b"put\n"
    async with relayed(path, "127.0.0.3", port):
        hosts.write_text("127.0.0.3 member\n")
        client.stdin.write(b"\n")
        said, _ = await client.communicate()
    assert said == b"put\n"
    assert client.returncode == 0
