"""A service that is told nothing of its network: it finds it, and events flow."""

import asyncio
from pathlib import Path
from typing import Any

from configurators.store import keys
from configurators.store.documents import encode
from configurators.store.etcd.client import Access, Etcd
from configurators.store.server.server import free_ports
from dzflow.sdk import ControlPlane, Rest
from sdn.emulator import EmulatedNetwork
from sdn.network.topologies import topology
from tests.outside import outside_network
from tests.service import SCHEMA, eventually, running

SHAPE = topology("fat-tree:102")
HOSTS = SHAPE.hosts[:2] + SHAPE.hosts[-2:]


async def store_wires(access: Access, network: EmulatedNetwork) -> None:
    """Tell applications where they reach the hosts, as the service does for its own network."""
    async with Etcd(access) as etcd:
        await etcd.put(keys.WIRES, encode(network.endpoints()))


def is_whole(rest: Rest) -> bool:
    """Whether all switches and links are found, and used by the trees."""
    found = rest.get("/topology")
    return (
        [switch["id"] for switch in found["switches"]] == [one.id for one in SHAPE.switches]
        and all(switch["state"] == "up" for switch in found["switches"])
        and len(found["links"]) == len(SHAPE.links)
        and all(link["up"] for link in found["links"])
        and len(found["trees"]) == 1
        and len(found["trees"][0]["links"]) == len(SHAPE.switches) - 1
    )


def test_102_switches_that_nobody_described_are_found_and_events_flow(tmp_path: Path) -> None:
    ports = free_ports(1)
    external: dict[str, Any] = {
        "data_plane": "external",
        "topology": None,
        "openflow": {"ports": ports},
    }
    with running(tmp_path, **external) as service, Rest(service.url) as rest:
        assert rest.get("/topology")["switches"] == []
        assert rest.get("/readyz")["ready"]
        with outside_network(SHAPE, *ports) as network:
            eventually(lambda: is_whole(rest), "the network is found")
            asyncio.run(store_wires(service.access, network))
            for host in HOSTS:
                where = {"switch": host.switch, "port": host.port}
                rest.put(f"/hosts/{host.id}", where)
            names = [host.id for host in HOSTS]
            publisher, *others = [ControlPlane(service.url, host=name) for name in names]
            publisher.put_space("stocks", SCHEMA)
            listening = [one.subscribe("stocks", "price > 420") for one in others]
            with publisher.advertise("stocks", {}) as advertised:
                for price in (7, 500):
                    advertised.publish({"price": price})
                for events in listening:
                    assert events.get(timeout=60)["price"] == 500
            for one in (publisher, *others):
                one.close()
