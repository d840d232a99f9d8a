"""The whole service on three etcd members with TLS and authentication, one of which dies."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from configurators.store.server.server import EtcdServer, NoEtcd, find_etcd
from dzflow import ControlPlane
from tests.callers import RequestLoop
from tests.dzflow.sdk.support import prices
from tests.etcd import Cluster, three_members
from tests.rest import SCHEMA
from tests.service import LIMIT, eventually, flows, running

_ESTABLISHED = "01"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    try:
        find_etcd()
    except NoEtcd as missing:
        pytest.skip(str(missing))
    with three_members(tmp_path_factory.mktemp("cluster")) as members:
        yield members


def settings(cluster: Cluster, prefix: str) -> dict[str, Any]:
    """What a service is told about the cluster."""
    access = cluster.access(prefix)
    names = ("endpoints", "prefix", "user", "password", "ca", "cert", "key")
    return {name: getattr(access, name) for name in names}


def busiest(cluster: Cluster) -> EtcdServer:
    """The member to which most connections of clients stand."""
    ports: Counter[int] = Counter()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, _, state = line.split()[:4]
        if state == _ESTABLISHED:
            ports[int(local.rpartition(":")[2], 16)] += 1

    def connections(member: EtcdServer) -> int:
        assert member.tls_ports is not None
        return ports[member.tls_ports.client]

    return max(cluster.members, key=connections)


@pytest.mark.parametrize("mode", ["sna", "sea"])
def test_the_service_goes_on_without_the_member_that_it_uses(
    cluster: Cluster, tmp_path: Path, mode: str
) -> None:
    with (
        running(tmp_path, mode=mode, etcd=settings(cluster, f"{mode}/")) as service,
        ControlPlane(service.url, "h1", timeout=LIMIT) as near,
        ControlPlane(service.url, "h2", timeout=LIMIT) as publisher,
        ControlPlane(service.url, "h3", timeout=LIMIT) as far,
    ):
        assert "etcd" not in service.pids, "it has no etcd of its own"
        publisher.put_space("stocks", SCHEMA)
        wanted = far.subscribe("stocks", "price > 420")
        advertised = publisher.advertise("stocks", "price >= 0")
        advertised.publish({"price": 500, "volume": 1})
        assert prices(wanted, 1) == [500]
        with RequestLoop(service.url) as requests:
            requests.wait_for_more(20)
            member = busiest(cluster)
            member.kill()
            requests.wait_for_more(60)
            member.start()
            requests.wait_for_more(20)
        states = {record["id"]: record["state"] for record in near.rest.records("subscription")}
        assert states == dict.fromkeys([*requests.kept, wanted.id], "active")
        advertised.publish({"price": 600, "volume": 1})
        assert prices(wanted, 1) == [600]
        eventually(
            lambda: flows(service.url, "dp") == flows(service.url, "cp"),
            "the switches hold what they should",
        )
        wanted.close()
        near.rest.post("/unsubscribe", [{"id": name} for name in requests.kept])
        advertised.close()
        assert near.rest.records("subscription") == near.rest.records("advertisement") == []
        assert flows(service.url, "dp") == []
