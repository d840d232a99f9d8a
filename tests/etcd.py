"""Real etcd for tests: one server for all of them, and clusters with TLS and authentication."""

import asyncio
import secrets
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from aetcd import rpc

from configurators.store.etcd.connection import Access, EtcdConnection, Member, Metadata
from configurators.store.server.server import EtcdServer, TlsPorts, free_ports
from tests.certificates import Keys, make_keys

USER, PASSWORD = "root", "a password"


class TestEtcd:
    """The server that tests share. Each gets keys of its own."""

    __test__ = False

    def __init__(self, server: EtcdServer) -> None:
        self.server = server

    def access(self, timeout: float = 30.0) -> Access:
        """How it is reached, with a prefix that nobody else has."""
        return self.server.access(f"test-{secrets.token_hex(6)}/", timeout)


@contextmanager
def running(folder: Path, options: Sequence[str] = ()) -> Iterator[EtcdServer]:
    """A server of one's own, for tests that kill it or give it options."""
    server = EtcdServer(folder, fsync=False, options=options)
    server.start()
    try:
        yield server
    finally:
        server.stop()


class Cluster(NamedTuple):
    """Three members. Clients show a certificate, and log in."""

    members: Sequence[EtcdServer]
    keys: Keys

    def access(self, prefix: str = "test/", timeout: float = 30.0) -> Access:
        """How all members are reached."""
        return Access(
            tuple(member.endpoint for member in self.members),
            prefix,
            user=USER,
            password=PASSWORD,
            ca=str(self.keys.authority),
            cert=str(self.keys.certificate),
            key=str(self.keys.key),
            timeout=timeout,
        )


@contextmanager
def three_members(folder: Path) -> Iterator[Cluster]:
    """A cluster with TLS everywhere and authentication."""
    keys = make_keys(folder)
    files = (str(keys.authority), str(keys.certificate), str(keys.key))
    free = free_ports(6)
    names = ["one", "two", "three"]
    ports = {
        name: TlsPorts(client, peer, *files)
        for name, client, peer in zip(names, free[::2], free[1::2], strict=True)
    }
    cluster = ",".join(f"{name}=https://127.0.0.1:{each.peer}" for name, each in ports.items())
    with ExitStack() as stack:
        members = []
        for name, each in ports.items():
            options = [
                f"--name={name}",
                f"--initial-cluster={cluster}",
                # Members take turns on a loaded machine; that is no reason for an election.
                "--heartbeat-interval=100",
                "--election-timeout=1000",
            ]
            member = EtcdServer(folder / name, fsync=False, options=options, tls_ports=each)
            member.launch()
            stack.callback(member.stop)
            members.append(member)
        for member in members:
            member.wait()
        made = Cluster(members, keys)
        asyncio.run(authenticate(made.access()))
        yield made


async def authenticate(access: Access) -> None:
    """Create the user, who may do everything, and switch authentication on."""
    connection = EtcdConnection(
        Access(access.endpoints, ca=access.ca, cert=access.cert, key=access.key)
    )
    requests = [
        ("UserAdd", rpc.AuthUserAddRequest(name=USER, password=PASSWORD)),
        ("RoleAdd", rpc.AuthRoleAddRequest(name="root")),
        ("UserGrantRole", rpc.AuthUserGrantRoleRequest(user=USER, role="root")),
        ("AuthEnable", rpc.AuthEnableRequest()),
    ]
    for name, request in requests:

        async def invoke(
            member: Member,
            metadata: Metadata,
            timeout: float,
            name: str = name,
            request: object = request,
        ) -> None:
            await getattr(member.auth, name)(request, timeout=timeout, metadata=metadata)

        await connection.call(invoke, repeatable=False)
    await connection.close()
