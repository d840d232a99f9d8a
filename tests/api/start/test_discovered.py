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
DECLARED = SHAPE.hosts[0]
OTHERS = [SHAPE.hosts[1].id, SHAPE.hosts[-2].id, SHAPE.hosts[-1].id]


async def store_wires(access: Access, network: EmulatedNetwork) -> None:
    """Tell applications where they reach the hosts, as the service does for its own network."""
    endpoints = network.endpoints()
    wires = {learned_id(network, name): endpoint for name, endpoint in endpoints.items()}
    async with Etcd(access) as etcd:
        await etcd.put(keys.WIRES, encode(wires | endpoints))


def learned_id(network: EmulatedNetwork, host: str) -> str:
    """How a host is called that nobody has declared."""
    return f"host-{network.hosts[host].mac.hex()}"


def known(rest: Rest) -> set[str]:
    """The hosts of the network."""
    return {host["id"] for host in rest.get("/hosts")["items"]}


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


def test_102_switches_that_nobody_described_and_their_hosts_are_found_and_events_flow(
    tmp_path: Path,
) -> None:
    ports = free_ports(1)
    external: dict[str, Any] = {
        "data_plane": "external",
        "topology": None,
        "openflow": {"ports": ports},
        "discovery": {"hosts": "accept", "accept_after": 2.0},
    }
    with running(tmp_path, **external) as service, Rest(service.url) as rest:
        assert rest.get("/topology")["switches"] == []
        assert rest.get("/readyz")["ready"]
        with outside_network(SHAPE, *ports) as network:
            eventually(lambda: is_whole(rest), "the network is found")
            asyncio.run(store_wires(service.access, network))
            # All join by themselves; one is declared under another name instead.
            where = {"switch": DECLARED.switch, "port": DECLARED.port}
            learned = {learned_id(network, host.id) for host in SHAPE.hosts}
            eventually(lambda: known(rest) == learned, "all hosts are found")
            first = learned_id(network, DECLARED.id)
            rest.delete(f"/hosts/{first}")
            rest.put(f"/hosts/{DECLARED.id}", where)
            assert known(rest) == {DECLARED.id} | learned - {first}
            names = [DECLARED.id, *(learned_id(network, name) for name in OTHERS)]
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
