"""`dzflow up --data-plane onos` with switches behind an ONOS."""

import asyncio
import signal
from collections.abc import Iterator

import pytest

from configurators.store.documents import encode
from configurators.store.etcd.client import Access, Etcd
from configurators.store.keys import WIRES
from dzflow import ControlPlane
from dzflow.sdk import Rest
from tests.etcd import TestEtcd
from tests.onos_standin import RunningStandIn, stand_in_process
from tests.service import LIMIT, SCHEMA, Up, eventually, flows, is_ready


@pytest.fixture(scope="module")
def onos() -> Iterator[RunningStandIn]:
    with stand_in_process("line:3") as running:
        yield running


@pytest.fixture(scope="module")
def url(
    onos: RunningStandIn, etcd_server: TestEtcd, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of a service whose switches are behind the stand-in."""
    access = etcd_server.access()
    up = Up(
        tmp_path_factory.mktemp("onos"),
        *("--data-plane", "onos", "--plan", "lpm", "--topology", "line:3"),
        DZFLOW_ONOS__URL=f"{onos.url}/onos/v1",
        DZFLOW_ETCD__ENDPOINTS=",".join(access.endpoints),
        DZFLOW_ETCD__PREFIX=access.prefix,
    )
    try:
        found = up.url()
        asyncio.run(store_wires(access, onos))
        with Rest(found) as rest:
            eventually(lambda: all(host.get("wire") for host in rest.hosts()), "the API knows them")
        yield found
    finally:
        code = up.end(signal.SIGTERM)
    assert code == 0


async def store_wires(access: Access, onos: RunningStandIn) -> None:
    """Store where applications reach the emulated hosts, as the network process does."""
    async with Etcd(access) as etcd:
        await etcd.put(WIRES, encode(onos.endpoints))


def test_the_service_is_ready_with_all_switches_of_onos(url: str) -> None:
    eventually(lambda: is_ready(url), "all switches are up")
    with Rest(url) as rest:
        switches = rest.get("/switches")["items"]
    assert {switch["id"]: switch["state"] for switch in switches} == dict.fromkeys(
        ("s1", "s2", "s3"), "up"
    )


def test_requests_are_acknowledged_and_events_delivered(url: str) -> None:
    with Rest(url) as rest:
        rest.put_space("stocks", SCHEMA)
    with (
        ControlPlane(url, host="h3", timeout=LIMIT) as subscriber,
        ControlPlane(url, host="h1", timeout=LIMIT) as publisher,
        subscriber.subscribe("stocks", "price > 420") as events,
        publisher.advertise("stocks", "price > 0") as advertisement,
    ):
        assert flows(url, "dp")
        assert flows(url, "dp") == flows(url, "cp")
        advertisement.publish({"price": 100})
        advertisement.publish({"price": 500})
        assert events.get(timeout=LIMIT) == {"price": 500}
    assert flows(url, "dp") == flows(url, "cp") == []
