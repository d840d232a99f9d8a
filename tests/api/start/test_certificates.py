"""A whole service with TLS everywhere, by the certificates of `docs/how-to/certificates.md`."""

import asyncio
import os
import socket
import ssl
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from api.certs.wanted import Border
from api.start.up import Service
from configurators.store import keys
from configurators.store.documents import decode_process
from configurators.store.etcd.client import Etcd
from configurators.store.server.server import EtcdServer, TlsPorts, free_ports
from configurators.streams.addresses import split_address
from dzflow.sdk import Rest
from sdn.lab import Certificates, Lab
from sdn.network.topologies import topology
from tests.certificates import make_as_written
from tests.command import run_dzflow
from tests.etcd import PASSWORD, USER, authenticate
from tests.sdn.lab.support import needs_lab
from tests.service import LIMIT, SCHEMA, eventually, running

OPERATOR = "the token of the operator"
NETWORK = "line:2"
COMMAND = str(Path(sys.executable).parent / "dzflow")

pytestmark = needs_lab


class Secured(NamedTuple):
    """A service, its switches, and the certificates of both."""

    service: Service
    lab: Lab
    certs: Path
    etcd: EtcdServer
    openflow: int  # the port

    def environment(self) -> dict[str, str]:
        """How the commands of a host reach the service."""
        return {
            **os.environ,
            "DZFLOW_URL": self.service.url,
            "DZFLOW_TOKEN": OPERATOR,
            "DZFLOW_CA": str(self.certs / "api/ca.pem"),
        }

    def on_host(self, host: str, *words: str) -> "subprocess.Popen[str]":
        """Start `dzflow` on a host."""
        pipe = subprocess.PIPE
        command = [COMMAND, *words, "--host", host, "--space", "stocks"]
        return self.lab.popen(
            host, command, env=self.environment(), stdout=pipe, stderr=pipe, text=True
        )


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    certs = make_as_written("certificates.md", folder)
    settings: dict[str, Any] = tomllib.loads(run_dzflow("certs", "settings", certs).stdout)
    client, peer, openflow = free_ports(3)
    files = (certs / "etcd/ca.pem", certs / "etcd/member.pem", certs / "etcd/member.key")
    etcd = EtcdServer(
        folder / "etcd", fsync=False, tls_ports=TlsPorts(client, peer, *map(str, files))
    )
    etcd.start()
    try:
        asyncio.run(authenticate(etcd.access()))
        settings["etcd"] |= {"endpoints": [etcd.endpoint], "user": USER, "password": PASSWORD}
        settings["openflow"] |= {"ports": [openflow]}
        switches = Certificates(
            certs / "openflow/rack1.key", certs / "openflow/rack1.pem", certs / "openflow/ca.pem"
        )
        with (
            running(
                folder / "data",
                **settings,
                topology=NETWORK,
                data_plane="external",
                tokens={"operator": [OPERATOR]},
            ) as service,
            Lab(topology(NETWORK), f"ssl:127.0.0.1:{openflow}", tls=switches) as lab,
        ):
            lab.relay(int(service.url.rpartition(":")[2]))
            yield Secured(service, lab, certs, etcd, openflow)
    finally:
        etcd.stop()


def stream_ports(service: Service) -> list[int]:
    """Where the workers accept streams."""

    async def read() -> list[int]:
        async with Etcd(service.access) as etcd:
            items = [
                item
                for prefix in (keys.CONFIGURATORS, keys.SOUTHBOUND)
                for item in (await etcd.range(prefix)).items
            ]
        return [split_address(decode_process(item.value).address)[1] for item in items]

    return asyncio.run(read())


def issuer_at(port: int, ca: Path) -> str:
    """Begin TLS at a port of 127.0.0.1 as a client that trusts an authority; who it is."""
    context = ssl.create_default_context(cafile=ca)
    with (
        socket.create_connection(("127.0.0.1", port), timeout=LIMIT) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
    ):
        found: Any = secure.getpeercert()
    return str(dict(part[0] for part in found["issuer"])["commonName"])


def test_events_pass_a_network_in_which_everything_uses_tls(secured: Secured) -> None:
    trust = str(secured.certs / "api/ca.pem")
    with Rest(secured.service.url, OPERATOR, ca=trust) as rest:

        def connected() -> bool:
            items = rest.get("/switches")["items"]
            return [each["state"] for each in items] == ["up", "up"]

        eventually(connected, "both switches are connected")
        rest.put_space("stocks", SCHEMA)
        listener = secured.on_host("h1", "listen", "--filter", "price > 420", "--count", "1")
        assert listener.stderr
        assert "listening" in listener.stderr.readline()
        rest.begin("advertisement", "h2", "stocks", "price >= 0")
        secured.lab.wait_cache()
        publisher = secured.on_host("h2", "publish", '{"price": 500}')
        assert publisher.communicate(timeout=LIMIT)[1].startswith("published 1 event")
        said, _ = listener.communicate(timeout=LIMIT)
        assert "price=500" in said
        assert listener.returncode == 0


def test_every_port_shows_the_certificate_of_its_border(secured: Secured) -> None:
    api = int(secured.service.url.rpartition(":")[2])
    assert secured.etcd.tls_ports is not None
    ports: list[tuple[int, Border]] = [
        (api, "api"),
        (secured.openflow, "openflow"),
        (secured.etcd.tls_ports.client, "etcd"),
        (secured.etcd.tls_ports.peer, "etcd"),
    ]
    workers = stream_ports(secured.service)
    assert len(workers) == 3
    ports += [(port, "streams") for port in workers]
    for port, border in ports:
        authority = secured.certs / border / "ca.pem"
        assert issuer_at(port, authority) == f"dzflow {border} authority"


def test_etcd_refuses_a_client_without_a_certificate(secured: Secured) -> None:
    assert secured.etcd.tls_ports is not None
    context = ssl.create_default_context(cafile=secured.certs / "etcd/ca.pem")
    address = ("127.0.0.1", secured.etcd.tls_ports.client)
    with (
        socket.create_connection(address, timeout=LIMIT) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
    ):
        secure.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        with pytest.raises(ssl.SSLError, match=r"(?i)certificate"):
            secure.recv(1)
